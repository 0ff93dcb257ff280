"""Makes a copy of this checkout whose listed modules are compiled: see scripts/compile, which runs it.

    python -m scripts.releases.compiled_tree FOLDER

The copy has the files that git knows or would add, as they are now. Files unchanged since the last run are neither
copied nor compiled again. A marker in FOLDER shows that it is such a copy: no other folder is written to.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from scripts.releases import compiling

MARKER = ".compiled-tree"


def wanted_files(root: Path) -> list[str]:
    """List the files of a checkout, tracked or new."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return sorted({path for path in listed.split("\0") if path and (root / path).is_file()})


def copy(root: Path, folder: Path, files: list[str]) -> None:
    """Make `folder` a copy of `files` of `root`. Raises `Unfit` if it has content but is no such copy."""
    marker = folder / MARKER
    if folder.exists() and any(folder.iterdir()) and not marker.exists():
        raise compiling.Unfit(f"{folder} is not empty, and no compiled tree: name another folder, or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    before = set(marker.read_text().split("\0")[1:]) if marker.exists() else set()
    digest = marker.read_text().split("\0")[0] if marker.exists() else ""
    marker.write_text("\0".join([digest, *sorted({*files, *before})]))
    for gone in before.difference(files):
        (folder / gone).unlink(missing_ok=True)
    for path in files:
        source, target = root / path, folder / path
        content = source.read_bytes()
        if not target.is_file() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.write_bytes(content)
            target.chmod(source.stat().st_mode)
    marker.write_text("\0".join([digest, *files]))


def digest_of(root: Path, files: list[str]) -> str:
    """Hash the inputs of the extensions: sources, list, and the Python and mypyc that compile them."""
    from mypy.version import __version__ as mypy_version

    summary = hashlib.sha256(f"{sys.version} {mypy_version}".encode())
    for path in files:
        if path.endswith(".py") and path.startswith(("formats/", "broker/", "scripts/releases/compiling.py")):
            summary.update(path.encode() + b"\0" + (root / path).read_bytes())
    summary.update((root / compiling.LIST).read_bytes())
    return summary.hexdigest()


def make(root: Path, folder: Path) -> bool:
    """Make or renew the tree; return False if its extensions were up to date."""
    files = wanted_files(root)
    copy(root, folder, files)
    link = folder / ".venv"
    if not link.is_symlink():
        link.symlink_to((root / ".venv").resolve())
    commit = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    if commit.returncode == 0:
        (folder / "bmqctl/commit.txt").write_text(commit.stdout)
    digest = digest_of(root, files)
    marker = folder / MARKER
    if marker.read_text().split("\0")[0] == digest:
        return False
    for old in compiling.extensions_of(folder):
        old.unlink()
    subprocess.run([sys.executable, str(folder / "scripts/releases/compiling.py"), str(folder)], check=True)
    marker.write_text("\0".join([digest, *files]))
    return True


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m scripts.releases.compiled_tree FOLDER")
    folder = Path(sys.argv[1]).resolve()
    try:
        made = make(Path(__file__).resolve().parents[2], folder)
    except compiling.Unfit as error:
        sys.exit(f"compiled_tree: {error}")
    except subprocess.CalledProcessError:
        sys.exit("compiled_tree: the modules could not be compiled; what is above says why")
    print(f"compiled tree: {folder}, {'made' if made else 'up to date'}", file=sys.stderr)


if __name__ == "__main__":
    main()
