"""Where a broker listens, as users write it."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["BadAddress", "parse_address"]


class BadAddress(ValueError):
    """No address of a broker."""


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `tcp://HOST:PORT` or `HOST:PORT`; `BadAddress` if it is neither."""
    try:
        parts = urlsplit(text if "://" in text else f"tcp://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None  # a bracket too few, or the port is no number
    if not host or " " in host or not port or parts.scheme != "tcp" or parts.path not in ("", "/"):
        raise BadAddress(f"'{text}' is no address of a broker: tcp://HOST:PORT")
    return host, port
