"""Releases: their versions, their lists of changes, and the index that is made of their files."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

import pytest

from scripts.releases import release

CHANGES = "# Changes\n\n## 0.2.0 (2026-11-23)\n\n### New\n\n- That.\n\n## 0.1.0 (2026-10-01)\n\nThe first.\n"


@pytest.mark.parametrize(
    ("project", "wanted", "version"),
    [
        ("0.2.0", None, "0.3.0"),
        ("0.2.1", None, "0.2.1"),
        ("0.2.0", "0.2.1", "0.2.1"),
        ("0.2.0", "1.0.0rc1", "1.0.0rc1"),
    ],
)
def test_the_next_version(project: str, wanted: str | None, version: str) -> None:
    assert release.next_version(project, CHANGES, wanted) == version


def test_the_first_version_is_that_of_the_project() -> None:
    assert release.next_version("0.1.0", "# Changes\n", None) == "0.1.0"


@pytest.mark.parametrize(
    ("wanted", "fault"),
    [
        ("0.2.0", "0.2.0 is not later than 0.2.0"),
        ("0.1.9", "0.1.9 is not later than 0.2.0"),
        ("new", "Invalid version"),
    ],
)
def test_a_version_that_is_no_next_one_is_refused(wanted: str, fault: str) -> None:
    with pytest.raises(release.Unfit, match=re.escape(fault)):
        release.next_version("0.2.0", CHANGES, wanted)


def test_the_version_is_written_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text('[project]\nname = "x"\nversion = "1.0"\n\n[tool]\nversion = "9"\n')
    release.write_version(file, "1.1")
    assert file.read_text() == '[project]\nname = "x"\nversion = "1.1"\n\n[tool]\nversion = "9"\n'
    file.write_text("[project]\n")
    with pytest.raises(release.Unfit, match="no line for the version"):
        release.write_version(file, "1.1")


def test_the_changes_of_a_version() -> None:
    assert release.notes_of(CHANGES, "0.2.0") == "### New\n\n- That.\n"
    assert release.notes_of(CHANGES, "0.1.0") == "The first.\n"
    with pytest.raises(release.Unfit, match=r"nothing about 0\.3\.0"):
        release.notes_of(CHANGES, "0.3.0")


def test_the_index_has_each_file_with_its_checksum(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("bmqctl-1-py3-none-any.whl", "bmqctl-1.tar.gz")]
    for file in files:
        file.write_text(file.name)
    release.write_index(tmp_path / "simple", files)
    page = (tmp_path / "simple/bmqctl/index.html").read_text()
    links = re.findall(r'href="([^"#]+)#sha256=(\w+)"', page)
    assert links == [(file.name, hashlib.sha256(file.name.encode()).hexdigest()) for file in files]
    assert all((tmp_path / "simple/bmqctl" / name).exists() for name, _ in links)
    assert 'href="bmqctl/"' in (tmp_path / "simple/index.html").read_text()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a version, a list of changes and a fragment of news."""
    root = tmp_path / "repository"
    (root / "packaging/news").mkdir(parents=True)
    (root / "pyproject.toml").write_text(
        '[project]\nname = "bmqctl"\nversion = "0.2.0"\n\n[tool.towncrier]\nname = "bmqctl"\n'
        'directory = "packaging/news"\nfilename = "packaging/CHANGES.md"\n'
        'title_format = "## {version} ({project_date})"\nunderlines = ["", "", ""]\n'
    )
    start = "<!-- towncrier release notes start -->\n\n"
    (root / release.CHANGES).write_text(CHANGES.replace("# Changes\n\n", f"# Changes\n\n{start}"))
    (root / "packaging/news/7.this.feature.md").write_text("This is new.\n")
    (root / ".gitignore").write_text("build/\ndist/\n")
    for words in (
        ["init", "--quiet"],
        ["config", "user.name", "A"],
        ["config", "user.email", "a@example.org"],
        ["add", "."],
        ["commit", "--quiet", "-m", "Begin"],
    ):
        subprocess.run(["git", "-C", str(root), *words], check=True)
    return root


@pytest.mark.process
def test_a_release_is_prepared_in_a_clone(repository: Path) -> None:
    pytest.importorskip("towncrier")
    plan = release.prepare(repository, None, is_dry=True)
    assert plan.version == "0.3.0"
    assert 'version = "0.3.0"' in (plan.clone / "pyproject.toml").read_text()
    changes = (plan.clone / release.CHANGES).read_text()
    assert "This is new." in release.notes_of(changes, "0.3.0")
    assert changes.index("0.3.0") < changes.index("0.2.0")
    assert list((plan.clone / "packaging/news").glob("*.md")) == []
    clone = ["git", "-C", str(plan.clone)]
    status = subprocess.run([*clone, "status", "--porcelain"], capture_output=True, text=True, check=True)
    assert status.stdout == "", "something is not committed"
    tags = subprocess.run([*clone, "tag", "--points-at", "HEAD"], capture_output=True, text=True, check=True)
    assert tags.stdout == "v0.3.0\n"
    # The repository is as it was.
    assert 'version = "0.2.0"' in (repository / "pyproject.toml").read_text()
    assert (repository / "packaging/news/7.this.feature.md").exists()


@pytest.mark.process
def test_only_what_is_committed_is_published(repository: Path) -> None:
    (repository / "more").write_text("not committed")
    with pytest.raises(release.Unfit, match="not committed"):
        release.prepare(repository, None, is_dry=False)
    assert not (repository / "build").exists()


@pytest.mark.process
def test_a_release_without_news_is_refused(repository: Path) -> None:
    pytest.importorskip("towncrier")
    (repository / "packaging/news/7.this.feature.md").unlink()
    subprocess.run(["git", "-C", str(repository), "commit", "--quiet", "-am", "Remove it"], check=True)
    with pytest.raises(release.Unfit, match="no news"):
        release.prepare(repository, None, is_dry=True)


def test_built_files_are_gathered_with_their_checksums(tmp_path: Path) -> None:
    plan = release.Plan(tmp_path, tmp_path / "clone", tmp_path / "target", "0.2.0")
    for name in ("dist/bmqctl", "dist/bmqctl-0.2.0-py3-none-any.whl", "dist/bmqctl_0.2.0_amd64.deb", release.CONTAINER):
        (plan.clone / name).parent.mkdir(parents=True, exist_ok=True)
        (plan.clone / name).write_text(name)
    (plan.clone / release.CHANGES).write_text(CHANGES)
    release.gather(plan)
    lines = (plan.target / "SHA256SUMS").read_text().splitlines()
    sums = {name: found for found, _, name in (line.partition("  ") for line in lines)}
    assert sums.keys() == {
        "CHANGES.md",
        "Containerfile",
        "bmqctl",
        "bmqctl_0.2.0_amd64.deb",
        "simple/bmqctl/bmqctl-0.2.0-py3-none-any.whl",
        "simple/bmqctl/index.html",
        "simple/index.html",
    }
    assert all(hashlib.sha256((plan.target / name).read_bytes()).hexdigest() == found for name, found in sums.items())
