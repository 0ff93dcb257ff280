"""The imports of each loaded module by others, from their source."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

__all__ = ["importers"]

_IMPORT = re.compile(r"^ *(?:from (?P<package>[\w.]+) )?import (?P<listed>\([^)]*\)|.*)", re.MULTILINE)


def importers(name: str, root: Path) -> set[str]:
    """Return the loaded modules under a folder that import one, or import one that does, and itself."""
    found, left = set[str](), [name]
    users = _users(root)
    while left:
        each = left.pop()
        if each not in found:
            found.add(each)
            left += users.get(each, ())
    return found


@cache
def _users(root: Path) -> dict[str, set[str]]:
    """Return the modules that import each one."""
    users: dict[str, set[str]] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is None or not Path(file).is_relative_to(root) or not file.endswith(".py"):
            continue
        for imported in _imported(Path(file).read_text()):
            if imported in sys.modules:
                users.setdefault(imported, set()).add(name)
    return users


def _imported(source: str) -> set[str]:
    """Return the names that may be modules in the imports of a source, also those within functions."""
    names = set[str]()
    for found in _IMPORT.finditer(source):
        package, listed = found["package"], re.findall(r"[\w.]+", found["listed"].partition("#")[0])
        names.update(f"{package}.{each}" if package else each for each in listed)
        names.add(package or "")
    return names
