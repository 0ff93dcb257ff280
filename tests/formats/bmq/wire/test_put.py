from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.bmq.codes import CompressionAlgorithm, PutFlag
from formats.bmq.wire.options import pack_message_group_id
from formats.bmq.wire.put import PUT_HEADER, Put, append_put, correlation_id, iter_puts
from formats.errors import FormatError

GUID = bytes(range(16))

puts = st.builds(
    Put,
    st.sampled_from([0, 1]),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.binary(min_size=16, max_size=16),
    st.integers(0, (1 << 32) - 1),
    st.sampled_from(CompressionAlgorithm),
    st.just(0),
    st.sampled_from([b"", pack_message_group_id(b"group")]).map(memoryview),
    st.binary(min_size=1, max_size=40).map(memoryview),
) | st.builds(
    Put,
    st.sampled_from([2, 3]),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.binary(min_size=16, max_size=16),
    st.integers(0, (1 << 32) - 1),
    st.sampled_from(CompressionAlgorithm),
    st.integers(0, 0xFFFF),
    st.just(memoryview(b"")),
    st.binary(min_size=1, max_size=40).map(memoryview),
)


def body(*messages: Put) -> bytearray:
    out = bytearray()
    for each in messages:
        append_put(
            out,
            each.queue_id,
            each.guid,
            each.data,
            each.crc32c,
            each.flags,
            each.compression,
            each.schema_id,
            each.options,
        )
    return out


def parsed(data: bytes | bytearray) -> list[Put]:
    return list(iter_puts(memoryview(data), 0, len(data)))


ONE = Put(PutFlag.ACK_REQUESTED, 7, GUID, 0x01020304, 0, 0, memoryview(b""), memoryview(b"hello"))


@given(st.lists(puts, max_size=4), st.integers(0, 3))
def test_messages_come_back(messages: list[Put], offset: int) -> None:
    data = b"x" * offset + bytes(body(*messages)) + b"left over"
    assert list(iter_puts(memoryview(data), offset, len(data) - 9)) == messages


def test_the_bytes_of_a_message() -> None:
    assert body(ONE).hex(" ", 4) == (
        "1000000b 00000009 00000007 00010203 04050607 08090a0b 0c0d0e0f 01020304 00000000 68656c6c 6f030303"
    )


def test_an_older_sender_leaves_the_schema_id_away() -> None:
    data = bytearray.fromhex("20000009 00000008 00000007" + "00" * 16 + "01020304 61030303")
    (each,) = parsed(data)
    assert (each.schema_id, bytes(each.data), each.flags) == (0, b"a", 2)


def test_a_newer_sender_may_have_a_longer_header() -> None:
    head = PUT_HEADER.unpack(body(ONE))._replace(header_words=10, message_words=12)
    (each,) = parsed(PUT_HEADER.pack(head) + b"new!" + b"hello\3\3\3")
    assert each == ONE


def test_a_client_without_guids_says_a_correlation_id() -> None:
    assert correlation_id(bytes.fromhex("00abcdef" + "00" * 12)) == 0xABCDEF


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"message_words": 0}, "PutHeader.message_words"),
        ({"message_words": 12}, "PutHeader.message_words"),
        ({"message_words": 9}, "PutHeader.message_words"),
        ({"message_words": 10}, "Put.padding"),
        ({"options_words": 2}, "PutHeader.message_words"),
        ({"options_words": (1 << 24) - 1}, "PutHeader.message_words"),
        ({"header_words": 7}, "PutHeader.header_words"),
        ({"header_words": 31}, "PutHeader.message_words"),
        ({"compression": 2}, "PutHeader.compression"),
        ({"schema_id": 1}, "PutHeader.schema_id"),
    ],
)
def test_impossible_headers_are_refused(changes: dict[str, Any], path: str) -> None:
    data = body(ONE)
    PUT_HEADER.pack_into(data, 0, PUT_HEADER.unpack(data)._replace(**changes))
    with pytest.raises(FormatError) as caught:
        parsed(data)
    assert caught.value.path == path


@pytest.mark.parametrize("last", [0, 5, 8, 255])
def test_impossible_padding_is_refused(last: int) -> None:
    data = body(ONE)
    data[-1] = last
    with pytest.raises(FormatError, match="padding"):
        parsed(data)


def test_a_message_without_data_is_refused() -> None:
    with pytest.raises(FormatError, match="no data"):
        parsed(body(ONE._replace(data=memoryview(b""))))


@pytest.mark.parametrize("size", [1, 35])
def test_a_cut_header_is_refused_after_the_messages_before_it(size: int) -> None:
    messages = iter_puts(memoryview(body(ONE, ONE)), 0, len(body(ONE)) + size)
    assert next(messages) == ONE
    with pytest.raises(FormatError) as caught:
        next(messages)
    assert caught.value.offset == len(body(ONE))
