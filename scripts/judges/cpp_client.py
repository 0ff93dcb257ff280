"""RocketMQ's C++ client, as PyPI's `rocketmq` 0.4.4 has it, in a separate environment."""

from __future__ import annotations

import platform
from pathlib import Path

from scripts.judges.client_environment import CannotInstall, client_python

__all__ = ["PACKAGE", "CannotInstall", "cpp_python"]

PACKAGE = "rocketmq==0.4.4"


def cpp_python() -> Path:
    """Return the Python of the environment, which is made once. Raises `CannotInstall`."""
    if platform.machine() != "x86_64":
        raise CannotInstall(f"{PACKAGE} has a wheel for x86_64 only")
    return client_python(PACKAGE, "rocketmq-cpp")
