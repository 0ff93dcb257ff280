"""Conversion of decoded values to JSON.

Values that JSON lacks become objects or texts: bytes are `{"base64": "AAE="}`, times ISO 8601, decimals, UUIDs, NaN and
the infinities texts, and a map with keys other than texts its pairs `[[key, value], ...]`.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

__all__ = ["to_json_value"]


def to_json_value(value: Any) -> Any:
    """Convert a value. Raises `ValueError` for an unknown type, and `RecursionError`."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: to_json_value(each) for key, each in value.items()}
        return [[to_json_value(key), to_json_value(each)] for key, each in value.items()]
    if isinstance(value, list | tuple):
        return [to_json_value(each) for each in value]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    raise ValueError(f"has a {type(value).__name__}, which cannot be shown")
