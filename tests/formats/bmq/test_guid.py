from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.bmq.guid import (
    GUID,
    GuidFields,
    GuidGenerator,
    format_guid,
    parse_guid,
    timer_tick_ns,
)
from formats.errors import FormatError

CLIENT = bytes.fromhex("fb4048e3a759")


@given(st.binary(min_size=16, max_size=16))
def test_guids_come_back(guid: bytes) -> None:
    assert GUID.pack(GUID.unpack(guid)) == guid
    assert parse_guid(format_guid(guid)) == guid


def test_a_guid_of_the_reference() -> None:
    guid = parse_guid("40000200000000D53ECDFB4048E3A759")
    fields = GUID.unpack(guid)
    assert fields == GuidFields(1, 2, 0xD5, 0x3ECD, CLIENT)
    assert timer_tick_ns(fields) == 0xD53ECD


@pytest.mark.parametrize("text", ["", "4" * 31, "4" * 33, "4" * 31 + "a", "4" * 31 + "G", "4" * 31 + "\u0664"])
def test_only_upper_case_digits_are_a_guid(text: str) -> None:
    with pytest.raises(FormatError):
        parse_guid(text)


def test_a_generator_counts_and_ticks() -> None:
    generator = GuidGenerator(CLIENT, start_ns=1000)
    first, second, third = (GUID.unpack(generator.make(now)) for now in (1000, 1000, 1000 + (5 << 16) + 7))
    assert first == GuidFields(1, 0, 0, 0, CLIENT)
    assert second == GuidFields(1, 1, 0, 0, CLIENT)
    assert third == GuidFields(1, 2, 5, 7, CLIENT)


def test_no_two_guids_are_the_same_on_a_clock_that_stands_still() -> None:
    generator = GuidGenerator(CLIENT, start_ns=0)
    assert len({generator.make(0) for _ in range(1000)}) == 1000


def test_a_client_id_has_six_bytes() -> None:
    with pytest.raises(ValueError, match="6 bytes"):
        GuidGenerator(b"12345", 0)
