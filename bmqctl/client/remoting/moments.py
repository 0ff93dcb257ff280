"""Times in messages, as Python's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["moment"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


def moment(ms: int) -> datetime:
    """Convert milliseconds since 1970 in UTC to a time.

    Producers and stores may state any number: times outside Python's range, the years 1 to 9999, become its first or
    last.
    """
    try:
        return _EPOCH + ms * _MS
    except OverflowError:
        return _FIRST if ms < 0 else _LAST
