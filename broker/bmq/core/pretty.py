# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Figures as the reference writes them in alarms (source: bmqu::PrintUtil)."""

from __future__ import annotations

from typing import Final

from formats.bmq.control.messages import ControlMessage

__all__ = ["Shown", "pretty_bytes", "pretty_interval", "pretty_number"]

# Limits of the encoded size and of the text of a shown message; the text may be many times as long.
SHOWN_BYTES_MAX: Final = 2 << 10
SHOWN_CHARACTERS_MAX: Final = 8 << 10


class Shown:
    """A control message for a log line, formatted when the line is written.

    If its encoding has more than `SHOWN_BYTES_MAX` bytes, only its type and `size` are shown.
    """

    __slots__ = ("_message", "_size")

    def __init__(self, message: ControlMessage, size: int) -> None:
        self._message = message
        self._size = size

    def __str__(self) -> str:
        if self._size > SHOWN_BYTES_MAX:
            return f"{type(self._message.choice).__name__} of {self._size} bytes"
        text = str(self._message)
        return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}..."


_UNITS: Final = (" B", "KB", "MB", "GB", "TB", "PB")
_INTERVALS_NS: Final = (
    ("w", 604_800_000_000_000),
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
)


def pretty_number(value: int) -> str:
    return f"{value:,}"


def pretty_bytes(size: int) -> str:
    """Return a size in its largest fitting unit, with two decimals unless that is the byte: `60  B`."""
    unit = min(max(size.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    if unit == 0:
        return f"{size} {_UNITS[0]}"
    hundredths = (size * 1000 // (1 << 10 * unit) + 5) // 10
    return f"{hundredths // 100}.{hundredths % 100:02} {_UNITS[unit]}"


def pretty_interval(time_ns: int) -> str:
    """Return a time in its largest fitting unit, with two decimals unless that is the nanosecond."""
    for unit, size_ns in _INTERVALS_NS:
        if time_ns >= size_ns:
            return f"{time_ns / size_ns:.2f} {unit}"
    return f"{time_ns} ns"
