"""The installed parts of bmqctl, and the commands that install the others.

Nothing is published, so all commands are for a checkout. Only this module has to change when that does.
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

# One of the modules that packaging/compiled.toml lists: they are compiled together or not at all.
_COMPILED = "formats.bmq.padding"
# Set in the environment once the advice is printed, so that the processes that a command starts do not repeat it.
_ADVISED: Final = "BMQCTL_ADVISED_COMPILING"


def is_compiled() -> bool:
    """Return True if the modules that can be compiled are (packaging/build_hook.py, scripts/compile)."""
    spec = importlib.util.find_spec(_COMPILED)
    return spec is not None and spec.origin is not None and spec.origin.endswith(tuple(EXTENSION_SUFFIXES))


def installing(extra: str) -> str:
    """Return the command that installs an extra, and where to run it."""
    command = f"pip install '.[{extra}]' in a checkout of bmqctl"
    return f"{command}; the single file does not have it" if getattr(sys, "frozen", False) else command


def advise_compiling(command: str) -> None:
    """Print a line on standard error if the modules are interpreted, once for a command and the processes it starts."""
    advising(command)()


def advising(command: str, then: Callable[[], None] = lambda: None) -> Callable[[], None]:
    """Return a function that prints this line and calls `then`. Processes started meanwhile do not print the line."""
    if is_compiled() or os.environ.get(_ADVISED):
        return then
    os.environ[_ADVISED] = "1"

    def advise() -> None:
        # Advice that cannot be printed must not keep a broker from its start.
        with suppress(OSError, ValueError):
            print(
                f"bmqctl {command}: the modules are interpreted, and slower than compiled; {COMPILING}", file=sys.stderr
            )
        then()

    return advise
