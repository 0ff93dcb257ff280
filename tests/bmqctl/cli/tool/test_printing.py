from __future__ import annotations

import pytest

from bmqctl.cli.tool.printing import (
    Plain,
    ascii_dump,
    attributes,
    correlation,
    hex_dump,
    hex_dump_start,
    pretty_bytes,
    pretty_interval,
    pretty_number,
    print_properties,
    queue_id,
)
from formats.bmq.wire.properties import Property, PropertyType


def test_values_stand_as_the_reference_prints_them() -> None:
    values = [("a", "text"), ("b", Plain("WORD")), ("c", 7), ("d", True), ("e", None), ("f", ["x", 1]), ("g", [])]
    assert attributes(values) == '[ a = "text" b = WORD c = 7 d = true e = NULL f = [ "x" 1 ] g = [ ] ]'
    assert attributes([]) == "[ ]"


def test_a_queue_is_its_uri_and_its_number() -> None:
    assert queue_id("bmq://d/q", 3) == "[ uri = bmq://d/q correlationId = [ autoValue = 3 ] ]"
    assert correlation(None) == '[ "* unset *" ]'
    assert correlation(5, "numeric") == "[ numeric = 5 ]"


def test_properties_are_printed_with_their_types() -> None:
    properties = [
        Property("x", PropertyType.INT32, -1),
        Property("s", PropertyType.STRING, "two"),
        Property("b", PropertyType.BOOL, False),
        Property("c", PropertyType.CHAR, b"\x1f"),
        Property("raw", PropertyType.BINARY, b"\x00\xff"),
    ]
    assert print_properties(properties) == (
        '[ x (INT32) = -1 s (STRING) = "two" b (BOOL) = false c (CHAR) = 1f raw (BINARY) = "00FF" ]'
    )


def test_a_hex_dump_has_lines_of_sixteen_bytes() -> None:
    assert hex_dump(b"") == ""
    assert hex_dump(b"hello") == "     0:   68656C6C 6F                             |hello           |\n"
    assert hex_dump(bytes(range(0x40, 0x51))) == (
        "     0:   40414243 44454647 48494A4B 4C4D4E4F     |@ABCDEFGHIJKLMNO|\n"
        "    16:   50                                      |P               |\n"
    )
    assert ascii_dump(b"a\0\x7f\xe9~") == "a...~"


def test_a_long_payload_is_dumped_in_part() -> None:
    assert hex_dump_start(bytes(256)) == hex_dump(bytes(256))
    assert hex_dump_start(bytes(300)) == hex_dump(bytes(256)) + "\t+ 44 more bytes. (300 total)"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0  B"), (1023, "1023  B"), (1024, "1.00 KB"), (1536, "1.50 KB"), (-2048, "-2.00 KB"), (5 << 30, "5.00 GB")],
)
def test_sizes(value: int, text: str) -> None:
    assert pretty_bytes(value) == text


def test_a_size_beyond_all_units_keeps_the_last() -> None:
    assert pretty_bytes(1 << 60) == "1024.00 PB"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1500, "1.50 us"),
        (2_000_000, "2.00 ms"),
        (90_000_000_000, "1.50 m"),
        (-1000, "-1.00 us"),
        (14 * 86_400_000_000_000, "2.00 w"),
    ],
)
def test_durations(value: int, text: str) -> None:
    assert pretty_interval(value) == text


def test_numbers_are_grouped() -> None:
    assert [pretty_number(value) for value in (0, 999, -1234567)] == ["0", "999", "-1,234,567"]
