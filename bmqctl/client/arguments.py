"""Checks of the client libraries' arguments.

Each raises `ValueError` with the name of the argument, its value and the range.
"""

from __future__ import annotations

from typing import Final

__all__ = ["INT_MAX", "LONG_MAX", "SECONDS_MAX", "check_seconds", "check_text", "check_whole"]

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
SECONDS_MAX: Final = 1_000_000_000


def check_whole(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name} is {value!r:.80}: expected a whole number from {low} to {high}")


def check_seconds(name: str, value: object, *, is_zero_allowed: bool = False) -> None:
    """Check a number of seconds, above 0 unless `is_zero_allowed`, and at most `SECONDS_MAX`."""
    # No comparison with NaN is true.
    if not isinstance(value, int | float) or not 0 <= value <= SECONDS_MAX or not (value or is_zero_allowed):
        least = "from 0" if is_zero_allowed else "above 0"
        raise ValueError(f"{name} is {value!r:.80}: expected a number of seconds, {least} to {SECONDS_MAX}")


def check_text(name: str, value: object, characters_max: int, *, is_empty_allowed: bool = False) -> None:
    """Check a text that UTF-8 can encode, of 1 to `characters_max` characters, or none if `is_empty_allowed`."""
    least = 0 if is_empty_allowed else 1
    if not isinstance(value, str) or not least <= len(value) <= characters_max or not _is_unicode(value):
        raise ValueError(f"{name} is {value!r:.80}: expected a text of {least} to {characters_max} characters")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
