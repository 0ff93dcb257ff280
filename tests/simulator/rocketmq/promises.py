"""The record of what clients were promised, and of what they have seen: any contradiction is a `Violation`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from broker.rocketmq.tables import names
from tests.simulator.judges.invariants import Violation

__all__ = ["Back", "Fate", "Place", "Promises", "Returned", "Sent", "is_judged"]

# A topic of a group, the name of a message, and the number of its attempts so far.
Place = tuple[str, str, int]


class Fate(Enum):
    """The end of the local transaction that a message belongs to."""

    NONE = "there is none"
    COMMIT = "committed"
    ROLLBACK = "rolled back"


@dataclass(slots=True)
class Sent:
    """A message as its producer made it. `due_ms`: nobody may see it before. `is_told`: it may have been committed."""

    name: str
    topic: str
    tag: str
    sent_ms: int
    due_ms: int = 0
    fate: Fate = Fate.NONE
    is_half: bool = False
    is_told: bool = False
    # When the broker has first answered a commit.
    ended_ms: int | None = None
    has_outlived: bool = False
    # The process has ended, and may not have noted the commit: the next one may ask, and the message may come twice.
    may_be_open: bool = False
    is_acked: bool = False
    is_refused: bool = False
    is_recalled: bool = False
    # Of a batch or a retry that was refused a part may be stored; so may what was sent again.
    may_be_there: bool = False
    # The keys by which it is found.
    keys: tuple[str, ...] = ()

    @property
    def is_owed(self) -> bool:
        """Return whether the broker has promised that consumers get it."""
        return self.is_acked and not self.is_recalled and (not self.is_half or self.fate is Fate.COMMIT)


@dataclass(frozen=True, slots=True)
class Back:
    """A message that a consumer has given back, as it has to come again."""

    name: str
    topic: str
    times: int
    not_before_ms: int


@dataclass(slots=True)
class Returned:
    """The number of times that a message was given back to one place: requests sent, and requests answered."""

    asked: int = 0
    taken: int = 0
    # A process that starts may give out delayed messages once more.
    has_outlived: bool = False


@dataclass(slots=True)
class Promises:
    """All messages as their clients know them, and the places of the ones that somebody has seen."""

    messages: dict[str, Sent] = field(default_factory=dict)
    # By queue: the names of the messages at its offsets, as far as anybody has seen them.
    places: dict[tuple[str, int], dict[int, str]] = field(default_factory=dict)
    # The places that only the judge has seen: no client knows them, so a loss of power may take them.
    untold: set[tuple[str, int, int]] = field(default_factory=set)
    backs: list[Back] = field(default_factory=list)
    # The topics whose messages have all been given back by a group, and what was given back.
    counted: set[str] = field(default_factory=set)
    returns: dict[Place, Returned] = field(default_factory=dict)
    # The place of each message of a transaction.
    _committed: dict[str, tuple[int, int]] = field(default_factory=dict)

    def placed(self, topic: str, queue_id: int, offset: int, name: str) -> None:
        """Note that a client has learned of a message at an offset of a queue."""
        self.untold.discard((topic, queue_id, offset))
        self._place(topic, queue_id, offset, name)

    def _place(self, topic: str, queue_id: int, offset: int, name: str) -> None:
        known = self.places.setdefault((topic, queue_id), {})
        if known.setdefault(offset, name) != name:
            raise Violation(f"offset {offset} of queue {queue_id} of {topic} has {name}, and had {known[offset]}")

    def found(self, topic: str, queue_id: int, offset: int, name: str, stored_ms: int) -> None:
        """Note that a consumer has got a message at an offset of a queue."""
        self.untold.discard((topic, queue_id, offset))
        self._see(topic, queue_id, offset, name, stored_ms)

    def _see(self, topic: str, queue_id: int, offset: int, name: str, stored_ms: int) -> None:
        """Check that consumers may see a message, which the store has at an offset of a queue."""
        if self.places.get((topic, queue_id), {}).get(offset) == name and not self.messages[name].is_recalled:
            return
        self._place(topic, queue_id, offset, name)
        sent = self.messages.get(name)
        if sent is None:
            raise Violation(f"nobody has sent {name}, which is in {topic}")
        if topic.startswith((names.RETRY_PREFIX, names.DEAD_LETTER_PREFIX)):
            return
        where = f"is at offset {offset} of queue {queue_id} of {topic}"
        if sent.topic != topic:
            raise Violation(f"{name} was sent to {sent.topic}, and {where}")
        if sent.is_refused and not sent.may_be_there:
            raise Violation(f"{name} was refused, and {where}")
        if sent.is_recalled:
            raise Violation(f"{name} was recalled in time, and {where}")
        if stored_ms < sent.due_ms:
            raise Violation(f"{name} {where} {sent.due_ms - stored_ms} ms early")
        if sent.is_half and not sent.is_told:
            raise Violation(f"{name} was {sent.fate.value} or not ended at all, and {where}")
        if sent.is_half and not sent.may_be_there and not sent.may_be_open:
            other = self._committed.setdefault(name, (queue_id, offset))
            if other != (queue_id, offset) and self.places[topic, other[0]].get(other[1]) == name:
                raise Violation(f"{name} was prepared once, is at offset {other[1]} of queue {other[0]}, and {where}")

    def asked(self, sent: Sent) -> None:
        """Check that the broker may ask for the outcome of a transaction."""
        if sent.ended_ms is not None and not sent.may_be_there and not sent.may_be_open:
            raise Violation(f"the commit of {sent.name} was answered, and the broker asks for its outcome")

    def died(self, noted_ms: int = 0) -> None:
        """Note that the process has ended, which had noted the commits that it had answered by `noted_ms`."""
        for returned in self.returns.values():
            returned.has_outlived = True
        for sent in self.messages.values():
            sent.has_outlived = True
            sent.may_be_open |= sent.ended_ms is None or sent.ended_ms > noted_ms

    def outlived(self) -> None:
        """Note that the service of gRPC has ended, which knew the transactions that were prepared."""
        for sent in self.messages.values():
            sent.has_outlived = True

    def returning(self, place: Place) -> Returned:
        """Note that a group asks the broker to take a message back."""
        returned = self.returns.setdefault(place, Returned())
        returned.asked += 1
        return returned

    def judge_returns(self, places: Iterable[Place]) -> None:
        """Check the places of all messages that were given back: none has too many, and dead letters are all there."""
        come = Counter(place for place in places if place[0] in self.counted)
        for place, count in come.items():
            topic, name, times = place
            returned = self.returns.get(place, Returned())
            is_dead = topic.startswith(names.DEAD_LETTER_PREFIX)
            if count > returned.asked and (not returned.asked or is_dead or not returned.has_outlived):
                raise Violation(f"{name} is in {topic} {count} times after {times} attempts, for {returned.asked}")
        for (topic, name, times), returned in self.returns.items():
            count = come[topic, name, times]
            if topic.startswith(names.DEAD_LETTER_PREFIX) and count < returned.taken:
                raise Violation(
                    f"{name} is in {topic} {count} times after {times} attempts, not {returned.taken} times"
                )

    def see_in_store(self, topic: str, queue_id: int, offset: int, name: str, stored_ms: int) -> None:
        """Note what the judge sees in the store, which need not be on the disk."""
        if offset not in self.places.get((topic, queue_id), ()):
            self.untold.add((topic, queue_id, offset))
        self._see(topic, queue_id, offset, name, stored_ms)

    def forget_untold(self) -> None:
        """Forget the places that no client has learned."""
        for topic, queue_id, offset in self.untold:
            del self.places[topic, queue_id][offset]
        self.untold.clear()

    def lost_power(self) -> None:
        """Forget what was promised so far: some of it may not have been on the disk."""
        self.untold.clear()
        self.places.clear()
        self.counted.clear()
        self.returns.clear()
        self.backs.clear()
        for sent in self.messages.values():
            sent.may_be_there, sent.is_acked, sent.is_recalled = True, False, False


def is_judged(topic: str) -> bool:
    """Return whether consumers see the messages of a topic."""
    return topic.startswith((names.RETRY_PREFIX, names.DEAD_LETTER_PREFIX, "t"))
