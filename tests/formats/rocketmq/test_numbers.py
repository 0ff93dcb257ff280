"""Numbers in texts that others wrote, as Java reads them."""

from __future__ import annotations

import pytest

from formats.rocketmq.numbers import INT_MAX, LONG_MAX, read_digits, read_int, read_long


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-1", -1),
        ("+7", 7),
        ("0" * 40 + "7", 7),
        (str(LONG_MAX), LONG_MAX),
        (str(-LONG_MAX - 1), -LONG_MAX - 1),
        (str(LONG_MAX + 1), None),
        (str(-LONG_MAX - 2), None),
        ("9" * 5_000, None),
        ("0" * 5_000, None),
        ("", None),
        (None, None),
        ("-", None),
        (" 1", None),
        ("1\n", None),
        ("1_0", None),
        ("1.0", None),
        ("0x1", None),
        ("\N{ARABIC-INDIC DIGIT THREE}", None),
        ("\N{FULLWIDTH DIGIT SEVEN}", None),
        ("\N{SUPERSCRIPT TWO}", None),
    ],
)
def test_numbers_of_64_bits(text: str | None, number: int | None) -> None:
    assert read_long(text) == number


def test_bounds() -> None:
    assert (read_int(str(INT_MAX)), read_int(str(-INT_MAX - 1))) == (INT_MAX, -INT_MAX - 1)
    assert (read_int(str(INT_MAX + 1)), read_int(str(-INT_MAX - 2))) == (None, None)
    assert (read_digits("65535", 65_535), read_digits("65536", 65_535)) == (65_535, None)
    assert (read_digits("-1"), read_digits("+1")) == (None, None)
