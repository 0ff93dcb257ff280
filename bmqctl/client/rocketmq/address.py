"""Addresses of RocketMQ's nameservers as users write them."""

from __future__ import annotations

from typing import Final

from bmqctl.client.address import BadAddress
from formats.rocketmq.hosts import split_address

__all__ = ["SCHEME", "parse_nameservers"]

SCHEME: Final = "rocketmq://"
_NAMESERVERS_MAX: Final = 64


def parse_nameservers(uri: str) -> list[str]:
    """Parse `rocketmq://HOST:PORT[,HOST:PORT...]` into addresses. Raises `BadAddress`, a `ValueError`."""
    text = uri.removeprefix(SCHEME).removesuffix("/")
    addresses = [each.strip() for each in text.replace(";", ",").split(",")]
    if not uri.startswith(SCHEME) or not all(map(split_address, addresses)) or len(addresses) > _NAMESERVERS_MAX:
        raise BadAddress(f"'{uri[:200]}' does not name nameservers: expected rocketmq://HOST:PORT[,HOST:PORT...]")
    return addresses
