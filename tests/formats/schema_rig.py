"""The layouts of all formats."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import formats
from formats.schema import Layout


def _declared() -> list[Layout[Any]]:
    found: dict[int, Layout[Any]] = {}
    for module in pkgutil.walk_packages(formats.__path__, "formats."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Layout):
                found[id(value)] = value
    return sorted(found.values(), key=lambda layout: layout.name)


LAYOUTS = _declared()
