"""Times that messages bring along, as Python's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["moment"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


def moment(ms: int) -> datetime:
    """Return the time that is a number of milliseconds after the beginning of 1970 in UTC.

    Producers and stores may say any number: before the year 1 it is the first time that Python has, and after the year
    9999 the last.
    """
    try:
        return _EPOCH + ms * _MS
    except OverflowError:
        return _FIRST if ms < 0 else _LAST
