"""Parsing of numbers in untrusted texts, within the bounds of Java's types (source: Long.parseLong).

Python's `int` accepts digits of all scripts, spaces and underscores, and raises for more than 4,300 digits.
`scripts.checks.bounded_numbers` checks that RocketMQ's modules do not apply it to texts.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["INT_MAX", "LONG_MAX", "read_digits", "read_int", "read_long"]

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1

# Longer texts are refused, although Java accepts any number of leading zeros.
_CHARACTERS_MAX: Final = 64
_NUMBER: Final = re.compile(r"[+-]?[0-9]+")
_DIGITS: Final = re.compile(r"[0-9]+")


def read_long(text: str | None) -> int | None:
    """Parse a number from -2^63 to 2^63-1; None for any other text."""
    return _read(_NUMBER, text, LONG_MAX)


def read_int(text: str | None) -> int | None:
    """Parse a number from -2^31 to 2^31-1; None for any other text."""
    return _read(_NUMBER, text, INT_MAX)


def read_digits(text: str | None, most: int = LONG_MAX) -> int | None:
    """Parse a number from 0 to `most` of digits alone; None for any other text."""
    return _read(_DIGITS, text, most)


def _read(form: re.Pattern[str], text: str | None, most: int) -> int | None:
    if text is None or len(text) > _CHARACTERS_MAX or not form.fullmatch(text):
        return None
    number = int(text)
    return number if -most - 1 <= number <= most else None
