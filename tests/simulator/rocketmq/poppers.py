"""A group that pops: what it does not acknowledge in time comes again, until it does."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from random import Random

from broker.rocketmq.tables import names
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, HeaderEncoding
from formats.rocketmq.remoting.receipts import Receipt, parse_receipt
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.consumers import KEPT_AFTER_MS
from tests.simulator.rocketmq.pops import EVERYTHING, Outcome, Popped, Pops, RemotingPops
from tests.simulator.rocketmq.producers import Link, Surroundings, beat
from tests.simulator.rocketmq.promises import Sent
from tests.simulator.rocketmq.wire import Connection

__all__ = ["PopGroup"]

POPS_MAX = 3
AT_ONCE_PART = 0.3


@dataclass(slots=True)
class _Hidden:
    """A message that was popped: hidden until a time, and whether it was acknowledged before that."""

    until_ms: int
    handle: str
    popped_ms: int
    is_done: bool = False
    # It was done in an earlier life of the broker, which had written that.
    is_kept: bool = False


class PopGroup:
    """A group that pops a topic. After `limit` retries a message goes to the dead letters."""

    # The time for which the broker may answer requests of a client that is gone.
    late_ms = 0

    def __init__(
        self, world: Surroundings, name: str, topic: str, limit: int | None = None, init_mode: int = 0
    ) -> None:
        self.world = world
        self.name = name
        self.topic = topic
        self.limit = limit
        self.init_mode = init_mode
        self.dead = names.DEAD_LETTER_PREFIX + name
        world.promises.counted.add(self.dead)
        # The number of times that a message was popped.
        self._attempts: Counter[str] = Counter()
        # Messages that were hidden for longer when they may have been on their way back: they may come twice.
        self._twice: set[str] = set()
        self.acknowledged: set[str] = set()
        # The broker died before it answered, and may have noted them. Messages that come again are not among them.
        self.perhaps_acknowledged: set[str] = set()
        # By message, in this life of the broker. A name may be stored more than once: then nothing is said of it.
        self._hidden: dict[str, _Hidden] = {}
        self._unacked: list[tuple[str, str]] = []
        self._pops = 0
        # The last death of the broker, and the last time that an answer to a pop was lost.
        self._since_ms = self._lost_ms = 0
        self.is_careful = False
        self.acks_together = False
        # Chooses the messages that it hides again as soon as they are popped; None where it chooses none.
        self.at_once: Random | None = None
        self.filter = EVERYTHING
        self.connection: Connection

    @property
    def link(self) -> Link:
        """The connection of this client."""
        return self.connection

    def connect(self) -> None:
        """Connect, after a start of the broker or of this client."""
        self.connection = self.world.connect(self.name, lambda frame: None, HeaderEncoding.JSON)
        self.pops: Pops = RemotingPops(
            self.connection, self.name, self.topic, lambda: self.world.wall_ms, filter=self.filter
        )
        self._pops = 0
        if self.limit is None:
            self._unacked.clear()

    def broker_died(self) -> None:
        """Keep what was done before the offsets were last written; everything else may come twice."""
        before_ms = self.world.wall_ms - KEPT_AFTER_MS
        kept: dict[str, _Hidden] = {}
        for name, hidden in self._hidden.items():
            sent = self.world.promises.messages[name]
            # A message that waited for a time or a commit may be given out again.
            is_once = not (self._may_be_twice(sent) or sent.due_ms or sent.is_half)
            is_once &= hidden.is_kept or sent.sent_ms > self._since_ms
            if hidden.is_done and hidden.popped_ms <= before_ms and is_once:
                hidden.is_kept = True
                kept[name] = hidden
        self._hidden = kept
        self._since_ms = self.world.wall_ms

    def _may_be_twice(self, sent: Sent) -> bool:
        return self.world.was_full_since(sent.sent_ms) or sent.may_be_there or sent.name in self._twice

    def heartbeat(self) -> None:
        """Say that this group is there."""
        beat(self.connection, self.name, b'"consumerDataSet":[{"groupName":"%b","subscriptionDataSet":[]}]')

    def act(self) -> None:
        """Pop, acknowledge, or hide a message for longer or shorter."""
        random = self.world.random
        luck = random.random()
        if self.acks_together and len(self._unacked) > 1 and luck < 0.25:
            self._acknowledge_some()
        elif self._unacked and (self.is_careful or luck < 0.5):
            self._acknowledge(*self._unacked.pop(0 if self.is_careful else random.randrange(len(self._unacked))))
        elif self._unacked and luck < 0.6:
            self._hide(*self._unacked.pop(random.randrange(len(self._unacked))), random)
        elif self._unacked and luck < (0.7 if self.limit is None else 0.9):
            # It forgets one.
            self._unacked.pop(random.randrange(len(self._unacked)))
        elif self._pops < POPS_MAX:
            self._pop()

    def _pop(self) -> None:
        random = self.world.random
        terms = random.choice((1, 8, 32)), random.randrange(2_000, 10_000), random.choice((0, 1_000, 3_000))
        self._pops += 1
        self.pops.pop(*terms, self._popped, init_mode=self.init_mode)

    def _popped(self, found: list[Popped] | None) -> None:
        self._pops -= 1
        if found is None:
            self._lost_ms = self.world.wall_ms + self.late_ms
            return
        now_ms = self.world.wall_ms
        for popped in found:
            name, handle, attempts, receipt = popped.name, popped.handle, popped.attempts, parse_receipt(popped.handle)
            sent = self.world.promises.messages.get(name)
            if sent is None:
                raise Violation(f"{self.name} pops {name}, which nobody has sent")
            if self.filter.tag not in (None, sent.tag):
                raise Violation(f"{self.name} pops {name} of tag {sent.tag}, and wants {self.filter}")
            if receipt.kind == "0":
                self.world.promises.found(self.topic, popped.queue_id, popped.offset, name, popped.stored_ms)
            # A message that was sent before the broker died may come twice, and so may one revived on a full disk.
            hidden = self._hidden.get(name)
            has_outlived = sent.sent_ms <= self._since_ms and (hidden is None or not hidden.is_kept)
            may_be_twice = self._may_be_twice(sent) or has_outlived
            self._check_hidden(name, hidden, now_ms, may_be_twice)
            attempt, self._attempts[name] = self._attempts[name], self._attempts[name] + 1
            # An answer that was lost has counted.
            is_less = attempts < attempt
            is_more = attempts > attempt and sent.sent_ms > self._lost_ms
            if (is_less or is_more) and not may_be_twice:
                raise Violation(f"{self.name} popped {name} {attempt} times, and the broker counts {attempts}")
            self._hidden[name] = _Hidden(self._visible_ms(receipt), handle, now_ms)
            self.perhaps_acknowledged.discard(name)
            self._keep(popped)

    def _visible_ms(self, receipt: Receipt) -> int:
        return receipt.visible_ms

    def _keep(self, popped: Popped) -> None:
        """Keep a message that is to be acknowledged, or bury it if it was popped too often."""
        if self.limit is not None and popped.attempts >= self.limit:
            self._bury(popped)
        else:
            self._unacked.append((popped.name, popped.handle))
            if self.at_once is not None and self.at_once.random() < AT_ONCE_PART:
                self._hide(*self._unacked.pop(), self.at_once)

    def _bury(self, popped: Popped) -> None:
        """Give a message to the dead letters, and acknowledge it once it is there."""
        fields = {
            "offset": popped.place,
            "group": self.name,
            "delayLevel": -1,
            "originMsgId": "",
            "originTopic": self.topic,
            "unitMode": "false",
        }
        returned = self.world.promises.returning((self.dead, popped.name, popped.attempts + 1))

        def buried(answer: Frame | None) -> None:
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                returned.taken += 1
                self._unacked.append((popped.name, popped.handle))

        self.connection.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields, buried)

    def _check_hidden(self, name: str, hidden: _Hidden | None, now_ms: int, may_be_twice: bool) -> None:
        if hidden is None or may_be_twice:
            return
        if hidden.is_done:
            raise Violation(f"{self.name} has acknowledged {name}, and pops it again")
        if now_ms < hidden.until_ms:
            raise Violation(f"{self.name} pops {name}, which is hidden for {hidden.until_ms - now_ms} ms more")

    def _acknowledge_some(self) -> None:
        """Acknowledge all that was popped together with the last message, in one request."""
        terms = parse_receipt(self._unacked[-1][1])[:-1]
        some = [each for each in self._unacked if parse_receipt(each[1])[:-1] == terms]
        self._unacked = [each for each in self._unacked if each not in some]

        def acked(outcome: Outcome | None) -> None:
            for name, handle in some:
                self._acked(name, handle, outcome)

        assert isinstance(self.pops, RemotingPops)
        self.pops.acknowledge_all([handle for _, handle in some], acked)

    def _acknowledge(self, name: str, handle: str) -> None:
        self.pops.acknowledge(handle, partial(self._acked, name, handle))

    def _acked(self, name: str, handle: str, outcome: Outcome | None) -> None:
        hidden = self._hidden.get(name)
        if outcome is None:
            if hidden is None or hidden.handle == handle:
                self.perhaps_acknowledged.add(name)
            return
        if not outcome.is_done:
            self._check_late(name, handle, outcome)
            return
        self.acknowledged.add(name)
        # Later it may be on its way back already.
        if hidden is not None and hidden.handle == handle and self.world.wall_ms < hidden.until_ms:
            hidden.is_done = True

    def _check_late(self, name: str, handle: str, outcome: Outcome) -> None:
        """Check that a handle that is said to be too old is that."""
        hidden = self._hidden.get(name)
        if not outcome.is_late or hidden is None or hidden.handle != handle:
            return
        is_early = self.world.wall_ms < hidden.until_ms and not hidden.is_done
        if is_early and not self.world.was_full_since(hidden.popped_ms):
            raise Violation(f"the handle of {name} is said to be over, {hidden.until_ms - self.world.wall_ms} ms early")

    def _hide(self, name: str, handle: str, random: Random) -> None:
        ms = random.randrange(1_000, 8_000)
        hidden = self._hidden.get(name)
        if hidden is not None and hidden.handle == handle and self.world.wall_ms < hidden.until_ms:
            # Until it is answered nobody knows which time counts.
            del self._hidden[name]
        else:
            self._twice.add(name)
        self.pops.hide(handle, ms, partial(self._changed, name, handle))

    def _changed(self, name: str, handle: str, outcome: Outcome | None) -> None:
        if outcome is None or not outcome.is_done:
            return
        old, changed = parse_receipt(handle), parse_receipt(outcome.handle)
        hidden = self._hidden.get(name)
        if changed.popped_ms >= old.visible_ms:
            self._twice.add(name)
            if hidden is not None and hidden.handle == handle:
                hidden.handle = outcome.handle
        elif name not in self._hidden:
            self._hidden[name] = _Hidden(changed.visible_ms, outcome.handle, changed.popped_ms)
        self._unacked.append((name, outcome.handle))
