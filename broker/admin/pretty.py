"""Figures as the reference writes them for people (source: bmqu::PrintUtil)."""

from __future__ import annotations

__all__ = ["pretty_bytes", "pretty_number"]

_UNITS = (" B", "KB", "MB", "GB", "TB", "PB")


def pretty_number(value: int) -> str:
    """Digits in groups of three."""
    return f"{value:,}"


def pretty_bytes(size: int) -> str:
    """A size in the largest unit of which there is one, with two decimals unless they are plain bytes: `60  B`."""
    unit = min(max(size.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    if unit == 0:
        return f"{size} {_UNITS[0]}"
    hundredths = (size * 1000 // (1 << 10 * unit) + 5) // 10
    return f"{hundredths // 100}.{hundredths % 100:02} {_UNITS[unit]}"
