"""`broker.bmq.core.packed`: packed messages are the same when they are unpacked."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.bmq.core.messages import Message
from broker.bmq.core.packed import Packed, producers_to_pack
from tests.families import examples

NAMES = (
    "guid",
    "size",
    "checksum",
    "compression",
    "has_properties",
    "schema_id",
    "outstanding",
    "arrived_ms",
    "sent_ms",
    "offset",
    "payload",
)


def make(
    guid: bytes,
    size: int,
    checksum: int,
    compression: int,
    has_properties: bool,
    schema_id: int,
    outstanding: int,
    arrived_ms: int,
    sent_ms: int,
    offset: int,
    payload: bytes | None,
) -> Message:
    message = Message(guid, size, checksum, compression, has_properties, schema_id, outstanding, arrived_ms)
    message.sent_ms, message.offset, message.payload = sent_ms, offset, payload
    return message


def numbers(greatest: int, least: int = 0) -> st.SearchStrategy[int]:
    """Return numbers that are often alike, and sometimes far apart."""
    return st.one_of(st.just(least), st.integers(least, least + 300), st.integers(least, greatest))


MESSAGES = st.lists(
    st.builds(
        make,
        st.binary(min_size=16, max_size=16),
        numbers(1 << 30),
        numbers((1 << 32) - 1),
        st.integers(0, 1),
        st.booleans(),
        numbers(1 << 15, -(1 << 15)),
        st.one_of(st.just(1), st.integers(1, 1 << 70)),
        numbers(1 << 50, -(1 << 40)),
        numbers(1 << 50, -(1 << 40)),
        numbers(1 << 70, -1),
        st.one_of(st.none(), st.binary(max_size=3)),
    ),
    min_size=1,
    max_size=12,
)


def fields(message: Message) -> list[object]:
    return [getattr(message, name) for name in NAMES]


@settings(max_examples=examples(200), deadline=None)
@given(MESSAGES)
def test_unpacking_reverses_packing(messages: list[Message]) -> None:
    packed = Packed(messages)
    assert list(map(fields, packed.unpack())) == list(map(fields, messages))
    assert packed.guids == [each.guid for each in messages]
    assert (packed.count, packed.first_arrived_ms) == (len(messages), messages[0].arrived_ms)
    for bits in (1, 3, 1 << 69, -1):
        assert packed.count_of(bits) == sum(1 for each in messages if each.outstanding & bits)


def of(producer: int, ticks: int) -> Message:
    return make(bytes(3) + ticks.to_bytes(7, "big") + producer.to_bytes(6, "big"), 1, 1, 0, False, 0, 1, 0, 0, 0, None)


def test_a_message_is_found_by_its_guid() -> None:
    messages = [of(1, 10), of(2, 7), of(1, 12), of(1, 11), of(2, 9), of(1, 20), of(2, 11), of(2, 8)]
    assert producers_to_pack(messages) == {
        bytes(5) + b"\x01": (of(1, 10).guid[3:10], of(1, 20).guid[3:10]),
        bytes(5) + b"\x02": (of(2, 7).guid[3:10], of(2, 11).guid[3:10]),
    }
    packed = Packed(messages)
    assert all(packed.has(each.guid) for each in messages)
    others = [of(1, 9), of(1, 13), of(1, 21), of(2, 10), of(2, 6), of(2, 12), of(3, 10)]
    assert not any(packed.has(each.guid) for each in others)


def test_bytes_across_two_guids_are_no_guid() -> None:
    """Sixteen bytes may be in the row of GUIDs at a place where none begins."""
    messages = [of(0, 0), of(0, 0x0100_0000), of(0, 2), of(0, 3)]
    packed = Packed(messages)
    row = b"".join(packed.guids)
    wrong = [row[at : at + 16] for at in range(len(row) - 15) if at % 16]
    assert any(each[10:] == bytes(6) for each in wrong)
    known = {each.guid for each in messages}
    for each in wrong:
        assert packed.has(each) is (each in known)


def test_messages_of_too_many_producers_are_not_to_be_packed() -> None:
    assert producers_to_pack([of(number, number) for number in range(11)]) is None
    found = producers_to_pack([of(number, number) for number in range(10)])
    assert found is not None
    assert len(found) == 10
