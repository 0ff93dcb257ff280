"""A group that pops a queue in order: while some of what it got is under way, it gets nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random

from formats.rocketmq.remoting.frame import HeaderEncoding
from formats.rocketmq.remoting.receipts import parse_receipt
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.consumers import KEPT_AFTER_MS
from tests.simulator.rocketmq.pops import GrpcPops, Outcome, Popped, Pops, RemotingPops
from tests.simulator.rocketmq.producers import Link, Surroundings

__all__ = ["OrderedGroup"]

# The chance that the consumer uses a handle of an earlier pop, and that it pops one message for a short time only.
OLD_LUCK, BRIEF_LUCK = 0.25, 0.3
BRIEF_MS = (200, 1_500)
POLLS_MS = (0, 1_000, 3_000)


class OrderedGroup:
    """A group of one consumer of a topic with one queue, over remoting or over gRPC. `own` decides on old handles."""

    def __init__(self, world: Surroundings, name: str, topic: str, own: Random, *, is_grpc: bool) -> None:
        self.world = world
        self.own = own
        self.name = name
        self.topic = topic
        self.is_grpc = is_grpc
        # All messages before this offset were acknowledged, and those at these offsets; maybe also those at others.
        self.low = 0
        self._acked: set[int] = set()
        self._maybe: set[int] = set()
        # The times at which `low` was known.
        self._lows: list[tuple[int, int]] = []
        # The messages under way, by offset: when each is to be seen again; None if nobody knows.
        self._under_way: dict[int, int | None] = {}
        self._handles: list[tuple[int, str]] = []
        # The handles of the last pop as it gave them, and those of the pop before of the same messages.
        self._given: list[tuple[int, str]] = []
        self._old: list[str] = []
        # When the broker gave them out: an acknowledgment of an earlier time changes nothing.
        self._popped_ms = 0
        self._is_popping = False
        # How often the messages of the last pop were popped before it, by offset; None if nobody knows.
        self._counts: dict[int, int] | None = {}
        self.is_careful = False
        self.pops: Pops
        self.link: Link

    def connect(self) -> None:
        """Connect, after a start of the broker or of this client."""
        self._forget_handles()
        if self.is_grpc:
            calls = self.link = self.world.connect_grpc(self.name)
            self.pops = GrpcPops(calls, self.name, self.topic)
        else:
            self.link = self.world.connect(self.name, lambda frame: None, HeaderEncoding.JSON)
            self.pops = RemotingPops(self.link, self.name, self.topic, lambda: self.world.wall_ms, is_ordered=True)

    def _forget_handles(self) -> None:
        self._handles.clear()
        self._given.clear()
        self._old.clear()
        self._is_popping = False

    def heartbeat(self) -> None:
        """Do nothing: it is known by its requests."""

    def broker_died(self) -> None:
        """Note that what was done in the last seconds may be forgotten."""
        before_ms = self.world.wall_ms - KEPT_AFTER_MS
        self._maybe |= self._acked | set(range(self.low))
        self.low = max((low for ms, low in self._lows if ms <= before_ms), default=0)
        self._acked.clear()
        self._under_way.clear()
        self._lows = [(0, self.low)]
        self._counts = None

    def act(self) -> None:
        """Pop, acknowledge, or hide a message for longer or shorter."""
        if self._old and not self.is_careful and self.own.random() < OLD_LUCK:
            self._use_old()
            return
        random = self.world.random
        luck = 0.0 if self.is_careful else random.random()
        if self._handles and luck < 0.6:
            # Not always in order.
            at = 0 if self.is_careful or luck < 0.3 else random.randrange(len(self._handles))
            offset, handle = self._handles.pop(at)
            self._maybe.add(offset)
            self.pops.acknowledge(handle, partial(self._done, offset, self._popped_ms))
        elif self._handles and luck < 0.75:
            offset, handle = random.choice(self._handles)
            self._under_way[offset] = None
            self.pops.hide(handle, random.randrange(1_000, 8_000), partial(self._hidden, offset, self._popped_ms))
        elif not self._is_popping:
            self._is_popping = True
            most, hidden_ms, poll_ms = (
                random.choice((1, 4, 8)),
                random.randrange(2_000, 10_000),
                random.choice(POLLS_MS),
            )
            if not self.is_careful and self.own.random() < BRIEF_LUCK:
                self.pops.pop(1, self.own.randrange(*BRIEF_MS), poll_ms, self._popped_briefly)
            else:
                self.pops.pop(most, hidden_ms, poll_ms, self._popped)

    def _use_old(self) -> None:
        """Use a handle of an earlier pop, as a slow consumer does. This must not change anything."""
        handle = self.own.choice(self._old)
        if self.own.random() < 0.5:
            self.pops.acknowledge(handle, lambda outcome: None)
        else:
            self.pops.hide(handle, self.own.randrange(100, 2_000), lambda outcome: None)

    def _popped_briefly(self, found: list[Popped] | None) -> None:
        """Take a message, and do not use its handle before the message is popped again."""
        self._popped(found)
        if found:
            self._handles.clear()

    def _popped(self, found: list[Popped] | None) -> None:
        self._is_popping = False
        if found is None:
            self._counts = None
        if not found:
            return
        now_ms, offsets = self.world.wall_ms, [each.offset for each in found]
        first = offsets[0]
        upper = _first_without(self.low, self._acked | self._maybe)
        if offsets != list(range(first, first + len(offsets))) or not self.low <= first <= upper:
            raise Violation(f"{self.name} pops {offsets}, and all before {self.low} is consumed, at most {upper}")
        left = [ms for offset, ms in self._under_way.items() if offset not in self._maybe and ms is not None]
        if left and now_ms < max(left):
            raise Violation(f"{self.name} pops {offsets}, and is working for {max(left) - now_ms} ms more")
        self.check_counts(found)
        for each in found:
            self.world.promises.found(self.topic, each.queue_id, each.offset, each.name, each.stored_ms)
        # From the first message on, all have to be acknowledged once more.
        self._maybe.difference_update([each for each in self._maybe if each >= first])
        self._acked.difference_update([each for each in self._acked if each >= first])
        self._move(first)
        self._under_way = {each.offset: parse_receipt(each.handle).visible_ms for each in found}
        self._old = [handle for offset, handle in self._given if offset in offsets]
        self._given = [(each.offset, each.handle) for each in found]
        self._handles = list(self._given)
        self._popped_ms = parse_receipt(found[0].handle).popped_ms

    def check_counts(self, found: list[Popped]) -> None:
        """Check that a message of the pop before counts one pop more, and any other none."""
        known, self._counts = self._counts, {each.offset: each.attempts for each in found}
        for each in found if known is not None else ():
            if each.attempts != (known or {}).get(each.offset, -1) + 1:
                raise Violation(f"{self.name} pops offset {each.offset}, counted {each.attempts} times, after {known}")

    def _move(self, low: int) -> None:
        self.low = _first_without(max(self.low, low), self._acked)
        self._lows.append((self.world.wall_ms, self.low))

    def _done(self, offset: int, popped_ms: int, outcome: Outcome | None) -> None:
        if outcome is None or not outcome.is_done or popped_ms != self._popped_ms:
            return
        until_ms = self._under_way.get(offset)
        # Later the broker may have given it out once more.
        if until_ms is not None and self.world.wall_ms < until_ms:
            self._acked.add(offset)
            self._move(self.low)

    def _hidden(self, offset: int, popped_ms: int, outcome: Outcome | None) -> None:
        if outcome is not None and outcome.is_done and popped_ms == self._popped_ms:
            self._under_way[offset] = parse_receipt(outcome.handle).visible_ms
            self._handles = [(each, outcome.handle if each == offset else handle) for each, handle in self._handles]

    def what_is_owed(self, end: int) -> Iterator[str]:
        """Say whether the group has not consumed its queue up to its end."""
        if self.low < end and _first_without(self.low, self._acked | self._maybe) < end:
            yield f"{self.name} has consumed {self.topic} up to {self.low}, not {end}"


def _first_without(number: int, numbers: set[int]) -> int:
    while number in numbers:
        number += 1
    return number
