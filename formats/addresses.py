"""Addresses as people and configurations write them."""

from __future__ import annotations

__all__ = ["shown_place"]


def shown_place(host: str, port: int | None) -> str:
    """Return HOST:PORT, with brackets around an IPv6 address, which `host` may have already."""
    bare = host.strip("[]")
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"
