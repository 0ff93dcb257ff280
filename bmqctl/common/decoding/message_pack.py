"""MessagePack: one value."""

from __future__ import annotations

import base64
from typing import Any

import msgpack

from bmqctl.common.decoding.values import to_json_value

__all__ = ["read_message_pack"]


def read_message_pack(payload: bytes) -> Any:
    """Convert a payload to a value of JSON; an extension is `{"type": 5, "base64": "AAE="}`. Raises `ValueError`."""
    try:
        value = msgpack.unpackb(payload, strict_map_key=False, timestamp=3, object_pairs_hook=_map, ext_hook=_extension)
    except msgpack.exceptions.ExtraData as fault:
        raise ValueError(f"{len(fault.extra)} bytes follow the value") from None
    except (msgpack.exceptions.UnpackException, OverflowError, TypeError) as fault:
        raise ValueError(str(fault) or type(fault).__name__) from None
    return to_json_value(value)


def _map(pairs: list[tuple[Any, Any]]) -> Any:
    """Convert a map; to a list of its pairs if keys are not texts, or repeat."""
    if all(isinstance(key, str) for key, _ in pairs) and len({key for key, _ in pairs}) == len(pairs):
        return dict(pairs)
    return pairs


def _extension(code: int, data: bytes) -> Any:
    return {"type": code, "base64": base64.b64encode(data).decode()}
