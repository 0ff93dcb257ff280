from __future__ import annotations

import pytest

from bmqctl.client.protocol.message import Message, Properties, encode_data, subscription_ids
from formats.bmq.codes import CompressionAlgorithm
from formats.bmq.wire.options import SubQueueInfo, pack_sub_queue_ids, pack_sub_queue_infos
from formats.bmq.wire.properties import Property, PropertyType
from formats.bmq.wire.push import Push
from formats.errors import FormatError

LARGE = b"again and " * 500


def round_trip(payload: bytes, properties: Properties | None = None, *, compress: bool = False) -> Message:
    data, flags, compression, schema_id = encode_data(payload, properties, compress=compress)
    return Message.of(Push(flags & 2, 0, b"g" * 16, compression, schema_id, memoryview(b""), memoryview(data)))


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("payload", [b"", b"x", LARGE])
@pytest.mark.parametrize("properties", [None, {}, {"kind": "greeting", "n": 1 << 40, "ok": True, "raw": b"\0\xff"}])
def test_received_message_equals_the_posted_one(payload: bytes, properties: Properties | None, compress: bool) -> None:
    message = round_trip(payload, properties, compress=compress)
    assert message.payload == payload
    assert message.properties == (properties or {})


def test_only_what_gains_is_compressed() -> None:
    assert encode_data(LARGE, None, compress=True)[2] is CompressionAlgorithm.ZLIB
    assert encode_data(LARGE[:1000], None, compress=True)[2] is CompressionAlgorithm.NONE
    assert encode_data(LARGE, None, compress=False)[2] is CompressionAlgorithm.NONE


def test_values_get_the_types_of_the_official_sdk() -> None:
    message = round_trip(b"x", {"a": True, "b": 1, "c": "s", "d": b"s"})
    assert [each.type for each in message.typed_properties] == [
        PropertyType.BOOL,
        PropertyType.INT64,
        PropertyType.STRING,
        PropertyType.BINARY,
    ]


def test_types_may_be_chosen() -> None:
    chosen = [Property("n", PropertyType.INT32, 5), Property("c", PropertyType.CHAR, b"x")]
    assert sorted(round_trip(b"x", chosen).typed_properties) == sorted(chosen)


def test_values_that_no_property_holds() -> None:
    with pytest.raises(ValueError, match="float"):
        encode_data(b"x", {"a": 1.5}, compress=False)  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="does not fit"):
        encode_data(b"x", {"a": 1 << 63}, compress=False)


def test_a_damaged_message_is_found_when_it_is_read() -> None:
    message = Message.of(Push(0, 0, b"g" * 16, 1, 0, memoryview(b""), memoryview(b"no zlib")))
    assert message.guid == b"g" * 16
    with pytest.raises(FormatError):
        _ = message.payload


def test_subscriptions_are_read_from_either_option() -> None:
    assert list(subscription_ids(memoryview(pack_sub_queue_ids([7])))) == [7]
    assert list(subscription_ids(memoryview(pack_sub_queue_ids([7, 8])))) == [7, 8]
    assert list(subscription_ids(memoryview(pack_sub_queue_infos([SubQueueInfo(9, 3)])))) == [9]
    assert list(subscription_ids(memoryview(b""))) == []
