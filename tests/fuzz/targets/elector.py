"""Any bytes as an ELECTOR event's message, in BER or JSON, are refused, or are a message that both encodings carry.

The first byte says which encoding: bit 0 is JSON.
"""

from __future__ import annotations

from typing import Any

from formats.bmq.codes import EventType
from formats.bmq.control.messages import ElectorMessage
from tests.fuzz.schema_messages import decode_schema, schema_seeds, schema_words, verify_schema
from tests.fuzz.seeds import bodies

__all__ = ["decode", "seeds", "verify", "words"]


def decode(data: bytes) -> Any:
    return decode_schema(ElectorMessage, data)


def verify(data: bytes, message: Any) -> None:
    verify_schema(message)


def seeds() -> list[bytes]:
    return schema_seeds(ElectorMessage, bodies(EventType.ELECTOR), 0)


def words() -> list[bytes]:
    return schema_words(ElectorMessage)
