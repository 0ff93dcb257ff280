"""Filter of messages by status: outstanding, confirmed, or confirmed by some of their apps.

The status of a message is known only after its last record, so that a journal is read twice: once to find the
messages, of which one bit is kept for each slot of the file, and again to print their records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmqctl.stores.blazingmq.read.chunks import Chunk
from bmqctl.stores.blazingmq.read.names import QueueNames
from bmqctl.stores.blazingmq.read.reader import JournalReader
from formats.bmq.disk.journal import RecordType
from formats.bmq.disk.keys import hex_of
from formats.bmq.stores.lives import BITS, Lives
from formats.bmq.stores.outcomes import ENDED, MessageOutcome
from formats.bmq.stores.queues import Queue

__all__ = ["StatusFilter"]

Progress = Callable[[int, int], None]


class StatusFilter:
    """Passes messages of one status with their confirms and deletions, of one journal.

    An outstanding message is one that is alive, whether or not some apps have confirmed it.

    With `apps`, names or keys, messages are outstanding if they are so for one of these apps: of its queues, posted
    while it was one of the queue's, and neither confirmed nor purged by it. The journal is read when the filter is
    made; `select` then needs all its chunks up to `end`, in order.
    """

    def __init__(
        self,
        reader: JournalReader,
        names: QueueNames,
        status: MessageOutcome,
        apps: Collection[str],
        on_progress: Progress,
    ) -> None:
        self.end = reader.record_end()
        """The first place that was not looked at."""
        self._bits = np.zeros(self.end // 8 + 1, np.uint8)
        self._chosen: set[bytes] = set()
        lives = Lives()
        ends = [end for end, outcome in ENDED.items() if outcome is status]
        ops: list[tuple[int, NDArray[Any]]] = []
        for chunk in reader.chunks(0, self.end):
            step = lives.feed(chunk.index, chunk.records, chunk.kinds)
            if ends:
                self._choose(step.ended["index"][np.isin(step.end, ends)])
            if apps:
                rows = np.flatnonzero(chunk.kinds == RecordType.QUEUE_OP).tolist()
                ops += [(int(chunk.offset[row]), chunk.records[row : row + 1].copy()) for row in rows]
            on_progress(chunk.end_offset, reader.size)
        alive = lives.alive()
        if status is MessageOutcome.PARTIALLY_CONFIRMED:
            self._choose(alive["index"][alive["confirms"] > 0])
        elif status is MessageOutcome.OUTSTANDING:
            wanted = _outstanding(reader, lives, alive, names.queues(ops), apps) if apps else slice(None)
            self._choose(alive["index"][wanted])

    def _choose(self, places: NDArray[np.int64]) -> None:
        np.bitwise_or.at(self._bits, places >> 3, np.left_shift(1, places & 7).astype(np.uint8))

    def select(self, chunk: Chunk) -> Chunk:
        """Select the records of chosen messages, and faults."""
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


def _outstanding(
    reader: JournalReader, lives: Lives, alive: NDArray[Any], queues: list[Queue], apps: Collection[str]
) -> NDArray[np.bool_]:
    """Mark the messages alive that one of the apps has yet to confirm."""
    wanted = np.zeros(len(alive), np.bool_)
    done = alive["confirmed"] | alive["automatic"] | alive["purged"]
    numbers = {hex_of(key): number for number, key in enumerate(lives.queue_keys())}
    for queue in queues:
        if queue.queue_key not in numbers:
            continue
        number = numbers[queue.queue_key]
        mine = alive["queue"] == number
        app_keys = [hex_of(key) for key in lives.app_keys(number)]
        for app in queue.apps:
            if app.app_id not in apps and app.app_key not in {name.upper() for name in apps}:
                continue
            # A removed app was purged of its messages: it needs no end.
            open_ = mine & (alive["index"] >= reader.index_of(app.since))
            if app.app_key in app_keys:
                bit = app_keys.index(app.app_key)
                if bit < BITS:
                    open_ &= (done >> np.uint64(bit)) & np.uint64(1) == 0
                else:
                    open_ &= [bit not in lives.beyond.get(index, {}) for index in alive["index"].tolist()]
            wanted |= open_
    return wanted
