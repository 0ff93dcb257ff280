"""Received messages, and the encoding of posted ones."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from formats.bmq.codes import CompressionAlgorithm
from formats.bmq.padding import WORD
from formats.bmq.wire.application_data import ApplicationData, build_application_data, split_application_data
from formats.bmq.wire.options import OptionType, sub_queue_infos
from formats.bmq.wire.properties import Property, PropertyType, PropertyValue, decode_properties, encode_properties
from formats.bmq.wire.push import PUSH_HEADER, Push, PushFlag
from formats.bmq.wire.put import PutFlag
from formats.schema import Buffer

__all__ = ["Message", "Properties", "encode_data", "subscription_ids"]

# By name, with the types that the official SDK gives to Python's values, or with explicit types; or an area in the
# newer encoding, without a schema.
Properties = Mapping[str, PropertyValue] | Sequence[Property] | bytes

# The newer encoding without a schema id: each message's properties are read on their own.
_NO_SCHEMA: Final = 1
_ONE_ID: Final = OptionType.SUB_QUEUE_IDS_OLD << 26 | 2
# As plain numbers: a flag's own operators cost more than the rest of a message.
_HAS_PROPERTIES: Final = int(PushFlag.MESSAGE_PROPERTIES)
_two_words = struct.Struct(">II").unpack
_TYPES: Final = {
    bool: PropertyType.BOOL,
    int: PropertyType.INT64,
    str: PropertyType.STRING,
    bytes: PropertyType.BINARY,
}


class Message:
    """One received message. Contents are decoded on access, which is when `FormatError` may be raised."""

    __slots__ = ("_parts_found", "_push", "subscription_id")

    def __init__(self, push: Push, subscription_id: int = 0) -> None:
        """`subscription_id` is the subscription of its queue that the message is for."""
        self._push = push
        self._parts_found: ApplicationData | None = None
        self.subscription_id = subscription_id

    @property
    def guid(self) -> bytes:
        """16 bytes, the same for every app of a fan-out queue."""
        return self._push.guid

    @property
    def wire_size(self) -> int:
        """Size of the message in its event, in bytes."""
        push = self._push
        return PUSH_HEADER.size + len(push.options) + (len(push.data) // WORD + 1) * WORD

    @property
    def compression(self) -> int:
        """Compression of the payload in transit: a `CompressionAlgorithm`, or the broker's number if unknown."""
        return self._push.compression

    @property
    def payload(self) -> bytes:
        """The payload, decompressed."""
        push = self._push
        if not push.compression and not push.flags & _HAS_PROPERTIES:
            return bytes(push.data)
        return bytes(self._parts.payload)

    @property
    def properties(self) -> dict[str, PropertyValue]:
        """The properties by name."""
        return {each.name: each.value for each in self.typed_properties}

    @property
    def typed_properties(self) -> list[Property]:
        """The properties with the types that they were posted with."""
        area = self._parts.properties
        return decode_properties(area, self._push.schema_id) if area else []

    @property
    def _parts(self) -> ApplicationData:
        if self._parts_found is None:
            push = self._push
            has_properties = bool(push.flags & _HAS_PROPERTIES)
            self._parts_found = split_application_data(push.data, has_properties, push.schema_id, push.compression)
        return self._parts_found


def encode_data(payload: Buffer, properties: Properties | None, *, compress: bool) -> tuple[Buffer, int, int, int]:
    """Return data, flags, compression and schema id of a PUT message. `ValueError` if a property cannot be encoded."""
    if not properties and not compress:
        return payload, PutFlag.ACK_REQUESTED, CompressionAlgorithm.NONE, 0
    wanted = CompressionAlgorithm.ZLIB if compress else CompressionAlgorithm.NONE
    if not properties:
        data, used = build_application_data(b"", payload, 0, wanted)
        return data, PutFlag.ACK_REQUESTED, used, 0
    area = properties if isinstance(properties, bytes) else encode_properties(_typed(properties), _NO_SCHEMA)
    data, used = build_application_data(area, payload, _NO_SCHEMA, wanted)
    return data, PutFlag.ACK_REQUESTED | PutFlag.MESSAGE_PROPERTIES, used, _NO_SCHEMA


def _typed(properties: Mapping[str, PropertyValue] | Sequence[Property]) -> Sequence[Property]:
    if not isinstance(properties, Mapping):
        return properties
    try:
        return [Property(name, _TYPES[type(value)], value) for name, value in properties.items()]
    except KeyError as fault:
        raise ValueError(f"a property cannot hold a {fault.args[0].__name__}") from None


def subscription_ids(options: memoryview) -> Sequence[int]:
    """Return the client's subscriptions that a pushed message is for."""
    if len(options) == 8:
        header, subscription_id = _two_words(options)
        if header == _ONE_ID:
            return (subscription_id,)
    return [info.sub_queue_id for info in sub_queue_infos(options)]
