# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Timestamps for new file names, which must sort after existing names of their kind."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from formats.bmq.disk.files import format_timestamp

__all__ = ["next_timestamp"]

_SIZE: Final = len("YYYYMMDD_HHMMSS")


def next_timestamp(prefix: str, names: Iterable[str], now: datetime) -> str:
    """Return `now` (UTC), or a second after the newest of the files whose names begin with `prefix` and a timestamp.

    Recovery takes the newest by name: a second rollover in one second, or a clock that was set back, must not make a
    file look older than the one it replaces.
    """
    for name in names:
        if name.startswith(prefix):
            try:
                taken = datetime.strptime(name[len(prefix) : len(prefix) + _SIZE], "%Y%m%d_%H%M%S").replace(tzinfo=UTC)
            except ValueError:
                continue  # not one of ours
            now = max(now, taken + timedelta(seconds=1))
    return format_timestamp(now)
