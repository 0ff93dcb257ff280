"""Received messages, and the encoding of posted ones."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from formats.bmq.codes import CompressionAlgorithm
from formats.bmq.padding import WORD
from formats.bmq.wire.application_data import ApplicationData, build_application_data, split_application_data
from formats.bmq.wire.options import OptionType, sub_queue_infos
from formats.bmq.wire.properties import Property, PropertyType, PropertyValue, decode_properties, encode_properties
from formats.bmq.wire.push import PUSH_HEADER, Push, PushFlag
from formats.bmq.wire.put import PutFlag
from formats.schema import Buffer

__all__ = ["Message", "Properties", "encode_data", "subscription_ids"]

# By name, with the types that the official SDK gives to Python's values; with explicit types; or an area in the newer
# encoding, without a schema.
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


class _Fields(NamedTuple):
    """A message as received. `data` is properties and payload without padding; `options_size` is in bytes."""

    flags: int
    guid: bytes
    compression: int
    schema_id: int
    subscription_id: int
    options_size: int
    data: bytes


class Message(_Fields):
    """One received message, for one subscription of its queue. `guid` is the same for every app of a fan-out queue.

    `compression` is that of the payload in transit: a `CompressionAlgorithm`, or the broker's number if unknown.
    Contents are decoded on each access, which may raise `FormatError`.
    """

    # A tuple, since a consumer makes very many: nothing is made faster.
    __slots__ = ()

    @classmethod
    def of(cls, push: Push, subscription_id: int = 0) -> Message:
        """Make a message from one in an event, with a copy of its data."""
        return cls(
            push.flags,
            push.guid,
            push.compression,
            push.schema_id,
            subscription_id,
            len(push.options),
            bytes(push.data),
        )

    @property
    def wire_size(self) -> int:
        """The size of the message in its event, in bytes."""
        return PUSH_HEADER.size + self.options_size + (len(self.data) // WORD + 1) * WORD

    @property
    def is_plain(self) -> bool:
        """True if the payload is all of `data`."""
        return not self.compression and not self.flags & _HAS_PROPERTIES

    @property
    def payload(self) -> bytes:
        return self.data if self.is_plain else bytes(self.split().payload)

    @property
    def properties(self) -> dict[str, PropertyValue]:
        return {each.name: each.value for each in self.typed_properties}

    @property
    def typed_properties(self) -> list[Property]:
        return self.properties_of(self.split())

    def split(self) -> ApplicationData:
        has_properties = bool(self.flags & _HAS_PROPERTIES)
        return split_application_data(memoryview(self.data), has_properties, self.schema_id, self.compression)

    def properties_of(self, parts: ApplicationData) -> list[Property]:
        return decode_properties(memoryview(parts.properties), self.schema_id) if parts.properties else []


def encode_data(payload: Buffer, properties: Properties | None, *, compress: bool) -> tuple[Buffer, int, int, int]:
    """Return data, flags, compression and schema id of a PUT. Raises `ValueError` if a property cannot be encoded."""
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
        if not all(isinstance(each, Property) for each in properties):
            raise ValueError("properties: expected a mapping by name, or objects of Property")
        return properties
    if not all(isinstance(name, str) for name in properties):
        raise ValueError("properties: expected names that are texts")
    try:
        return [Property(name, _TYPES[type(value)], value) for name, value in properties.items()]
    except KeyError as fault:
        raise ValueError(f"a property cannot hold a {fault.args[0].__name__}") from None


def subscription_ids(options: memoryview) -> Sequence[int]:
    if len(options) == 8:
        header, subscription_id = _two_words(options)
        if header == _ONE_ID:
            return (subscription_id,)
    return [info.sub_queue_id for info in sub_queue_infos(options)]
