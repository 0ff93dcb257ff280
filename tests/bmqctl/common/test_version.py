"""`bmqctl --version`."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from bmqctl.common import installed
from bmqctl.common.version import version_text

KIND_AND_ORIGINALS = r", (?:compiled|interpreted)\nBlazingMQ main [0-9a-f]{8}, RocketMQ \d+\.\d+\.\d+"


def test_an_installed_package_tells_the_commit_that_it_was_made_of(tmp_path: Path) -> None:
    (tmp_path / "commit.txt").write_text("0123abc\n")
    assert re.fullmatch(rf"bmqctl {version('bmqctl')} \(commit 0123abc\){KIND_AND_ORIGINALS}", version_text(tmp_path))


def test_without_a_commit_there_is_the_version_alone(tmp_path: Path) -> None:
    assert re.fullmatch(rf"bmqctl {version('bmqctl')}{KIND_AND_ORIGINALS}", version_text(tmp_path / "bmqctl"))


@pytest.mark.process
def test_a_checkout_tells_its_head(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        pytest.skip("an archive of the sources, without a commit")
    assert re.fullmatch(rf"bmqctl {version('bmqctl')} \(commit [0-9a-f]{{7,}}\){KIND_AND_ORIGINALS}", version_text())


@pytest.mark.process
def test_a_folder_that_is_no_repository_after_all_is_no_error(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /nonexistent\n")
    assert "commit" not in version_text(tmp_path / "bmqctl")


def test_the_version_tells_compiled_from_interpreted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "_COMPILED", "bmqctl.app")
    assert version_text(tmp_path / "bmqctl").splitlines()[0] == f"bmqctl {version('bmqctl')}, interpreted"
    monkeypatch.setattr(installed, "_COMPILED", "numpy._core._multiarray_umath")
    assert version_text(tmp_path / "bmqctl").splitlines()[0] == f"bmqctl {version('bmqctl')}, compiled"
