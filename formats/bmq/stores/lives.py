"""The lives of messages, followed through a journal chunk by chunk, from a message's record to its end.

Memory grows with the messages alive (about 200 bytes each), the queues and apps, and the chunk, not with the journal.
The result does not depend on the chunks' sizes. All steps work on whole columns: a chunk costs a sort of its records,
and a probe for each message.

The rules are the reference's (mqbs::FileBackedStorage, mqbs::FileStore::recoverMessages):

- A message is identified by its queue key and GUID. After its end another message may use the same GUID.
- An app's confirm has a record, except the last app's: its confirm is the deletion without a flag. A message
  with `ref_count` apps therefore has `ref_count` - 1 confirms before such a deletion.
- Automatic confirms (of apps whose subscription does not want the message) precede the message's record and do not
  count in `ref_count`. A queue has one such message at a time: an automatic confirm is an orphan, and ignored,
  unless the queue's next message or automatic confirm is about the same message.
- The purge or deletion of a queue ends all of its messages, without a record for each. A purge of one app ends none:
  it takes them from the app, from a start (lease id, sequence number) on, and deletions follow for messages that no
  other app wants. The removal of an app follows a purge of its messages, and does nothing by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.bmq.disk.columns import key_bytes, key_numbers, sound_kinds
from formats.bmq.disk.journal import (
    MESSAGE_RECORD,
    QUEUE_OP_RECORD,
    DeletionRecordFlag,
    QueueOpRecord,
    QueueOpType,
    RecordType,
)
from formats.bmq.disk.keys import NULL_KEY
from formats.bmq.stores.live_events import TIMESTAMP_MAX, Course, Events, Kind
from formats.bmq.stores.live_table import AppNumbers, LiveTable, Numbers, message_dtype, put_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BITS", "End", "Lives", "Role", "Step", "guid_bytes"]

BITS = 64
"""Number of a queue's apps that have bits; the roles of further apps are in `Lives.beyond`."""


class End(IntEnum):
    """The reason for a message's end."""

    CONFIRMED = 0  # by all its apps: a deletion without a flag, or with IMPLICIT_CONFIRM
    EXPIRED = 1
    NO_QUORUM = 2
    PURGED = 3  # with its queue, or deleted when the last app that wanted it was purged
    QUEUE_DELETED = 4


class Role(IntEnum):
    """The outcome of a message for one app; the names are those of fields of `message_dtype`."""

    CONFIRMED = 0
    AUTOMATIC = 1
    PURGED = 2


def guid_bytes(high: int, low: int) -> bytes:
    return high.to_bytes(8, "big") + low.to_bytes(8, "big")


class Step(NamedTuple):
    """The effects of one chunk. Indexes are into the journal (int64), each array in ascending order.

    `arrived` and `ended` are messages (`live_table.message_dtype`): as they were on arrival, with their automatic
    confirms, and at their end. Parallel to `ended` are `ended_by`, the index of the record that ended the message, in
    ascending order (one purge may end many), its time `ended_at` in seconds, and the `End` as uint8.

    Records that do not fit: `unknown` are confirms and deletions of messages that are not alive; `duplicates` messages
    that are already alive; `repeated` confirms by an app that has confirmed before; `excess` confirms by more apps than
    `ref_count` counts; `early` deletions (no flag) of messages that more than one app had not confirmed. Only `excess`
    and `early` records have an effect.

    `confirms` are the confirms of messages alive, repeated ones included but not automatic ones, in no order; parallel
    to it are the message's index (`confirmed`) and its time of arrival in seconds (`confirmed_arrived`).

    `beyond` has the entries of `Lives.beyond` for the messages that ended.
    """

    arrived: NDArray[Any]
    ended: NDArray[Any]
    ended_by: NDArray[Any]
    ended_at: NDArray[Any]
    end: NDArray[Any]
    unknown: NDArray[Any]
    duplicates: NDArray[Any]
    repeated: NDArray[Any]
    excess: NDArray[Any]
    early: NDArray[Any]
    confirms: NDArray[Any]
    confirmed: NDArray[Any]
    confirmed_arrived: NDArray[Any]
    beyond: Mapping[int, Mapping[int, Role]]


class Lives:
    """Follows the messages of one journal; see the module."""

    def __init__(self) -> None:
        self._table = LiveTable()
        self._queues = Numbers()
        self._apps = AppNumbers()
        self._pending: dict[int, tuple[list[int], set[int]]] = {}
        self.beyond: dict[int, dict[int, Role]] = {}
        """Roles of the apps with a number of `BITS` or more, for messages alive, by `index`."""

    def __len__(self) -> int:
        return len(self._table)

    def alive(self) -> NDArray[Any]:
        """The messages alive, in order of arrival: a copy, of `live_table.message_dtype`."""
        rows: NDArray[Any] = self._table.rows.take(self._table.numbers())
        return rows

    @property
    def queue_count(self) -> int:
        """The number of queues that had messages; queues' numbers are below it."""
        return len(self._queues)

    def queue_keys(self) -> list[bytes]:
        """The keys of the queues that had messages, by the number in `queue`."""
        return [key_bytes(value) for value in self._queues.values()]

    def queue_number(self, queue_key: bytes) -> int | None:
        """The number of the queue with this key; None if it had no messages."""
        return self._queues.number(int.from_bytes(queue_key, "big"))

    def app_keys(self, queue: int) -> list[bytes]:
        """The keys of a queue's apps that confirmed messages or were purged, by bit."""
        return self._apps.by_queue.get(queue, [])

    def feed(self, indexes: NDArray[Any], records: NDArray[Any], kinds: NDArray[Any] | None = None) -> Step:
        """Process the next records, at `indexes` (int64) of the journal, and return their effects.

        `kinds` are `columns.sound_kinds(records)`, if the caller has them. Records of kind 0 are skipped.
        """
        if kinds is None:
            kinds = sound_kinds(records)
        steps: list[Step] = []
        start = 0
        for position, op in self._removals(records, kinds):
            steps.append(self._advance(indexes[start:position], records[start:position], kinds[start:position]))
            steps.append(self._remove(int(indexes[position]), op))
            start = position
        steps.append(self._advance(indexes[start:], records[start:], kinds[start:]))
        return steps[0] if len(steps) == 1 else _joined(steps)

    def _removals(self, records: NDArray[Any], kinds: NDArray[Any]) -> list[tuple[int, QueueOpRecord]]:
        """The purges and deletions of queues and apps that affect any message."""
        import numpy as np

        found: list[tuple[int, QueueOpRecord]] = []
        positions = np.flatnonzero(kinds == RecordType.QUEUE_OP)
        ops = records[positions].view(QUEUE_OP_RECORD.dtype)
        removing = np.isin(ops["queue_op_type"], (QueueOpType.PURGE, QueueOpType.DELETION))
        if not removing.any():
            return found
        posted = records[kinds == RecordType.MESSAGE].view(MESSAGE_RECORD.dtype)
        with_messages = set(np.unique(key_numbers(posted, MESSAGE_RECORD, "queue_key")).tolist())
        values = self._queues.values()
        with_messages.update(values[number] for number in self._table.queues().tolist())
        for position, op in zip(positions[removing].tolist(), ops[removing], strict=True):
            record = QUEUE_OP_RECORD.unpack(op.tobytes())
            removes_app = record.queue_op_type == QueueOpType.DELETION and record.app_key != NULL_KEY
            if not removes_app and int.from_bytes(record.queue_key, "big") in with_messages:
                found.append((position, record))
        return found

    def _remove(self, index: int, op: QueueOpRecord) -> Step:
        import numpy as np

        queue = self.queue_number(op.queue_key)
        if queue is None:
            return _step()
        numbers = self._table.numbers(queue)
        rows = self._table.rows.take(numbers)
        if op.app_key != NULL_KEY:
            start = (op.start_primary_lease_id, op.start_sequence_number)
            lease, number = rows["primary_lease_id"], rows["sequence_number"]
            touched = (lease > start[0]) | ((lease == start[0]) & (number >= np.uint64(start[1])))
            app = self._apps.number(queue, int.from_bytes(op.app_key, "big"))
            if app < BITS:
                self._table.rows["purged"][numbers[touched]] |= np.uint64(1 << app)
            else:
                for message in rows["index"][touched].tolist():
                    self.beyond.setdefault(message, {}).setdefault(app, Role.PURGED)
            return _step()
        self._table.remove(numbers)
        end = End.QUEUE_DELETED if op.queue_op_type == QueueOpType.DELETION else End.PURGED
        return _step(
            ended=rows,
            ended_by=np.full(len(rows), index, np.int64),
            ended_at=np.full(len(rows), min(op.timestamp, TIMESTAMP_MAX), np.int64),
            end=np.full(len(rows), end, np.uint8),
            beyond=self._leave_beyond(rows),
        )

    def _advance(self, indexes: NDArray[Any], records: NDArray[Any], kinds: NDArray[Any]) -> Step:
        """Process records among which no purge affects a message."""
        import numpy as np

        events = Events(indexes, records, kinds, self._queues)
        if not len(events):
            return _step()
        rows = self._table.find(events.hashes, events.group_keys)
        is_carried = rows >= 0
        rows = rows[is_carried]
        course = events.course(is_carried)
        # One row for each life: of a message carried over, or of an arrival.
        old, new = np.flatnonzero(~course.is_new), np.flatnonzero(course.is_new)
        messages = np.empty(len(course.begins), message_dtype())
        put_rows(messages, old, self._table.rows.take(rows))
        put_rows(messages, new, events.messages(course.begins[new]))
        self._take_automatic(events, course, messages)
        arrived = messages.take(new[np.argsort(events.indexes[course.begins[new]])])
        repeated, excess = self._take_confirms(events, course, messages)

        confirmed = course.life[course.confirms]

        last = np.full(len(messages), -1, np.int64)
        last[course.life[course.deletions]] = course.deletions
        by = course.deletions[np.argsort(events.indexes[course.deletions])]
        ended = messages.take(course.life[by])
        end, early = self._judge(ended, events.details[by])
        put_rows(self._table.rows, rows, messages.take(old))
        self._table.remove(rows[last[old] >= 0])
        staying = new[last[new] < 0]
        self._table.add(messages.take(staying), events.hashes[events.group[course.begins[staying]]])
        return _step(
            arrived=arrived,
            ended=ended,
            ended_by=events.indexes[by],
            ended_at=events.timestamps(by),
            end=end,
            unknown=np.sort(events.indexes[course.unknown]),
            duplicates=np.sort(events.indexes[course.duplicates]),
            repeated=np.sort(events.indexes[repeated]),
            excess=np.sort(events.indexes[excess]),
            early=events.indexes[by[early]],
            confirms=events.indexes[course.confirms],
            confirmed=messages["index"][confirmed],
            confirmed_arrived=messages["timestamp"][confirmed],
            beyond=self._leave_beyond(ended),
        )

    def _take_confirms(
        self, events: Events, course: Course, messages: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Apply the confirms of messages alive; return the repeated ones, and those in excess of the count."""
        import numpy as np

        confirms = course.confirms
        if not len(confirms):
            return confirms, confirms
        lives = course.life[confirms]
        apps = self._apps.of(events.queues(confirms), events.details[confirms])
        has_bit = apps < BITS
        bits = np.uint64(1) << np.where(has_bit, apps, 0).astype(np.uint64)
        bits[~has_bit] = 0
        by_app = np.argsort(lives * (int(apps.max()) + 1) + apps, kind="stable")
        first = np.ones(len(confirms), bool)
        first[by_app[1:]] = (lives[by_app[1:]] != lives[by_app[:-1]]) | (apps[by_app[1:]] != apps[by_app[:-1]])
        first &= (messages["confirmed"][lives] & bits) == 0
        for at in np.flatnonzero(~has_bit).tolist():
            roles = self.beyond.setdefault(int(messages["index"][lives[at]]), {})
            first[at] = roles.get(int(apps[at])) is not Role.CONFIRMED
            roles[int(apps[at])] = Role.CONFIRMED
        # Events are ordered by life and then by index: runs of equal lives can be reduced.
        starts = np.flatnonzero(np.diff(lives, prepend=-1))
        total = np.cumsum(first)
        before = np.repeat(total[starts] - first[starts], np.diff(starts, append=len(lives)))
        excess = first & (messages["confirms"][lives] + total - before > messages["ref_count"][lives])
        bits[~first] = 0
        messages["confirmed"][lives[starts]] |= np.bitwise_or.reduceat(bits, starts)
        messages["confirms"][lives[starts]] += np.add.reduceat(first, starts, dtype=np.int32)
        return confirms[~first], confirms[excess]

    def _take_automatic(self, events: Events, course: Course, messages: NDArray[Any]) -> None:
        """Apply automatic confirms to the messages that follow them, and keep those whose message is yet to come."""
        import numpy as np

        automatic = np.flatnonzero(events.kinds == Kind.AUTOMATIC) if events.has_automatic else np.zeros(0, np.int64)
        if not self._pending and not len(automatic):
            return
        queues = np.union1d(events.queues(automatic), list(self._pending)).astype(np.int64)
        posted = np.flatnonzero(events.kinds == Kind.MESSAGE)
        posted = posted[np.isin(events.queues(posted), queues)]
        apps = dict(
            zip(
                automatic.tolist(),
                self._apps.of(events.queues(automatic), events.details[automatic]).tolist(),
                strict=True,
            )
        )
        # A life that is carried over may also begin with a message: a duplicate.
        new = np.flatnonzero(course.is_new)
        new_lives = dict(zip(course.begins[new].tolist(), new.tolist(), strict=True))
        both = np.concatenate([automatic, posted])
        both = both[np.argsort(events.indexes[both])]
        groups = events.group[both]
        for event, *message in zip(both.tolist(), *(key[groups].tolist() for key in events.group_keys), strict=True):
            queue = message[0]
            announced, done = self._pending.get(queue, ([], set()))
            if event in apps:
                if announced != message:
                    done = set()
                    self._pending[queue] = (message, done)
                done.add(apps[event])
            elif self._pending.pop(queue, None) and announced == message and event in new_lives:
                self._note_automatic(messages, new_lives[event], done)

    def _note_automatic(self, messages: NDArray[Any], life: int, apps: set[int]) -> None:
        import numpy as np

        mask = sum(1 << app for app in apps if app < BITS)
        messages["automatic"][life] = np.uint64(mask)
        beyond = {app: Role.AUTOMATIC for app in apps if app >= BITS}
        if beyond:
            self.beyond[int(messages["index"][life])] = beyond

    def _judge(self, ended: NDArray[Any], flags: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the `End` of messages by their deletions' `flags`, and a bool array that is True for early ones."""
        import numpy as np

        purged = ended["purged"] & ~ended["confirmed"] & ~ended["automatic"]
        purges = np.zeros(len(ended), np.int64)
        some = np.flatnonzero(purged)
        purges[some] = np.unpackbits(purged[some].view(np.uint8).reshape(-1, 8), axis=1).sum(axis=1)
        if self.beyond:
            for at, index in enumerate(ended["index"].tolist()):
                roles = self.beyond.get(index, {}).values()
                purges[at] += sum(role is Role.PURGED for role in roles)
        done = ended["confirms"] + purges
        expired = flags & np.uint64(DeletionRecordFlag.TTL_EXPIRATION) != 0
        no_quorum = flags & np.uint64(DeletionRecordFlag.NO_SC_QUORUM) != 0
        by_purge = (purges > 0) & (done >= ended["ref_count"])
        end = np.select([expired, no_quorum, by_purge], [End.EXPIRED, End.NO_QUORUM, End.PURGED], End.CONFIRMED)
        return end.astype(np.uint8), (flags == 0) & (done < ended["ref_count"] - 1)

    def _leave_beyond(self, ended: NDArray[Any]) -> dict[int, dict[int, Role]]:
        if not self.beyond:
            return {}
        return {index: self.beyond.pop(index) for index in ended["index"].tolist() if index in self.beyond}


def _step(**columns: Any) -> Step:
    import numpy as np

    empty: dict[str, Any] = {name: np.zeros(0, np.int64) for name in Step._fields}
    empty |= {"arrived": np.zeros(0, message_dtype()), "ended": np.zeros(0, message_dtype())}
    empty |= {"end": np.zeros(0, np.uint8), "beyond": {}}
    return Step(**(empty | columns))


def _joined(steps: list[Step]) -> Step:
    import numpy as np

    columns = {name: np.concatenate([getattr(step, name) for step in steps]) for name in Step._fields[:-1]}
    return _step(**columns, beyond={index: roles for step in steps for index, roles in step.beyond.items()})
