"""Messages of a queue or a topic for another one of the same system; bridges map them between the systems.

A message keeps its payload and properties; from topic to topic a compressed payload stays so. In a topic a message
keeps its unique id, which identifies a repeated message. In a queue it gets another GUID, made of its identity at the
source, so that the broker drops a repeated one within its domain's `deduplicationTimeMs`. A salt makes these GUIDs
specific to one run: a second copy is a second message.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

from bmqctl.carrying.bridge.blazingmq_ends import Made, Make, ToPost
from bmqctl.carrying.bridge.encoding import Encoded
from bmqctl.carrying.bridge.mapping import Unfit, message_for_topic, stored_body_of
from bmqctl.carrying.bridge.names import UNIQUE_KEY, is_system_name
from bmqctl.carrying.bridge.rocketmq_source import MakeOfRecord, for_queue
from bmqctl.client.protocol.message import Message
from bmqctl.client.remoting.sending import UniqueIds
from formats.bmq.guid import GUID_VERSION
from formats.bmq.wire.properties import Property, encode_properties
from formats.rocketmq.files.record import Record
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.batch import CompressedMessage

__all__ = ["for_other_queue", "for_other_topic", "for_queue_of_run"]

_NEWER_ENCODING: Final = 1


def for_other_queue(uri: str, salt: bytes = b"") -> Make:
    def make(message: Message, properties: list[Property]) -> Made:
        payload = message.payload
        try:
            area = encode_properties(properties, _NEWER_ENCODING) if properties else b""
        except ValueError as fault:
            raise Unfit(str(fault)) from None
        guid_of = partial(_guid, salt, uri.encode() + message.guid)
        return Made(ToPost(Encoded(payload, area), guid_of), len(payload) + len(area))

    return make


def for_queue_of_run(salt: bytes) -> MakeOfRecord:
    """Make a converter of a topic's messages for a queue; they repeat none of another run."""

    def make(record: Record, broker_name: str) -> Made:
        (encoded, guid_of), size, _ = for_queue(record, broker_name)
        return Made(ToPost(encoded, lambda renewals: _guid(salt, guid_of(renewals), 0)), size)

    return make


def for_other_topic(more: Mapping[str, str] = MappingProxyType({})) -> MakeOfRecord:
    """Make a converter of a topic's messages for another topic, which adds the properties `more`."""
    ids = UniqueIds()

    def make(record: Record, broker_name: str) -> Made:
        found = decode_properties(record.properties)
        kept = {name: text for name, text in found.items() if name and text and not is_system_name(name)}
        properties = {UNIQUE_KEY: found.get(UNIQUE_KEY) or ids.next(), **kept, **more}
        # Decoded texts have no separators, except 0x01 in values, which the original accepts.
        encoded = "".join(f"{name}\x01{text}\x02" for name, text in properties.items()).encode()
        body, flags = stored_body_of(record)
        plain = message_for_topic(record.flag, body, encoded)
        made = CompressedMessage(plain.flag, plain.body, plain.properties, flags) if flags else plain
        return Made(made, len(body) + len(encoded), is_alone=flags != 0)

    return make


def _guid(salt: bytes, origin: bytes, renewals: int) -> bytes:
    made = blake2b(origin + renewals.to_bytes(8), digest_size=16, key=salt).digest()
    return bytes((GUID_VERSION << 6 | made[0] & 0x3F,)) + made[1:]
