"""Any bytes as an AUTHENTICATION event's message, in BER or JSON, are refused, or are a message that both carry.

The first byte says which encoding: bit 0 is JSON.
"""

from __future__ import annotations

from typing import Any

from formats.bmq.control import ber
from formats.bmq.control.messages import (
    AuthenticationMessage,
    AuthenticationRequest,
    AuthenticationResponse,
    Status,
    StatusCategory,
)
from formats.bmq.padding import padding
from tests.fuzz.schema_messages import decode_schema, schema_seeds, schema_words, verify_schema

__all__ = ["decode", "seeds", "verify", "words"]


def decode(data: bytes) -> Any:
    return decode_schema(AuthenticationMessage, data)


def verify(data: bytes, message: Any) -> None:
    verify_schema(message)


def seeds() -> list[bytes]:
    """No recorded client authenticates: messages made here."""
    status = Status(category=StatusCategory.SUCCESS, code=0, message="welcome")
    written = [
        ber.encode(AuthenticationMessage(choice=choice))
        for choice in (
            AuthenticationRequest(mechanism="Basic", data=b"user:secret"),
            AuthenticationRequest(mechanism="Anonymous"),
            AuthenticationResponse(status=status, lifetime_ms=1 << 40),
            AuthenticationResponse(status=status),
        )
    ]
    return schema_seeds(AuthenticationMessage, [each + padding(len(each)) for each in written], 0)


def words() -> list[bytes]:
    return schema_words(AuthenticationMessage)
