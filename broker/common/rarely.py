"""Log lines that strangers can cause at will."""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["Rarely"]

PERIOD_MS: Final = 60_000


class Rarely:
    """Logs a warning at most once a minute."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._said_ms: int | None = None

    def warn(self, now_ms: int, text: str) -> None:
        """Log a warning, unless one was logged within the last minute."""
        if self._said_ms is None or not 0 <= now_ms - self._said_ms < PERIOD_MS:
            self._said_ms = now_ms
            self._log.warning("%s; further cases are not logged for %d s", text, PERIOD_MS // 1000)
