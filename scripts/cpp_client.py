"""An environment of its own for RocketMQ's C++ client, as PyPI's `rocketmq` 0.4.4 has it.

Its package has a name that another client has, too, so it cannot be in the project's environment.
"""

from __future__ import annotations

import os
import platform
import subprocess
import venv
from pathlib import Path

__all__ = ["PACKAGE", "CannotInstall", "cpp_python"]

PACKAGE = "rocketmq==0.4.4"


class CannotInstall(Exception):
    """A client that cannot be had on this machine; the text says why."""


def cpp_python() -> Path:
    """Return the Python of the environment, which is made once. Raises `CannotInstall`."""
    if platform.machine() != "x86_64":
        raise CannotInstall(f"{PACKAGE} has a wheel for x86_64 only")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bmqctl" / "rocketmq-cpp"
    found = home / "bin" / "python"
    mark = home / "package"
    if not mark.exists() or mark.read_text() != PACKAGE:
        venv.create(home, clear=True, with_pip=True)
        pip = [str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", PACKAGE]
        done = subprocess.run(pip, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise CannotInstall(f"{PACKAGE} cannot be installed: {done.stderr[-500:]}")
        mark.write_text(PACKAGE)
    return found
