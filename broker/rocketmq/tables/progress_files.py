"""The files of the progress of groups: their offsets, and the state of ordered consumption.

They are written periodically, not with every commit. Changes are encoded over several steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from broker.common.kept import Keep, Keeper, KeptFile

__all__ = ["ProgressFiles"]

log = logging.getLogger("broker.rocketmq")

# The maximum that one step encodes.
STEP_ENTRIES: Final = 500


class Progress(Protocol):
    """A table and its file; see `Offsets`."""

    changed: bool

    def prepare(self, most: int) -> bool:
        """Encode up to `most` entries; return True if all are encoded."""
        ...

    def file(self, now_ms: int) -> bytes: ...


class _Written:
    def __init__(self, name: str, table: Progress, keep: Keep) -> None:
        self._name = name
        self._data = b""
        self.table = table
        self.file = KeptFile(keep, lambda: self._data, self._settled)

    def write(self, now_ms: int) -> None:
        self._data = self.table.file(now_ms)
        self.file.changed()

    def _settled(self, error: OSError | None) -> None:
        self._data = b""
        if error is not None:
            self.table.changed = True
            log.error("%s cannot be stored: %s", self._name, error)


class ProgressFiles:
    """Writes the files, after `flush_log` has flushed the log, which may raise `OSError`.

    Otherwise a file could refer, after a loss of power, to messages that the log no longer has.
    """

    def __init__(
        self,
        offsets: Progress,
        keep_offsets: Keep,
        orders: Progress,
        keep_orders: Keep,
        keeper: Keeper,
        flush_log: Callable[[], None],
    ) -> None:
        self._orders = _Written("the state of ordered consumption", orders, keep_orders)
        self._offsets = _Written("the consumer offsets", offsets, keep_offsets)
        keeper.adopt(self._orders.file, self._offsets.file)
        self._flush_log = flush_log
        # The files whose tables are being encoded.
        self._due = [self._orders, self._offsets]

    def begin(self, *, with_orders: bool) -> None:
        wanted = [self._orders, self._offsets] if with_orders else [self._offsets]
        self._due = [each for each in wanted if each.table.changed]

    def end_step(self, now_ms: int) -> bool:
        """Encode some entries, or write the files once all are encoded; return True if entries are left."""
        if not self._due:
            return False
        if not all(each.table.prepare(STEP_ENTRIES) for each in self._due):
            return True
        self.write(now_ms)
        return False

    def write(self, now_ms: int) -> None:
        """Write the files that `begin` has chosen, in this step."""
        due, self._due = [each for each in self._due if each.table.changed], []
        if not due:
            return
        try:
            self._flush_log()
        except OSError as error:
            log.error("the consumer offsets cannot be stored: %s", error)
            return
        for each in due:
            each.write(now_ms)
