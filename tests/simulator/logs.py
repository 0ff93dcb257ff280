"""The core's logs while worlds are simulated: nowhere, or among what happens."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet"]


class _Lines(logging.Handler):
    """Adds the core's log lines to the events, without a time."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(f"{'':17} | {record.getMessage()}")


@contextmanager
def quiet(lines: list[str] | None = None) -> Iterator[None]:
    """Let the core's logs go into `lines`, or not be made at all."""
    log = logging.getLogger("broker")
    level, propagate = log.level, log.propagate
    log.setLevel(logging.CRITICAL + 1 if lines is None else logging.INFO)
    log.propagate = False
    handler = None if lines is None else _Lines(lines)
    if handler is not None:
        log.addHandler(handler)
    try:
        yield
    finally:
        log.setLevel(level)
        log.propagate = propagate
        if handler is not None:
            log.removeHandler(handler)
