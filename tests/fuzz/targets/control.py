"""Any bytes as a CONTROL event's message, in BER or JSON, are refused, or are a message that both encodings carry.

The first byte selects: bit 0 JSON, bit 1 the message that opens a connection.
"""

from __future__ import annotations

from typing import Any

from formats.bmq.codes import EventType
from formats.bmq.control.messages import ControlMessage, NegotiationMessage
from tests.fuzz.schema_messages import decode_schema, schema_seeds, schema_words, verify_schema
from tests.fuzz.seeds import bodies

__all__ = ["decode", "seeds", "verify", "words"]


# JSON that the recorded messages lack: some of it is refused.
ODD_JSON = (
    b'{"rId":"12","disconnect":{"later":[1.5,null,"\\ud83d\\ude00"]}}',
    b'{"rId":null,"status":{"category":-2,"code":"-7","message":"\\ud800"}}',
    b'{"rId":NaN}',
    b'{"rId":-1e400}',
    b'{"clusterMessage":{"leaderAdvisory":{"queues":{}}}}',
    b'{"clusterMessage":{"queueUnassignmentRequest":{"queueKey":"?"}}}',
    b'{"a":' + b"[" * 1100,
)


def decode(data: bytes) -> Any:
    return decode_schema(NegotiationMessage if data[:1] and data[0] & 2 else ControlMessage, data)


def verify(data: bytes, message: Any) -> None:
    verify_schema(message)


def seeds() -> list[bytes]:
    opening = schema_seeds(NegotiationMessage, bodies(EventType.CONTROL, opening=True), 2)
    later = schema_seeds(ControlMessage, bodies(EventType.CONTROL, opening=False), 0)
    return [*opening, *later, *(b"\1" + json for json in ODD_JSON)]


def words() -> list[bytes]:
    return schema_words(ControlMessage, NegotiationMessage)
