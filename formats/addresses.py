"""Addresses as people and configurations write them."""

from __future__ import annotations

import ipaddress
import re

__all__ = ["read_host", "shown_place"]

_NO_HOST = re.compile(r"[\s/\[\]\0]")


def read_host(text: str) -> str:
    """Return an address or host name, without the brackets of an IPv6 address.

    `ValueError` for other texts, the empty one included: it would be all addresses of the machine.
    """
    host = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if not host or _NO_HOST.search(host) or (":" in host and not _is_ipv6(host)):
        raise ValueError("is neither an address nor the name of a host")
    return host


def _is_ipv6(text: str) -> bool:
    try:
        return bool(ipaddress.IPv6Address(text))
    except ValueError:
        return False


def shown_place(host: str, port: int | None) -> str:
    """Return HOST:PORT, with brackets around an IPv6 address, which `host` may have already."""
    bare = host.strip("[]")
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"
