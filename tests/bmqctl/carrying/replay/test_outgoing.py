"""Stored messages as they go out to either system."""

from __future__ import annotations

import pytest

from bmqctl.carrying.bridge.mapping import ROCKETMQ_PROPERTIES_SIZE_MAX
from bmqctl.carrying.replay.messages import StoredMessage, StoredRecord
from bmqctl.carrying.replay.outgoing import Unfit, for_blazingmq, for_rocketmq
from bmqctl.carrying.replay.progress import replay_unique_id
from formats.bmq.wire.properties import Property, PropertyType
from formats.rocketmq.message_ids import UniqueId
from formats.rocketmq.properties import decode_properties, encode_properties
from tests.bmqctl.carrying.replay.stores import guid
from tests.bmqctl.stores.rocketmq.logs import message

UNIQUE_ID = f"{77:032X}"


def record(number: int = 3, **more: object) -> StoredRecord:
    made = message(number, offset=640, **more)
    return StoredRecord(made, made.topic, made.queue_id, False)


def test_a_copy_in_rocketmq_has_what_the_application_gave() -> None:
    found = record(properties={"region": "eu", "__SHARDINGKEY": "s", "MIN_OFFSET": "0", "WAIT": "true", "DELAY": "3"})
    made = for_rocketmq(found, UNIQUE_ID)
    assert (made.flag, made.body) == (3, b"body 3")
    properties = decode_properties(made.properties)
    marks = {
        "rocketmq_queue": "orders/10.0.0.1:10911/3",
        "rocketmq_offset": "0",
        "rocketmq_id": f"{3:032X}",
        "replay_time": "1795400003",
    }
    kept = {"KEYS": "k3", "TAGS": "paid", "region": "eu", "__SHARDINGKEY": "s"}
    assert properties == {"UNIQ_KEY": UNIQUE_ID, **kept, **marks}
    # One that waits goes out with its delay; marks that are there stay.
    again = found._replace(record=found.record._replace(properties=made.properties), delay_level=4)
    assert decode_properties(for_rocketmq(again, "0" * 32).properties) == {
        **properties,
        "UNIQ_KEY": "0" * 32,
        "DELAY": "4",
    }


def test_a_message_without_a_unique_id_is_known_by_its_place() -> None:
    plain = record()
    plain = plain._replace(record=plain.record._replace(properties=b""))
    assert (
        decode_properties(for_rocketmq(plain, UNIQUE_ID).properties)["rocketmq_id"]
        == "0A00000100002A9F" + f"{640:016X}"
    )
    damaged = plain._replace(record=plain.record._replace(store_host=b"\xff" * 8))
    assert decode_properties(for_rocketmq(damaged, UNIQUE_ID).properties)["rocketmq_queue"] == f"orders/{'FF' * 8}/3"


def test_properties_that_are_too_large_are_unfit() -> None:
    room = ROCKETMQ_PROPERTIES_SIZE_MAX - len(for_rocketmq(record(properties={"p": "x"}), UNIQUE_ID).properties) + 1
    assert len(for_rocketmq(record(properties={"p": "x" * room}), UNIQUE_ID).properties) == ROCKETMQ_PROPERTIES_SIZE_MAX
    with pytest.raises(Unfit, match=f"properties of {ROCKETMQ_PROPERTIES_SIZE_MAX + 1} bytes"):
        for_rocketmq(record(properties={"p": "x" * (room + 1)}), UNIQUE_ID)


def test_from_one_system_to_the_other_and_back() -> None:
    found = for_blazingmq(record(properties={"region": "eu"}))
    assert (found.payload, found.compress) == (b"body 3", False)
    assert {each.name: each.value for each in found.properties} == {
        "KEYS": "k3",
        "TAGS": "paid",
        "region": "eu",
        "rocketmq_id": f"{3:032X}",
        "rocketmq_queue": "orders/10.0.0.1:10911/3",
        "rocketmq_offset": 0,
        "rocketmq_flag": 3,
        "replay_time": 1_795_400_003,
    }
    stored = StoredMessage(bytes.fromhex(guid(1)), 9, found.properties, found.payload, False)
    back = for_rocketmq(stored, UNIQUE_ID)
    assert (back.flag, back.body) == (3, b"body 3")
    properties = decode_properties(back.properties)
    assert properties["bmq_guid"] == guid(1)
    assert {name: properties[name] for name in ("KEYS", "TAGS", "region", "replay_time")} == {
        "KEYS": "k3",
        "TAGS": "paid",
        "region": "eu",
        "replay_time": "1795400003",
    }
    again = record()
    again = again._replace(record=again.record._replace(properties=back.properties, flag=back.flag))
    typed = {each.name: each for each in for_blazingmq(again).properties}
    assert [typed[each.name] for each in found.properties] == found.properties


def test_typed_properties_keep_their_types() -> None:
    properties = [
        Property("n", PropertyType.INT32, -5),
        Property("raw", PropertyType.BINARY, b"\0\xff"),
        Property("yes", PropertyType.BOOL, True),
        Property("TAGS", PropertyType.STRING, "paid"),
        Property("DELAY", PropertyType.STRING, "3"),
    ]
    made = for_rocketmq(StoredMessage(bytes.fromhex(guid(2)), 9, properties, b"p", False), UNIQUE_ID)
    there = decode_properties(made.properties)
    assert (there["n"], there["yes"], there["TAGS"], "DELAY" in there) == ("-5", "true", "paid", False)
    back = record()
    back = back._replace(record=back.record._replace(properties=encode_properties(there)))
    typed = {each.name: each for each in for_blazingmq(back).properties}
    assert [typed[each.name] for each in properties] == properties


def test_unique_ids_are_those_of_one_replay() -> None:
    seed = bytes(range(200, 206))
    made = [replay_unique_id(seed, number) for number in (0, 1, 65_535, 65_536, 1 << 40)]
    assert len(set(made)) == len(made)
    assert UniqueId.parse(made[3]) == UniqueId("200.201.202.203", 204 << 8 | 205, 1, 0, 0)
