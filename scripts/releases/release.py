"""A release of the commit that is checked out: version, changes, checks, packages, an index, and the upload.

    scripts/release [--dry-run] [VERSION]

The release is made in a clone, so that it has what is committed and nothing else, in an environment of its own:

1. VERSION goes into pyproject.toml. Without one, that of pyproject.toml is taken, or the next minor version if the list
   of changes has it already. A version that is not later than the last release is refused.
2. towncrier moves the fragments of packaging/news into the list of changes. Both are committed, and tagged.
3. scripts/check and scripts/test --fast run, and scripts/package builds and tries everything.
4. The results go to dist/release/VERSION: `simple`, an index that `pip install --index-url` takes, the single file,
   the Debian package, the container file, the changes of this version and the checksums of all. A wheel is installed
   from the index into an empty environment.
5. Without --dry-run, wheels and sdist are uploaded with twine, which asks for the account or takes it from the
   environment (TWINE_USERNAME, TWINE_PASSWORD, TWINE_REPOSITORY_URL), and the commit and the tag come into this
   repository, to be pushed.

Exit codes: 0 done, 1 a step failed, 2 the version or the checkout is not fit for a release.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

__all__ = ["Unfit", "main", "next_version", "notes_of", "release_into", "write_index", "write_version"]

NAME = "bmqctl"
CHANGES = "packaging/CHANGES.md"
NEWS = "packaging/news"
CONTAINER = "packaging/Containerfile"
_HEADING = re.compile(r"^## (\S+) \(.*\)$", re.MULTILINE)


class Unfit(Exception):
    """The version or the checkout is not fit for a release."""


class Plan(NamedTuple):
    """A release: of the repository `root`, made in `clone`, with its results in `target`."""

    root: Path
    clone: Path
    target: Path
    version: str


def next_version(project: str, changes: str, wanted: str | None) -> str:
    """Return the version to release. Raises `Unfit` if it is not a version, or not later than all releases.

    `project` is the version of pyproject.toml, `changes` the list of changes, `wanted` the requested version.
    """
    released = [Version(found) for found in _HEADING.findall(changes)]
    try:
        version = Version(wanted or project)
    except InvalidVersion as fault:
        raise Unfit(str(fault)) from None
    if wanted is None and version in released:
        version = Version(f"{version.major}.{version.minor + 1}.0")
    if released and version <= max(released):
        raise Unfit(f"{version} is not later than {max(released)}, which {CHANGES} has")
    return str(version)


def write_version(pyproject: Path, version: str) -> None:
    """Set the version of a project. Raises `Unfit` if the file has no line for it."""
    line = re.compile(r'^version = ".*"$', re.MULTILINE)
    text, count = line.subn(f'version = "{version}"', pyproject.read_text(), count=1)
    if not count:
        raise Unfit(f"{pyproject}: there is no line for the version")
    pyproject.write_text(text)


def notes_of(changes: str, version: str) -> str:
    """Return the entries of one version in a list of changes. Raises `Unfit` if it has none."""
    parts = _HEADING.split(changes)
    for found, text in zip(parts[1::2], parts[2::2], strict=True):
        if found == version and text.strip():
            return text.strip() + "\n"
    raise Unfit(f"{CHANGES} has nothing about {version}")


def write_index(simple: Path, files: Sequence[Path]) -> None:
    """Copy `files` into an index of one project, with the pages of PEP 503, in the new folder `simple`."""
    folder = simple / NAME
    folder.mkdir(parents=True)
    links = []
    for file in sorted(files):
        shutil.copy2(file, folder)
        name = html.escape(file.name)
        links.append(f'<a href="{name}#sha256={_sum(file)}" data-requires-python="&gt;=3.11">{name}</a><br>')
    _write_page(folder / "index.html", links)
    _write_page(simple / "index.html", [f'<a href="{NAME}/">{NAME}</a>'])


def _write_page(path: Path, lines: Sequence[str]) -> None:
    path.write_text("\n".join(["<!DOCTYPE html>", "<html><body>", *lines, "</body></html>", ""]))


def _sum(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _run(*command: str | Path, cwd: Path) -> None:
    print(f"release: {' '.join(map(str, command))}", flush=True)
    subprocess.run(command, cwd=cwd, check=True, stdin=subprocess.DEVNULL)


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True).stdout.strip()


def prepare(root: Path, wanted: str | None, *, is_dry: bool) -> Plan:
    """Clone the commit that is checked out, and commit and tag version and changes there."""
    if not is_dry and _git(root, "status", "--porcelain"):
        raise Unfit("the checkout has changes that are not committed")
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    version = next_version(project, (root / CHANGES).read_text(), wanted)
    if not any((root / NEWS).glob("*.md")):
        raise Unfit(f"{NEWS} has no news: nothing has changed for users since the last release")
    plan = Plan(root, root / "build/release" / version, root / "dist/release" / version, version)
    for folder in (plan.clone, plan.target):
        shutil.rmtree(folder, ignore_errors=True)
    _run("git", "clone", "--quiet", root, plan.clone, cwd=root)
    # The author of the release is that of this repository.
    for key in ("user.name", "user.email"):
        found = subprocess.run(["git", "-C", str(root), "config", key], capture_output=True, text=True, check=False)
        _git(plan.clone, "config", key, found.stdout.strip() or NAME)
    write_version(plan.clone / "pyproject.toml", version)
    towncrier = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", version]
    _run(*towncrier, cwd=plan.clone)
    notes_of((plan.clone / CHANGES).read_text(), version)
    _git(plan.clone, "add", "--all")
    _git(plan.clone, "commit", "--quiet", "--message", f"Release {version}")
    _git(plan.clone, "tag", f"v{version}")
    return plan


def build(plan: Plan) -> None:
    for command in (["scripts/setup"], ["scripts/check"], ["scripts/test", "--fast"], ["scripts/package"]):
        _run(*command, cwd=plan.clone)


def gather(plan: Plan) -> None:
    """Put the results into the target folder, and try the index there."""
    dist = plan.clone / "dist"
    plan.target.mkdir(parents=True)
    published = [*dist.glob("*.whl"), *dist.glob("*.tar.gz")]
    write_index(plan.target / "simple", published)
    for file in (dist / NAME, *dist.glob("*.deb"), plan.clone / CONTAINER):
        if file.exists():
            shutil.copy2(file, plan.target)
    (plan.target / "CHANGES.md").write_text(notes_of((plan.clone / CHANGES).read_text(), plan.version))
    files = sorted(file for file in plan.target.rglob("*") if file.is_file())
    sums = [f"{_sum(file)}  {file.relative_to(plan.target)}\n" for file in files]
    (plan.target / "SHA256SUMS").write_text("".join(sums))


def try_index(plan: Plan) -> None:
    """Install this version from the index into an empty environment, and have it print its version."""
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder, "bin/python")
        index = (plan.target / "simple").as_uri()
        _run(sys.executable, "-m", "venv", folder, cwd=plan.root)
        pip: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        _run(*pip, "--no-deps", "--index-url", index, f"{NAME}=={plan.version}", cwd=Path(folder))
        # Its dependencies come from the configured index.
        _run(*pip, f"{NAME}=={plan.version}", cwd=Path(folder))
        _run(Path(folder, "bin", NAME), "--version", cwd=Path(folder))


def try_container(plan: Plan) -> None:
    """Have the container file judged, and build the image if a working program for it is installed."""
    hadolint = plan.clone / ".venv/bin/hadolint"
    if hadolint.exists():
        _run(hadolint, CONTAINER, cwd=plan.clone)
    for program in ("podman", "docker"):
        if shutil.which(program) and not subprocess.run([program, "info"], capture_output=True, check=False).returncode:
            _run(program, "build", "--file", CONTAINER, "--tag", f"{NAME}:{plan.version}", ".", cwd=plan.clone)
            return
    print("release: neither podman nor docker works here: the image was not built")


def publish(plan: Plan) -> None:
    """Upload wheels and sdist, and take the commit and the tag into the repository."""
    files = sorted(str(file) for file in (plan.target / "simple" / NAME).iterdir() if file.suffix in {".whl", ".gz"})
    # With the terminal: twine may ask for the account.
    subprocess.run([plan.clone / ".venv/bin/twine", "upload", *files], check=True)
    _run("git", "fetch", plan.clone, "HEAD", f"refs/tags/v{plan.version}:refs/tags/v{plan.version}", cwd=plan.root)
    _run("git", "merge", "--ff-only", f"v{plan.version}", cwd=plan.root)
    print(f"release: {plan.version} is published; git push --follow-tags brings the commit and the tag to others")


def release_into(root: Path, wanted: str | None, *, is_dry: bool) -> Plan:
    """Make a release of `root`; see the module. Raises `Unfit` and `subprocess.CalledProcessError`."""
    plan = prepare(root, wanted, is_dry=is_dry)
    build(plan)
    gather(plan)
    try_index(plan)
    try_container(plan)
    if not is_dry:
        publish(plan)
    return plan


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/release", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("version", metavar="VERSION", nargs="?")
    parser.add_argument("--dry-run", action="store_true", help="do all but publish it")
    given = parser.parse_args()
    root = Path(__file__).resolve().parents[2]
    try:
        plan = release_into(root, given.version, is_dry=given.dry_run)
    except Unfit as fault:
        print(f"release: {fault}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as fault:
        print(f"release: {' '.join(map(str, fault.cmd))} ended with {fault.returncode}", file=sys.stderr)
        return 1
    print(f"release: {plan.version} is in {plan.target.relative_to(root)}")
    if given.dry_run:
        print(f"release: to publish it: scripts/release {plan.version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
