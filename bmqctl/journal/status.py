"""Which messages are outstanding, confirmed, or confirmed by some of their apps: for a dump's filters.

What became of a message is known only after its last record, so that a journal is read twice: once to find the
messages, of which one bit is kept for each place in the file, and again to print their records.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from bmqctl.journal.chunks import Chunk
from bmqctl.journal.reader import JournalReader
from formats.disk.journal import RecordType
from formats.disk.lives import End, Lives

__all__ = ["Status", "StatusFilter"]

Progress = Callable[[int, int], None]


class Status(Enum):
    """As the reference's storage tool tells them apart, but that CONFIRMED leaves out what expired or was purged."""

    OUTSTANDING = "outstanding"  # not gone, whether or not some apps have confirmed it
    CONFIRMED = "confirmed"  # gone, since all its apps confirmed it
    PARTIALLY_CONFIRMED = "partially-confirmed"  # not gone, and at least one app has confirmed it


class StatusFilter:
    """Lets through messages of one status with their confirms and deletions, of one journal.

    The journal is read when the filter is made; `select` then wants all its chunks up to `end`, in their order.
    """

    def __init__(self, reader: JournalReader, status: Status, on_progress: Progress) -> None:
        self.end = reader.record_end()
        """The first place that was not looked at."""
        self._bits = np.zeros(self.end // 8 + 1, np.uint8)
        self._chosen: set[bytes] = set()
        lives = Lives()
        for chunk in reader.chunks(0, self.end):
            step = lives.feed(chunk.index, chunk.records, chunk.kinds)
            if status is Status.CONFIRMED:
                self._choose(step.ended["index"][step.end == End.CONFIRMED])
            on_progress(chunk.end_offset, reader.size)
        alive = lives.alive()
        if status is Status.OUTSTANDING:
            self._choose(alive["index"])
        elif status is Status.PARTIALLY_CONFIRMED:
            self._choose(alive["index"][alive["confirms"] > 0])

    def _choose(self, places: NDArray[np.int64]) -> None:
        np.bitwise_or.at(self._bits, places >> 3, np.left_shift(1, places & 7).astype(np.uint8))

    def select(self, chunk: Chunk) -> Chunk:
        """The records that speak of messages chosen, and faults."""
        messages = chunk.of_kind(RecordType.MESSAGE)
        places = messages.places["index"]
        begins = np.zeros(len(chunk), np.bool_)
        begins[messages.rows] = self._bits[places >> 3] >> (places & 7) & 1
        guids = np.full(len(chunk), None, object)
        for kind in (RecordType.MESSAGE, RecordType.CONFIRM, RecordType.DELETION):
            part = chunk.of_kind(kind)
            guids[part.rows] = part.column("guid").tolist()
        wanted = np.zeros(len(chunk), np.bool_)
        chosen = self._chosen
        for row, (guid, is_message, is_begin, is_end) in enumerate(
            zip(
                guids.tolist(),
                (chunk.kinds == RecordType.MESSAGE).tolist(),
                begins.tolist(),
                (chunk.kinds == RecordType.DELETION).tolist(),
                strict=True,
            )
        ):
            if is_begin:
                chosen.add(guid)
                wanted[row] = True
            elif guid in chosen and not is_message:
                wanted[row] = True
                if is_end:
                    chosen.remove(guid)
        return chunk.where(wanted)
