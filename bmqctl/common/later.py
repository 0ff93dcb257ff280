"""Modules that are imported when they are first used, so that the help of a command does not wait for them.

if TYPE_CHECKING:
    from broker.bmq.assembly import app as assembly
else:
    assembly = Later("broker.bmq.assembly.app")
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["Later", "imported"]


class Later:
    """A module that is imported on first use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(imported(self._name), attribute)


def imported(name: str) -> ModuleType:
    """Import a module with garbage collection disabled, since nearly all of the new objects stay."""
    if name in sys.modules:
        return sys.modules[name]
    was_on = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
