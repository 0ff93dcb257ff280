"""The version of this program, its commit, compiled or not, and the versions of the originals that it follows."""

from __future__ import annotations

import subprocess
from importlib.metadata import version
from pathlib import Path

from bmqctl.common.installed import is_compiled

__all__ = ["BLAZINGMQ", "ROCKETMQ", "version_text"]

BLAZINGMQ = "main a5b313cb"
ROCKETMQ = "5.4.0"

GIT_TIMEOUT_S = 5.0


def version_text(package: Path = Path(__file__).parents[1]) -> str:
    """The text of `bmqctl --version`: two lines without a final newline."""
    commit = _commit(package)
    kind = "compiled" if is_compiled() else "interpreted"
    own = f"bmqctl {version('bmqctl')}" + (f" (commit {commit}), {kind}" if commit else f", {kind}")
    return f"{own}\nBlazingMQ {BLAZINGMQ}, RocketMQ {ROCKETMQ}"


def _commit(package: Path) -> str:
    """The commit, empty if unknown. Wheels and binaries have it in a file (packaging/build_hook.py)."""
    noted = package / "commit.txt"
    if noted.is_file():
        return noted.read_text().strip()
    if not (package.parent / ".git").exists():
        return ""
    command = ["git", "-C", str(package), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
