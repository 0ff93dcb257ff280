"""Messages as they go to a queue or a topic of the system that they are from."""

from __future__ import annotations

from typing import Any

import pytest

from bmqctl.carrying.bridge.mapping import Unfit
from bmqctl.carrying.moving.forms import for_other_queue, for_other_topic, for_queue_of_run
from bmqctl.client.protocol.message import Message
from formats.bmq.wire.properties import Property, PropertyType, decode_properties
from formats.rocketmq.files.record import Magic, Record
from formats.rocketmq.properties import decode_properties as decode_texts

PLACE = b"\x7f\0\0\1\0\0\0\0"
SALT = bytes(16)


class Delivered:
    """A message of a queue."""

    def __init__(self, payload: bytes, guid: bytes = bytes(range(16))) -> None:
        self.payload = payload
        self.guid = guid


def delivered(payload: bytes, guid: bytes = bytes(range(16))) -> Message:
    found: Any = Delivered(payload, guid)
    return found  # type: ignore[no-any-return]


def record(flag: int = 0, **properties: str) -> Record:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    return Record(Magic.V1, 0, 3, flag, 17, 4711, 0, 1, PLACE, 2, PLACE, 0, 0, b"body", "t", text)


def test_a_message_of_a_queue_keeps_payload_and_typed_properties() -> None:
    properties = [Property("n", PropertyType.INT32, -7), Property("raw", PropertyType.BINARY, b"\0\xff")]
    (encoded, _), size, _ = for_other_queue("bmq://a/b")(delivered(b"\0payload"), properties)
    assert encoded.payload == b"\0payload"
    assert decode_properties(encoded.area, 1) == properties
    assert size == 8 + len(encoded.area)
    assert for_other_queue("bmq://a/b")(delivered(b"x"), []).message.encoded == (b"x", b"")


def test_guids_are_those_of_the_message_and_of_the_run() -> None:
    def guid(uri: str = "bmq://a/b", salt: bytes = b"", number: int = 0, renewals: int = 0) -> bytes:
        made: bytes = for_other_queue(uri, salt)(delivered(b"x", bytes([number]) * 16), []).message.guid(renewals)
        return made

    assert guid() == guid()
    others = {guid(), guid("bmq://a/c"), guid(salt=SALT), guid(number=1), guid(renewals=1)}
    assert len(others) == 5
    assert all(len(each) == 16 and each[0] >> 6 == 1 for each in others)

    made, again = (for_queue_of_run(salt)(record(), "b").message.guid for salt in (SALT, b"1" * 16))
    assert made(0) != again(0)
    assert made(0) == made(0) != made(1)


def test_a_message_of_a_topic_keeps_what_the_application_gave_it_and_its_id() -> None:
    given = {"UNIQ_KEY": "ID", "TAGS": "paid", "KEYS": "a b", "__SHARDINGKEY": "k", "own": "1"}
    made, size, is_alone = for_other_topic()(record(5, **given, DELAY="3", RETRY_TOPIC="t", WAIT="true"), "b")
    assert (made.flag, made.body) == (5, b"body")
    assert decode_texts(made.properties) == given
    assert size == 4 + len(made.properties)
    assert not is_alone
    # One without an id gets one.
    first, second = (decode_texts(for_other_topic()(record(), "b").message.properties)["UNIQ_KEY"] for _ in range(2))
    assert first != second


@pytest.mark.parametrize("flags", [1, 1 | 1 << 8, 1 | 2 << 8, 1 | 3 << 8, 1 | 7 << 8])
def test_a_body_that_is_compressed_is_not_read_for_another_topic(flags: int) -> None:
    packed = record()._replace(body=b"\x04\x22\x4d\x18no frame", system_flags=flags | 1 << 4)
    made, size, is_alone = for_other_topic()(packed, "b")
    assert (made.body, made.system_flags, is_alone) == (packed.body, flags, True)
    assert size == len(made.body) + len(made.properties)


def test_a_batch_that_is_stored_as_one_message_is_unfit() -> None:
    with pytest.raises(Unfit, match="a batch that is stored as one message"):
        for_other_topic()(record()._replace(system_flags=1 << 7), "b")


def test_message_that_the_other_system_cannot_hold_is_unfit() -> None:
    with pytest.raises(Unfit, match="RocketMQ takes 32767"):
        for_other_topic()(record(own="x" * 40_000), "b")
    too_many = [Property(f"p{at}", PropertyType.BOOL, True) for at in range(256)]
    with pytest.raises(Unfit, match="properties"):
        for_other_queue("bmq://a/b")(delivered(b"x"), too_many)
