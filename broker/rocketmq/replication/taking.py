"""Takes pieces of a master's log into a slave's.

A slave takes whole records only, and reports only those: what has come of the next one is kept beside the log until the
rest is there, and forgotten with the connection. So both logs are the same up to the end of the slave's, always.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.rocketmq.store.copying import copy_records
from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.message_store import MessageStore
from formats.errors import FormatError

__all__ = ["Arrived", "LogTaker"]

SIZE_BYTES: Final = 4
HEAD_BYTES: Final = 8

Arrived = Callable[[str, int, int], None]


class LogTaker:
    """The pieces that come over one connection. `arrived` is told of each message: topic, queue and size."""

    def __init__(self, store: MessageStore, arrived: Arrived) -> None:
        self._store = store
        self._arrived = arrived
        # The front of a record, and where it begins in the master's log.
        self._held = bytearray()
        self._held_at = 0

    @property
    def is_between_records(self) -> bool:
        """Return whether nothing has come of the next record."""
        return not self._held

    def take(self, offset: int, body: memoryview) -> None:
        """Take in a piece, which must be the next. Raises `FormatError`."""
        is_new = not self._held and not self._store.log.files.files
        expected = self._held_at + len(self._held) if self._held else self._store.log.end
        if offset != expected and not is_new:
            raise FormatError("Transfer.offset", 0, f"the master sends what is at {offset}, and {expected} is missing")
        if not self._held:
            self._copy(offset, body)
            return
        # The size of the record is checked as soon as it is there, and the rest of it only gathered.
        had = len(self._held)
        self._held += body
        if had < HEAD_BYTES or len(self._held) >= int.from_bytes(self._held[:SIZE_BYTES], "big"):
            held, self._held = self._held, bytearray()
            self._copy(self._held_at, memoryview(held))

    def _copy(self, offset: int, data: memoryview) -> None:
        try:
            used = copy_records(self._store, offset, data, self._arrived)
        except DiskFull as error:
            raise FormatError("Copy", 0, f"there is no disk space for it: {error}") from None
        self._held, self._held_at = bytearray(data[used:]), offset + used
