"""Configurations in the reference's form: names in camelCase, without absent or empty members."""

from __future__ import annotations

from typing import Any

from broker.bmq.config.model import Model

__all__ = ["to_json"]


def to_json(model: Model) -> dict[str, Any]:
    """Return the model as a dict for `json.dumps`, defaults included."""
    found = _without_empty_arrays(model.model_dump(mode="json", by_alias=True, exclude_none=True))
    assert isinstance(found, dict)
    return found


def _without_empty_arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_empty_arrays(item) for name, item in value.items() if item != []}
    if isinstance(value, list):
        return [_without_empty_arrays(item) for item in value]
    return value
