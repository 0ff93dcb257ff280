"""Separate environments for official clients, each made once.

Several clients of RocketMQ have packages of the same name, and cannot be in the project's environment.
"""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

__all__ = ["CannotInstall", "client_python"]


class CannotInstall(Exception):
    """The client cannot be installed on this machine; the text names the reason."""


def client_python(package: str, name: str) -> Path:
    """Return the Python of the environment `name` with a package. Raises `CannotInstall`."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bmqctl" / name
    found = home / "bin" / "python"
    mark = home / "package"
    if not mark.exists() or mark.read_text() != package:
        venv.create(home, clear=True, with_pip=True)
        pip = [str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", package]
        done = subprocess.run(pip, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise CannotInstall(f"{package} cannot be installed: {done.stderr[-500:]}")
        mark.write_text(package)
    return found
