"""Takes pieces of a master's log into a slave's.

A slave stores and reports whole records only. The front of the next record stays in memory until the rest comes, and is
dropped with the connection. So both logs are the same up to the end of the slave's.

Consecutive pieces are stored together, which costs far less than one by one.
"""

from __future__ import annotations

from typing import Final

from broker.rocketmq.store.copying import Arrived, copy_records
from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.message_store import MessageStore
from formats.errors import FormatError

__all__ = ["Arrived", "LogTaker"]

SIZE_BYTES: Final = 4
HEAD_BYTES: Final = 8
# Pieces of this total size are stored, which bounds the time for which other connections wait.
GATHERED_BYTES_MAX: Final = 512 << 10


class LogTaker:
    """The pieces of one connection. `arrived` gets the messages."""

    def __init__(self, store: MessageStore, arrived: Arrived) -> None:
        self._store = store
        self._arrived = arrived
        # The bytes that are not in the log yet, their offset in the master's log, and how many were examined already.
        self._held = bytearray()
        self._held_at = 0
        self._seen = 0

    def gather(self, offset: int, body: memoryview) -> None:
        """Keep a piece for `take`. Raises `FormatError` unless it is the next."""
        is_new = not self._held and not self._store.log.files.files
        expected = self._held_at + len(self._held) if self._held else self._store.log.end
        if offset != expected and not is_new:
            raise FormatError("Transfer.offset", 0, f"the master sends what is at {offset}, and {expected} is missing")
        if not self._held:
            self._held_at = offset
        self._held += body

    @property
    def is_filled(self) -> bool:
        return len(self._held) - self._seen >= GATHERED_BYTES_MAX

    def take(self, confirmed: int = 0) -> None:
        """Store the pieces; the master's log is confirmed up to `confirmed`. Raises `FormatError`."""
        held, seen = self._held, self._seen
        self._seen = len(held)
        # The size of a record is checked as soon as it comes, the rest once all of it has.
        if len(held) == seen or (seen >= HEAD_BYTES and len(held) < int.from_bytes(held[:SIZE_BYTES], "big")):
            return
        try:
            used = copy_records(self._store, self._held_at, memoryview(held), self._arrived, confirmed)
        except DiskFull as error:
            raise FormatError("Copy", 0, f"there is no disk space for it: {error}") from None
        self._held = held[used:]
        self._held_at += used
        self._seen = len(self._held)
