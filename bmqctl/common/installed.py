"""The installed parts of bmqctl, and the commands that install the others.

Nothing is published, so all commands are for a checkout. Only this module depends on that.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Final

__all__ = ["COMPILING", "advise_compiling", "advising", "installing", "is_compiled"]

COMPILING: Final = "BMQCTL_COMPILE=1 pip install . in a checkout, with a C compiler, compiles them"

# One of the modules in packaging/compiled.toml: they are compiled together or not at all.
_COMPILED = "formats.bmq.padding"
# Set once the advice is printed, so that child processes do not repeat it.
_ADVISED: Final = "BMQCTL_ADVISED_COMPILING"


def is_compiled() -> bool:
    """Return True if the compilable modules are compiled (packaging/build_hook.py, scripts/compile)."""
    spec = importlib.util.find_spec(_COMPILED)
    return spec is not None and spec.origin is not None and spec.origin.endswith(tuple(EXTENSION_SUFFIXES))


def installing(extra: str) -> str:
    """The command that installs an extra, and where to run it."""
    command = f"pip install '.[{extra}]' in a checkout of bmqctl"
    return f"{command}; the single file does not have it" if getattr(sys, "frozen", False) else command


def advise_compiling(command: str) -> None:
    """Print a line on standard error if the modules are interpreted, once for a command and its child processes."""
    advising(command)()


def advising(command: str, then: Callable[[], None] = lambda: None) -> Callable[[], None]:
    """Return a function that prints this line and calls `then`. Processes started meanwhile do not print the line."""
    if is_compiled() or os.environ.get(_ADVISED):
        return then
    os.environ[_ADVISED] = "1"

    def advise() -> None:
        # Unprintable advice must not prevent a broker's start.
        with suppress(OSError, ValueError):
            print(
                f"bmqctl {command}: the modules are interpreted, and slower than compiled; {COMPILING}", file=sys.stderr
            )
        then()

    return advise
