"""Socket addresses as RocketMQ stores them: 4 or 16 bytes of address, then the port in 4."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import NamedTuple

from formats.errors import FormatError
from formats.rocketmq.numbers import read_digits

__all__ = ["HOST_V4_BYTES", "HOST_V6_BYTES", "Host", "split_address"]

HOST_V4_BYTES = 8
HOST_V6_BYTES = 20
_PORT_MAX = 0xFFFF
_PORT_DIGITS = 5


class Host(NamedTuple):
    """An IP address in its text form, and a port."""

    address: str
    port: int

    @classmethod
    def unpack(cls, data: bytes, offset: int = 0) -> Host:
        """Read a host from all of `data`, 8 or 20 bytes; an error gives `offset` as its place."""
        if len(data) not in (HOST_V4_BYTES, HOST_V6_BYTES):
            raise FormatError("Host", offset, f"has {len(data)} bytes, neither 8 nor 20")
        port = int.from_bytes(data[-4:], "big")
        if port > _PORT_MAX:
            raise FormatError("Host.port", offset + len(data) - 4, f"{port} is no port")
        return cls(str(ipaddress.ip_address(bytes(data[:-4]))), port)

    def pack(self) -> bytes:
        return _packed(self.address) + self.port.to_bytes(4, "big")

    @property
    def is_v6(self) -> bool:
        return ":" in self.address

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if self.is_v6 else f"{self.address}:{self.port}"


def split_address(text: str) -> tuple[str, int] | None:
    """Split HOST:PORT, where the host is a name or an address, optionally in brackets; None for other texts."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    number = read_digits(port, _PORT_MAX) if len(port) <= _PORT_DIGITS else None
    return (host, number) if host and number else None


@lru_cache(maxsize=4096)
def _packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed
