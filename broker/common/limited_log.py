"""Log lines that hostile peers can cause at will."""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["MINUTE_MS", "SECOND_MS", "LimitedLog"]

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60_000


class LimitedLog:
    """Logs at most one line per `period_ms`, and counts the others. `prefix` begins each line."""

    def __init__(
        self, log: logging.Logger, level: int = logging.WARNING, period_ms: int = MINUTE_MS, prefix: str = ""
    ) -> None:
        self._log = log
        self._level = level
        self._period_ms = period_ms
        self._prefix = prefix
        self._logged_ms: int | None = None
        self._dropped = 0

    def add(self, text: str, now_ms: int) -> None:
        if self._logged_ms is not None and 0 <= now_ms - self._logged_ms < self._period_ms:
            self._dropped += 1
            return
        more = f" (and {self._dropped} more since the last such line)" if self._dropped else ""
        self._log.log(self._level, "%s%s%s", self._prefix, text, more)
        self._logged_ms, self._dropped = now_ms, 0
