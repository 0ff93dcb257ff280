"""Addresses of brokers as users write them."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["BadAddress", "parse_address"]


class BadAddress(ValueError):
    """Text that is not the address of a broker."""


def parse_address(text: str) -> tuple[str, int]:
    """Parse `tcp://HOST:PORT` or `HOST:PORT`. Raises `BadAddress`."""
    try:
        parts = urlsplit(text if "://" in text else f"tcp://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None  # a missing bracket, or the port is not a number
    if not host or " " in host or not port or parts.scheme != "tcp" or parts.path not in ("", "/"):
        raise BadAddress(f"'{text}' is not the address of a broker: expected tcp://HOST:PORT")
    return host, port
