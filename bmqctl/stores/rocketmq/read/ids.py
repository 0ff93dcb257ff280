"""The parts of RocketMQ's message ids, by name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from formats.errors import FormatError
from formats.rocketmq.message_ids import ClientId, OffsetId, UniqueId

__all__ = ["has_offset", "is_unique_id", "offset_id_parts", "unique_id_parts", "version_1_parts"]

# Longer than any log.
_OFFSET_MAX: Final = 1 << 56
_MONTH_MS_MAX: Final = 31 * 86_400_000


def has_offset(text: str) -> bool:
    """Return whether an id looks like an offset id: a plausible port and log offset."""
    try:
        found = OffsetId.parse(text)
    except FormatError:
        return False
    return found.host.port > 0 and 0 <= found.physical_offset < _OFFSET_MAX


def is_unique_id(text: str) -> bool:
    """Return whether an id looks like a unique id: a process, and a time within a month."""
    try:
        found = UniqueId.parse(text)
    except FormatError:
        return False
    return (found.pid, found.loader_hash) != (0, 0) and found.month_ms < _MONTH_MS_MAX


def offset_id_parts(text: str) -> dict[str, Any]:
    """The parts of an offset id. Raises `FormatError` if it is not one."""
    found = OffsetId.parse(text)
    return {"offset_id": text, "store_host": str(found.host), "offset": found.physical_offset}


def unique_id_parts(text: str, month: datetime | None) -> dict[str, Any]:
    """The parts of a unique id; timed only if a time of its month is given. Raises `FormatError` if it is not one."""
    found = UniqueId.parse(text)
    parts: dict[str, Any] = {"unique_id": text, **found._asdict()}
    if month is not None:
        begin = month.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        parts["time"] = (begin + timedelta(milliseconds=found.month_ms)).isoformat()
    return parts


def version_1_parts(text: str) -> dict[str, Any]:
    """The parts of a 34-digit id, as clients of version 5 make. Raises `FormatError` if it is not one."""
    found = ClientId.parse(text)
    return {
        "unique_id": text,
        "version": 1,
        "mac": found.mac.hex(":"),
        "pid": found.pid,
        "time": datetime.fromtimestamp(found.made_s, UTC).isoformat(),
        "counter": found.counter,
    }
