"""Ids of messages (source: MessageDecoder.createMessageId, MessageClientIDSetter, MessageIdCodec).

The broker makes the offset id of its address and the message's place in its commit log. The client makes the unique id
of its address, process, class loader, the time since the month began, and a counter. Both are upper-case hexadecimal.
Clients of version 5 make unique ids of another form, which begin with their version.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from formats.errors import FormatError
from formats.rocketmq.hosts import Host

__all__ = ["ClientId", "OffsetId", "UniqueId"]

_V4_BYTES = 16
_V6_BYTES = 28
_VERSION_1 = b"\x01"
_VERSION_1_BYTES = 17
# The start of 2021, the epoch of ids of version 1.
_EPOCH_S = 1_609_459_200


def _unhex(kind: str, text: str) -> bytes:
    if len(text) not in (2 * _V4_BYTES, 2 * _V6_BYTES):
        raise FormatError(kind, 0, f"has {len(text)} characters, neither 32 nor 56")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise FormatError(kind, 0, f"{text!r} is not hexadecimal") from None


class OffsetId(NamedTuple):
    """The broker that stores a message, and the offset of its record."""

    host: Host
    physical_offset: int

    @classmethod
    def parse(cls, text: str) -> OffsetId:
        """Read an id of 32 characters, or 56 with an IPv6 address."""
        data = _unhex("OffsetId", text)
        return cls(Host.unpack(data[:-8]), int.from_bytes(data[-8:], "big", signed=True))

    def __str__(self) -> str:
        return (self.host.pack() + self.physical_offset.to_bytes(8, "big", signed=True)).hex().upper()


class UniqueId(NamedTuple):
    """The origin of a message; `month_ms` is the time since the start of the month, in the client's time zone."""

    address: str
    pid: int
    loader_hash: int
    month_ms: int
    counter: int

    @classmethod
    def parse(cls, text: str) -> UniqueId:
        data = _unhex("UniqueId", text)
        rest = data[-12:]
        return cls(
            str(ipaddress.ip_address(data[:-12])),
            int.from_bytes(rest[:2], "big"),
            int.from_bytes(rest[2:6], "big"),
            int.from_bytes(rest[6:10], "big"),
            int.from_bytes(rest[10:], "big"),
        )

    def __str__(self) -> str:
        address = ipaddress.ip_address(self.address).packed
        rest = (self.pid, 2), (self.loader_hash, 4), (self.month_ms, 4), (self.counter, 2)
        return (address + b"".join(number.to_bytes(width, "big") for number, width in rest)).hex().upper()


class ClientId(NamedTuple):
    """A unique id of version 1: the client's network address and process, the time in seconds, and a counter.

    `seconds` counts from the start of 2021, UTC.
    """

    mac: bytes
    pid: int
    seconds: int
    counter: int

    @classmethod
    def parse(cls, text: str) -> ClientId:
        """Read an id of 34 characters."""
        try:
            data = bytes.fromhex(text) if len(text) == 2 * _VERSION_1_BYTES else b""
        except ValueError:
            raise FormatError("ClientId", 0, f"{text!r} is not hexadecimal") from None
        if len(data) != _VERSION_1_BYTES or data[:1] != _VERSION_1:
            raise FormatError("ClientId", 0, f"{text[:40]!r} is no id of version 1: 34 digits that begin with 01")
        pid, seconds, counter = (int.from_bytes(piece, "big") for piece in (data[7:9], data[9:13], data[13:]))
        return cls(data[1:7], pid, seconds, counter)

    def __str__(self) -> str:
        rest = ((self.pid, 2), (self.seconds, 4), (self.counter, 4))
        packed = _VERSION_1 + self.mac + b"".join(number.to_bytes(width, "big") for number, width in rest)
        return packed.hex().upper()

    @property
    def made_s(self) -> int:
        """The time of its making, in seconds since 1970."""
        return _EPOCH_S + self.seconds
