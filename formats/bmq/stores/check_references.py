"""Faults between the records of messages, confirms and deletions, a chunk of the journal at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from formats.bmq.disk.journal import JournalOpRecord, QueueOpRecord, RecordType, decode_record
from formats.bmq.stores.check_records import Chunk
from formats.bmq.stores.faults import Fault
from formats.bmq.stores.lives import Lives

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["References"]


class References:
    """Follows messages from their record to their end; memory grows with the messages alive."""

    def __init__(self) -> None:
        self._lives = Lives()

    def check(self, chunk: Chunk, kinds: NDArray[Any]) -> Iterator[Fault]:
        """Faults among a chunk's records; `kinds` are their types, 0 for those that cannot be read."""
        import numpy as np

        step = self._lives.feed(np.arange(len(chunk.records)) + chunk.index, chunk.records, kinds)
        for index in step.unknown.tolist():
            code = "confirm-without-message"
            if kinds[index - chunk.index] == RecordType.DELETION:
                code = "deletion-without-message"
            yield _fault(chunk, code, index, "no message is there that has")
        for index in step.duplicates.tolist():
            yield _fault(chunk, "duplicate-message", index, "a message is there already that has")
        for index in step.repeated.tolist():
            yield _fault(chunk, "confirm-repeated", index, "the app has already confirmed")
        for index in step.excess.tolist():
            yield _fault(chunk, "ref-count", index, "more apps than its reference count says have confirmed")
        for index in step.early.tolist():
            yield _fault(chunk, "ref-count", index, "more than one app has not confirmed")


def _fault(chunk: Chunk, code: str, index: int, reason: str) -> Fault:
    position = index - chunk.index
    record = decode_record(chunk.records[position].tobytes())
    assert not isinstance(record, (QueueOpRecord, JournalOpRecord))
    return chunk.fault(code, position, f"{reason} GUID {record.guid.hex().upper()}")
