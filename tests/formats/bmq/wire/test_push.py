from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.bmq.codes import CompressionAlgorithm, PushFlag
from formats.bmq.wire.options import SubQueueInfo, pack_sub_queue_ids, pack_sub_queue_infos
from formats.bmq.wire.push import (
    PUSH_HEADER,
    PUSH_TO_ONE,
    Push,
    append_push,
    append_push_with_options,
    iter_pushes,
    pushes_to_one,
)
from formats.bmq.wire.rda import UNLIMITED
from formats.errors import FormatError

GUID = bytes(range(16))
EMPTY = memoryview(b"")
ids = st.integers(0, (1 << 32) - 1)
infos = st.lists(st.tuples(ids, st.integers(0, 255)).map(lambda pair: SubQueueInfo(*pair)), max_size=4)
pushes = st.builds(
    Push,
    st.sampled_from([0, 2, 4, 6]),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.binary(min_size=16, max_size=16),
    st.sampled_from(CompressionAlgorithm),
    st.integers(0, 0xFFFF),
    infos.map(pack_sub_queue_infos).map(memoryview),
    st.binary(min_size=1, max_size=40).map(memoryview),
)


def body(*messages: Push) -> bytearray:
    out = bytearray()
    for each in messages:
        append_push_with_options(
            out,
            each.queue_id,
            each.guid,
            each.options,
            each.data,
            each.flags,
            each.compression,
            each.schema_id,
        )
    return out


def parsed(data: bytes | bytearray) -> list[Push]:
    return list(iter_pushes(memoryview(data), 0, len(data)))


ONE = Push(0, 7, GUID, 0, 0, memoryview(pack_sub_queue_ids([5])), memoryview(b"hello"))


@given(st.lists(pushes | pushes.map(lambda each: each._replace(flags=each.flags | 1, data=EMPTY)), max_size=4))
def test_messages_come_back(messages: list[Push]) -> None:
    assert parsed(body(*messages)) == messages


@given(pushes, ids)
def test_a_push_to_one_is_the_same_as_one_with_that_option(message: Push, subscription_id: int) -> None:
    out = bytearray()
    append_push(
        out,
        message.queue_id,
        message.guid,
        message.data,
        subscription_id,
        message.flags,
        message.compression,
        message.schema_id,
    )
    assert out == body(message._replace(options=memoryview(pack_sub_queue_ids([subscription_id]))))
    assert PUSH_TO_ONE.unpack(out).subscription_id == subscription_id


def test_the_bytes_of_a_message() -> None:
    assert body(ONE).hex(" ", 4) == (
        "0000000c 00000208 00000007 00010203 04050607 08090a0b 0c0d0e0f 00000000 04000002 00000005 68656c6c 6f030303"
    )


def test_an_implicit_payload_is_a_word_of_padding() -> None:
    options = pack_sub_queue_infos([SubQueueInfo(0, UNLIMITED)])
    data = body(Push(PushFlag.IMPLICIT_PAYLOAD, 7, GUID, 0, 0, memoryview(options), EMPTY))
    assert data[32:] == bytes.fromhex("0e000080 04040404")
    assert len(parsed(data)[0].data) == 0


def test_an_older_sender_leaves_the_schema_id_away() -> None:
    (each,) = parsed(bytes.fromhex("00000008 00000007 00000007" + "00" * 16 + "61030303"))
    assert (each.schema_id, bytes(each.data), bytes(each.options)) == (0, b"a", b"")


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"message_words": 0}, "PushHeader.message_words"),
        ({"message_words": 13}, "PushHeader.message_words"),
        ({"message_words": 9}, "PushHeader.message_words"),
        ({"message_words": 10}, "Push.padding"),
        ({"options_words": 5}, "PushHeader.message_words"),
        ({"header_words": 6}, "PushHeader.header_words"),
        ({"header_words": 31}, "PushHeader.message_words"),
        ({"compression": 7}, "PushHeader.compression"),
        ({"message_words": 0, "flags": PushFlag.IMPLICIT_PAYLOAD}, "PushHeader.message_words"),
    ],
)
def test_impossible_headers_are_refused(changes: dict[str, Any], path: str) -> None:
    data = body(ONE)
    PUSH_HEADER.pack_into(data, 0, PUSH_HEADER.unpack(data)._replace(**changes))
    with pytest.raises(FormatError) as caught:
        parsed(data)
    assert caught.value.path == path


@pytest.mark.parametrize("last", [0, 5, 255])
def test_impossible_padding_is_refused(last: int) -> None:
    data = body(ONE)
    data[-1] = last
    with pytest.raises(FormatError, match="padding"):
        parsed(data)


def test_a_cut_header_is_refused() -> None:
    with pytest.raises(FormatError, match="needs 32 bytes"):
        list(iter_pushes(memoryview(body(ONE)), 0, 31))


class ToOne(NamedTuple):
    flags: int
    guid: bytes
    compression: int
    schema_id: int
    subscription_id: int
    options_size: int
    data: bytes


to_some = st.builds(
    Push,
    st.sampled_from([0, 1, 2, 3]),
    st.integers(0, 9),
    st.binary(min_size=16, max_size=16),
    st.sampled_from(CompressionAlgorithm),
    st.integers(0, 0xFFFF),
    st.one_of(
        st.sampled_from([pack_sub_queue_ids([5]), pack_sub_queue_ids([5]), pack_sub_queue_ids([6])]),
        infos.map(pack_sub_queue_infos),
        st.sampled_from([b"", pack_sub_queue_ids([5, 6])]),
    ).map(memoryview),
    st.binary(min_size=1, max_size=9).map(memoryview),
)


@given(st.lists(to_some, max_size=6))
def test_the_first_messages_for_one_subscription_are_those_of_all(messages: list[Push]) -> None:
    messages = [each._replace(data=EMPTY) if each.flags & PushFlag.IMPLICIT_PAYLOAD else each for each in messages]
    data = bytes(body(*messages))
    found, end = pushes_to_one(data, 0, len(data), ToOne)
    whole = parsed(data)
    for one, push in zip(found, whole, strict=False):
        assert one[:4] == (push.flags, push.guid, push.compression, push.schema_id)
        assert bytes(push.options) == pack_sub_queue_ids([one.subscription_id])
        assert (one.options_size, one.data) == (len(push.options), bytes(push.data))
    rest = list(iter_pushes(memoryview(data), end, len(data)))
    assert len(found) + len(rest) == len(whole)
    assert len({one.subscription_id for one in found}) <= 1
    if rest and not rest[0].flags & PushFlag.IMPLICIT_PAYLOAD:
        first = found[0].subscription_id if found else 5
        assert bytes(rest[0].options) != pack_sub_queue_ids([first])


@given(st.lists(st.just(ONE), max_size=3), st.data())
def test_malformed_rest_of_an_event_is_left(messages: list[Push], draw: st.DataObject) -> None:
    data = body(*messages, ONE)
    at = draw.draw(st.integers(0, len(data) - 1))
    data[at] ^= 1 << draw.draw(st.integers(0, 7))
    found, end = pushes_to_one(bytes(data), 0, len(data), ToOne)
    assert end <= len(data)
    try:
        whole = parsed(data)
    except FormatError:
        with pytest.raises(FormatError):
            list(iter_pushes(memoryview(data), end, len(data)))
    else:
        assert [one.data for one in found] == [bytes(push.data) for push in whole[: len(found)]]


def test_a_word_of_an_event_is_no_message() -> None:
    data = bytes(body(ONE, ONE))
    for end in range(len(data)):
        found, at = pushes_to_one(data, 0, end, ToOne)
        assert (len(found), at) == (end // (len(data) // 2), end // (len(data) // 2) * (len(data) // 2))
