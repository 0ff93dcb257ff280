"""Stored messages that cannot be processed: they are skipped, counted and logged."""

from __future__ import annotations

import logging

__all__ = ["Skips"]

log = logging.getLogger("broker.rocketmq.skips")


class Skips:
    """The skipped messages of one kind, whose plural is `what`.

    Logs the first message, and then one whenever their number has doubled.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self.count = 0

    def note(self, place: object, reason: object) -> None:
        self.count += 1
        if not self.count & (self.count - 1):
            text = str(reason).replace("\n", " ")[:200]
            log.error("%s: %d skipped so far, the last one at %s: %s", self._what, self.count, place, text)
