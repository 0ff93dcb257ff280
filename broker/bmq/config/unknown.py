"""Members of a configuration file that its schema lacks: they are skipped when it is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker.bmq.config.model import Model, model_in

__all__ = ["unknown_members"]


def unknown_members(model: type[Model], value: Any, path: str = "$") -> Iterator[str]:
    """Yield the JSON paths of members of a parsed file that its model does not have."""
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from unknown_members(model, each, f"{path}[{index}]")
        return
    if not isinstance(value, dict):
        return
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    for name, each in value.items():
        if name not in fields:
            yield f"{path}.{name}"
        elif (inner := model_in(fields[name].annotation)) is not None:
            yield from unknown_members(inner, each, f"{path}.{name}")
