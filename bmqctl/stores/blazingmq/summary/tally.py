"""Counts by queue and app, taken from the lives of messages a chunk at a time.

Memory grows with the queues and apps. The last app to confirm a message has no record: it is one of the apps on
the queue at the message's arrival that are not known to be done with it before. Where apps come and go, messages
are counted by epoch, from one change of the queue's apps to the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formats.bmq.disk.columns import key_numbers
from formats.bmq.disk.journal import CONFIRM_RECORD, QUEUE_OP_RECORD, ConfirmReason, QueueOpType, RecordType
from formats.bmq.disk.keys import NULL_KEY
from formats.bmq.stores.lives import BITS, End, Lives, Role, Step

__all__ = ["MISFITS", "Tally"]

MISFITS = ("unknown", "duplicates", "repeated", "excess", "early")

_ALL = -1


class Tally:
    """Counts of the messages of one partition, by queue number (of `lives`)."""

    def __init__(self, lives: Lives) -> None:
        self.lives = lives
        self.misfits: Counter[str] = Counter()
        """Records that do not fit, by the names in `Step`."""
        self._columns: dict[str | tuple[Role | None, int], NDArray[np.int64]] = {}
        self._beyond: Counter[tuple[Role, int, int]] = Counter()
        self._rejected: Counter[tuple[int, int]] = Counter()
        self._epochs: dict[int, list[int]] = {}
        self._beyond_done: Counter[tuple[int, int]] = Counter()
        self._later: dict[int, Counter[tuple[int, int | None]]] = {}

    def count(self, queue: int, name: str | tuple[Role | None, int]) -> int:
        """Return a count of one queue.

        `name` is `messages`, `carried_over` (by a rollover), `stored_bytes`, `payload_bytes`, or the name of an `End`.
        """
        column = self._columns.get(name)
        return int(column[queue]) if column is not None and queue < len(column) else 0

    def take_records(self, indexes: NDArray[Any], records: NDArray[Any], kinds: NDArray[Any]) -> None:
        """Count rejections and changes of apps, which only records show; call this before `take` for their chunk."""
        confirms = records.take(np.flatnonzero(kinds == RecordType.CONFIRM)).view(CONFIRM_RECORD.dtype)
        rejected = np.flatnonzero(CONFIRM_RECORD.column(confirms, "reason") & np.uint64(ConfirmReason.REJECTED))
        if len(rejected):
            found = confirms.take(rejected)
            keys = (key_numbers(found, CONFIRM_RECORD, name).tolist() for name in ("queue_key", "app_key"))
            self._rejected.update(zip(*keys, strict=True))
        positions = np.flatnonzero(kinds == RecordType.QUEUE_OP)
        for index, words in zip(indexes[positions].tolist(), records.take(positions), strict=True):
            op = QUEUE_OP_RECORD.unpack(words.tobytes())
            is_removal = op.queue_op_type == QueueOpType.DELETION and op.app_key != NULL_KEY
            if is_removal or op.queue_op_type == QueueOpType.ADDITION:
                self._epochs.setdefault(int.from_bytes(op.queue_key, "big"), []).append(index)

    def take(self, step: Step, rolled_over: int, stored: NDArray[Any], payload: NDArray[Any]) -> None:
        """Count a step; messages before index `rolled_over` were carried over. Sizes are those of `step.arrived`."""
        arrived = step.arrived["queue"]
        self._count("messages", arrived)
        self._count("carried_over", arrived[step.arrived["index"] < rolled_over])
        self._count("stored_bytes", arrived, stored)
        self._count("payload_bytes", arrived, payload)
        for end in End:
            self._count(end.name, step.ended["queue"][step.end == end])
        self._take_roles(step.ended, step.beyond)
        self._take_last_confirms(step.ended.take(np.flatnonzero(step.end == End.CONFIRMED)), step.beyond)
        for name in MISFITS:
            self.misfits[name] += len(getattr(step, name))

    def take_alive(self, alive: NDArray[Any]) -> None:
        """Count the apps' confirms and purges of the messages alive at the end."""
        self._take_roles(alive, self.lives.beyond)

    def roles(self, queue: int, app_key: bytes, number: int | None) -> dict[Role, int]:
        """Count a queue's messages with a record by an app, by role; `number` is its index in `lives.app_keys`."""
        if number is None:
            return dict.fromkeys(Role, 0)
        if number >= BITS:
            return {role: self._beyond[role, queue, number] for role in Role}
        return {role: self.count(queue, (role, number)) for role in Role}

    def rejected(self, queue_key: bytes, app_key: bytes) -> int:
        """Count an app's rejections."""
        return self._rejected[int.from_bytes(queue_key, "big"), int.from_bytes(app_key, "big")]

    def last_confirms(self, queue: int, queue_key: bytes, number: int | None, present: Callable[[int], bool]) -> int:
        """Count the messages that an app was the last to confirm, for which only the deletion is recorded.

        `present` returns True if messages after an index in the journal were for the app, by the queue operations.
        """
        later = self._later.get(queue, Counter())
        count = 0
        total = self.count(queue, End.CONFIRMED.name)
        done = self._done_before_deletion(queue, number)
        starts = self._epochs.get(int.from_bytes(queue_key, "big"), [])
        for epoch, start in enumerate(starts, 1):
            # Messages of no later epoch are of the first.
            total -= later[epoch, _ALL]
            done -= later[epoch, number]
            if present(start):
                count += later[epoch, _ALL] - later[epoch, number]
        return count + (total - done if not starts or present(starts[0] - 1) else 0)

    def _done_before_deletion(self, queue: int, number: int | None) -> int:
        if number is None:
            return 0
        return self.count(queue, (None, number)) if number < BITS else self._beyond_done[queue, number]

    def _count(
        self, name: str | tuple[Role | None, int], queues: NDArray[Any], sizes: NDArray[Any] | None = None
    ) -> None:
        column = self._columns.get(name, np.zeros(0, np.int64))
        column = np.concatenate([column, np.zeros(self.lives.queue_count - len(column), np.int64)])
        if sizes is None:
            column += np.bincount(queues, minlength=len(column))
        else:
            np.add.at(column, queues, sizes)
        self._columns[name] = column

    def _take_roles(self, rows: NDArray[Any], beyond: Mapping[int, Mapping[int, Role]]) -> None:
        queues = rows["queue"]
        done = rows["confirmed"] | rows["automatic"]
        for role, mask in (
            (Role.CONFIRMED, rows["confirmed"]),
            (Role.AUTOMATIC, rows["automatic"]),
            (Role.PURGED, rows["purged"] & ~done),
        ):
            for bit, having in _bits(mask):
                self._count((role, bit), queues[having])
        for queue, index in _those_of(rows, beyond):
            self._beyond.update((role, queue, number) for number, role in beyond[index].items())

    def _take_last_confirms(self, rows: NDArray[Any], beyond: Mapping[int, Mapping[int, Role]]) -> None:
        """Count the apps without a confirm of messages that were deleted because all had confirmed."""
        done = rows["confirmed"] | rows["automatic"] | rows["purged"]
        for bit, having in _bits(done):
            self._count((None, bit), rows["queue"][having])
        for queue, index in _those_of(rows, beyond):
            self._beyond_done.update((queue, number) for number in beyond[index])
        if not self._epochs:
            return
        keys = self.lives.queue_keys()
        for queue_number in np.unique(rows["queue"]).tolist():
            starts = self._epochs.get(int.from_bytes(keys[queue_number], "big"))
            if starts is None:
                continue
            at = np.flatnonzero((rows["queue"] == queue_number) & (rows["index"] > starts[0]))
            later = self._later.setdefault(queue_number, Counter())
            epochs = np.searchsorted(starts, rows["index"][at])
            for number, those in ((_ALL, epochs), *((bit, epochs[having]) for bit, having in _bits(done[at]))):
                counts = np.bincount(those)
                later.update({(epoch, number): int(counts[epoch]) for epoch in np.flatnonzero(counts).tolist()})
            for row, epoch in zip(at.tolist(), epochs.tolist(), strict=True) if beyond else ():
                later.update((epoch, number) for number in beyond.get(int(rows["index"][row]), ()))


def _bits(mask: NDArray[Any]) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    """Yield each bit that is set in any row, and the mask of its rows."""
    used = int(np.bitwise_or.reduce(mask)) if len(mask) else 0
    for bit in range(used.bit_length()):
        if used >> bit & 1:
            yield bit, (mask >> np.uint64(bit) & np.uint64(1)).astype(bool)


def _those_of(rows: NDArray[Any], beyond: Mapping[int, object]) -> Iterator[tuple[int, int]]:
    """Yield (queue, index) of the messages in `beyond`."""
    if beyond:
        for queue, index in zip(rows["queue"].tolist(), rows["index"].tolist(), strict=True):
            if index in beyond:
                yield queue, index
