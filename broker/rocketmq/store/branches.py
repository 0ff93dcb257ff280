# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The second queues of messages: those of lite topics (source: ConsumeQueue.multiDispatchLmqQueue)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from broker.rocketmq.store.commit_log import Found
from broker.rocketmq.store.consume_queue import ConsumeQueue
from broker.rocketmq.store.holding import HeldBack, HeldMessage
from broker.rocketmq.store.places import is_topic
from broker.rocketmq.store.terms import Stored
from formats.rocketmq.files.consume_queue import ConsumeQueueEntry
from formats.rocketmq.files.record import Record
from formats.rocketmq.java import string_hash
from formats.rocketmq.lite import LITE_TOPIC, QUEUE_ID, Branch, branch_of
from formats.rocketmq.properties import decode_properties

__all__ = ["Branches", "Place", "branch_of_record"]

_LITE: Final = LITE_TOPIC.encode()


class Place(NamedTuple):
    """The entry that a message gets in the queue of its lite topic."""

    branch: Branch
    queue: ConsumeQueue
    tags_code: int


class Branches:
    """Enters messages into the queues of lite topics, as their properties say.

    `find_queue` returns a queue, created if missing; `held` returns the messages held back. `entered` notes the queues
    that have to be flushed.
    """

    def __init__(
        self,
        find_queue: Callable[[str, int], ConsumeQueue],
        held: Callable[[], HeldBack | None],
        entered: dict[ConsumeQueue, None],
    ) -> None:
        self._find_queue = find_queue
        self._held = held
        self._entered = entered

    def reserve(self, topic: str, properties: Mapping[str, str]) -> Place | None:
        """Reserve room for a message that will be in the log; return None if it belongs into its own queue only.

        Returns None, too, if it is not the next one there. Raises `DiskFull`.
        """
        branch = _branch_of(topic, properties)
        if branch is None:
            return None
        place = self._place(branch, properties)
        return self._with_room(place) if self._following(place.queue) == branch.offset else None

    def reserve_copy(self, record: Record) -> Place | None:
        """Reserve room for a record of another broker, like `reserve`.

        A queue that does not end where the record belongs restarts there: it was removed at the other broker.
        """
        branch = branch_of_record(record)
        if branch is None:
            return None
        place = self._place(branch, decode_properties(record.properties))
        if self._following(place.queue) != branch.offset:
            if self._held() is not None:
                return place
            place.queue.begin_at(branch.offset)
        return self._with_room(place)

    def _place(self, branch: Branch, properties: Mapping[str, str]) -> Place:
        tags = properties.get("TAGS")
        return Place(branch, self._find_queue(branch.queue, QUEUE_ID), string_hash(tags) if tags else 0)

    def _following(self, queue: ConsumeQueue) -> int:
        held = self._held()
        return queue.end if held is None else held.next_offset(queue)

    def _with_room(self, place: Place) -> Place:
        if self._held() is None:
            place.queue.make_room()
        else:
            place.queue.make_later_room(place.branch.offset)
        return place

    def enter(self, place: Place, stored: Stored, stored_ms: int) -> Stored:
        """Enter a message that is in the log; return its place. Raises `DiskFull`, but not with reserved room."""
        branch, queue, tags_code = place
        held = self._held()
        if held is not None:
            held.add(_held_message(place, stored.offset, stored.size, stored_ms))
        else:
            queue.add(stored.offset, stored.size, tags_code)
            self._entered[queue] = None
        return stored._replace(lite_queue=branch.queue)

    def hold(self, held: HeldBack, found: Found) -> None:
        """Hold back a record that is in the log."""
        branch = branch_of_record(found.record)
        if branch is not None:
            place = self._place(branch, decode_properties(found.record.properties))
            held.add(_held_message(place, found.offset, found.size, found.record.stored_ms))

    def restore(self, found: Found, branch: Branch) -> bool:
        """Add a missing entry for a record of the log; return False if the queue has a gap before it."""
        _, queue, tags_code = self._place(branch, decode_properties(found.record.properties))
        try:
            queue.append(branch.offset, ConsumeQueueEntry(found.offset, found.size, tags_code))
        except ValueError:
            return False
        self._entered[queue] = None
        return True


def _held_message(place: Place, offset: int, size: int, stored_ms: int) -> HeldMessage:
    branch, queue, tags_code = place
    return HeldMessage(offset, size, stored_ms, branch.queue, QUEUE_ID, queue, branch.offset, tags_code)


def branch_of_record(record: Record) -> Branch | None:
    """Return the queue of the lite topic that a record is in; None for most."""
    return _branch_of(record.topic, decode_properties(record.properties)) if _LITE in record.properties else None


def _branch_of(topic: str, properties: Mapping[str, str]) -> Branch | None:
    branch = branch_of(topic, properties)
    return branch if branch is not None and is_topic(branch.queue) else None
