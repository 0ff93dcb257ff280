"""A configuration written as the reference writes it: names in camelCase, without what is absent or empty."""

from __future__ import annotations

from typing import Any

from broker.bmq.config.model import Model

__all__ = ["to_json"]


def to_json(model: Model) -> dict[str, Any]:
    """The model as the dict that `json.dumps` takes, defaults included."""
    found = _without_empty_arrays(model.model_dump(mode="json", by_alias=True, exclude_none=True))
    assert isinstance(found, dict)
    return found


def _without_empty_arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_empty_arrays(item) for name, item in value.items() if item != []}
    if isinstance(value, list):
        return [_without_empty_arrays(item) for item in value]
    return value
