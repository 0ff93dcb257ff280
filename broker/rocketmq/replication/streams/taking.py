"""Takes pieces of a master's log into a slave's.

A slave takes whole records only, and reports only those: what has come of the next one is kept beside the log until the
rest is there, and forgotten with the connection. So both logs are the same up to the end of the slave's, always.

Pieces that come one behind the other are gathered and taken together, which costs far less than each by itself.
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
# So much is taken in at once, for the sake of others who wait for this process.
GATHERED_BYTES_MAX: Final = 512 << 10


class LogTaker:
    """The pieces that come over one connection. `arrived` is told of the messages."""

    def __init__(self, store: MessageStore, arrived: Arrived) -> None:
        self._store = store
        self._arrived = arrived
        # What is not in the log yet, where it begins in the master's, and how much of it was looked at before.
        self._held = bytearray()
        self._held_at = 0
        self._seen = 0

    def gather(self, offset: int, body: memoryview) -> None:
        """Keep a piece, which must be the next, for `take`. Raises `FormatError`."""
        is_new = not self._held and not self._store.log.files.files
        expected = self._held_at + len(self._held) if self._held else self._store.log.end
        if offset != expected and not is_new:
            raise FormatError("Transfer.offset", 0, f"the master sends what is at {offset}, and {expected} is missing")
        if not self._held:
            self._held_at = offset
        self._held += body

    @property
    def is_filled(self) -> bool:
        """Return whether so much was gathered that more of it is not to be waited for."""
        return len(self._held) - self._seen >= GATHERED_BYTES_MAX

    def take(self, confirmed: int = 0) -> None:
        """Take in what was gathered; the master's log is confirmed up to `confirmed`. Raises `FormatError`."""
        held, seen = self._held, self._seen
        self._seen = len(held)
        # The size of a record is checked as soon as it is there, and the rest of it only gathered.
        if len(held) == seen or (seen >= HEAD_BYTES and len(held) < int.from_bytes(held[:SIZE_BYTES], "big")):
            return
        try:
            used = copy_records(self._store, self._held_at, memoryview(held), self._arrived, confirmed)
        except DiskFull as error:
            raise FormatError("Copy", 0, f"there is no disk space for it: {error}") from None
        self._held = held[used:]
        self._held_at += used
        self._seen = len(self._held)
