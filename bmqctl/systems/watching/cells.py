"""The cells of a row, for people."""

from __future__ import annotations

from bmqctl.systems.watching.model import Row

__all__ = ["HEADS", "cells_of"]

HEADS = {
    "name": "NAME",
    "part": "APP OR GROUP",
    "node": "NODE",
    "rate_in": "IN/S",
    "rate_out": "OUT/S",
    "backlog": "BACKLOG",
    "oldest_s": "OLDEST",
    "consumers": "CONSUMERS",
    "lag": "REPLICAS BEHIND",
}
_UNKNOWN = "-"


def cells_of(row: Row) -> dict[str, str]:
    """The cells by column; a dash is unknown."""
    return {
        "name": row.name,
        "part": row.part,
        "node": row.node,
        "rate_in": _rate(row.rate_in),
        "rate_out": _rate(row.rate_out),
        "backlog": _count(row.backlog),
        "oldest_s": _age(row.oldest_s),
        "consumers": _count(row.consumers),
        "lag": _count(row.lag),
    }


def _count(value: int | None) -> str:
    return _UNKNOWN if value is None else f"{value:,}"


def _rate(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _age(value: float | None) -> str:
    if value is None:
        return _UNKNOWN
    if value < 60:
        return f"{value:.1f} s"
    minutes, seconds = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"
