"""A group that pops: what it does not acknowledge in time comes again, until it does."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

from broker.rocketmq.core import names
from formats.rocketmq.codes import RequestCode, ResponseCode
from formats.rocketmq.frame import Frame, HeaderEncoding
from formats.rocketmq.receipts import parse_receipt, retry_topic
from formats.rocketmq.record import Record
from tests.simulator.invariants import Violation
from tests.simulator.rocketmq.consumers import KEPT_AFTER_MS
from tests.simulator.rocketmq.process import BROKER
from tests.simulator.rocketmq.producers import Surroundings, beat
from tests.simulator.rocketmq.promises import Sent
from tests.simulator.rocketmq.wire import Connection, name_of, popped_of

__all__ = ["PopGroup"]

POPS_MAX = 3
NO_ROOM = (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_MESSAGE)


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
    """A group that pops a topic. With a `limit` it is patient: what was retried so often goes to the dead letters."""

    def __init__(
        self, world: Surroundings, name: str, topic: str, limit: int | None = None, init_mode: int = 0
    ) -> None:
        self.world = world
        self.name = name
        self.topic = topic
        self.limit = limit
        self.init_mode = init_mode
        self._dead = names.DEAD_LETTER_PREFIX + name
        world.promises.counted.add(self._dead)
        # The number of times that a message was popped.
        self._attempts: Counter[str] = Counter()
        # Messages that were hidden for longer when they may have been on their way back: they may come twice.
        self._twice: set[str] = set()
        self.acknowledged: set[str] = set()
        # The broker died before it answered, and may have noted them. Those that come again are not among them.
        self.perhaps_acknowledged: set[str] = set()
        # By message, in this life of the broker. A name may be stored more than once: then nothing is said of it.
        self._hidden: dict[str, _Hidden] = {}
        self._unacked: list[tuple[str, str]] = []
        self._pops = 0
        # The last death of the broker, and the last time that an answer to a pop was lost.
        self._since_ms = self._lost_ms = 0
        self.is_careful = False
        self.connection: Connection

    def connect(self) -> None:
        """Connect, after a start of the broker or of this client."""
        self.connection = self.world.connect(self.name, lambda frame: None, HeaderEncoding.JSON)
        self._pops = 0
        if self.limit is None:
            self._unacked.clear()

    def broker_died(self) -> None:
        """Keep what was done before the offsets were last written; everything else may come twice."""
        before_ms = self.world.wall_ms - KEPT_AFTER_MS
        kept: dict[str, _Hidden] = {}
        for name, hidden in self._hidden.items():
            sent = self.world.promises.messages[name]
            # What waited for a time or a commit may be given out again.
            is_once = not (self._may_be_twice(sent) or sent.due_ms or sent.is_half)
            is_once &= hidden.is_kept or sent.sent_ms > self._since_ms
            if hidden.is_done and hidden.popped_ms <= before_ms and is_once:
                hidden.is_kept = True
                kept[name] = hidden
        self._hidden = kept
        self._since_ms = self.world.wall_ms

    def _may_be_twice(self, sent: Sent) -> bool:
        return self.world.was_full or sent.may_be_there or sent.name in self._twice

    def heartbeat(self) -> None:
        """Say that this group is there."""
        beat(self.connection, self.name, b'"consumerDataSet":[{"groupName":"%b","subscriptionDataSet":[]}]')

    def act(self) -> None:
        """Pop, acknowledge, or hide a message for longer or shorter."""
        random = self.world.random
        luck = random.random()
        if self._unacked and (self.is_careful or luck < 0.5):
            self._acknowledge(*self._unacked.pop(0 if self.is_careful else random.randrange(len(self._unacked))))
        elif self._unacked and luck < 0.6:
            self._hide(*self._unacked.pop(random.randrange(len(self._unacked))))
        elif self._unacked and luck < (0.7 if self.limit is None else 0.9):
            # It forgets one.
            self._unacked.pop(random.randrange(len(self._unacked)))
        elif self._pops < POPS_MAX:
            self._pop()

    def _pop(self) -> None:
        random = self.world.random
        fields = {
            "consumerGroup": self.name,
            "topic": self.topic,
            "queueId": -1,
            "maxMsgNums": random.choice((1, 8, 32)),
            "invisibleTime": random.randrange(2_000, 10_000),
            "pollTime": random.choice((0, 1_000, 3_000)),
            "bornTime": self.world.wall_ms,
            "initMode": self.init_mode,
        }
        self._pops += 1
        self.connection.ask(RequestCode.POP_MESSAGE, fields, self._popped)

    def _popped(self, answer: Frame | None) -> None:
        self._pops -= 1
        if answer is None:
            self._lost_ms = self.world.wall_ms
        if answer is None or answer.code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL):
            return
        if answer.code != ResponseCode.SUCCESS:
            raise Violation(f"{self.name} pops, and is told {answer.code}: {answer.remark}")
        now_ms = self.world.wall_ms
        for record, handle in popped_of(answer, BROKER):
            name, receipt = name_of(record.body), parse_receipt(handle)
            sent = self.world.promises.messages.get(name)
            if sent is None:
                raise Violation(f"{self.name} pops {name}, which nobody has sent")
            if receipt.kind == "0":
                self.world.promises.found(self.topic, record.queue_id, record.queue_offset, name, record.stored_ms)
            # What was sent before the broker died may come twice, and so may what was revived on a full disk.
            hidden = self._hidden.get(name)
            has_outlived = sent.sent_ms <= self._since_ms and (hidden is None or not hidden.is_kept)
            may_be_twice = self._may_be_twice(sent) or has_outlived
            self._check_hidden(name, hidden, now_ms, may_be_twice)
            attempt, self._attempts[name] = self._attempts[name], self._attempts[name] + 1
            # An answer that was lost has counted.
            is_less = record.reconsume_times < attempt
            is_more = record.reconsume_times > attempt and sent.sent_ms > self._lost_ms
            if (is_less or is_more) and not may_be_twice:
                raise Violation(
                    f"{self.name} popped {name} {attempt} times, and the broker counts {record.reconsume_times}"
                )
            self._hidden[name] = _Hidden(receipt.visible_ms, handle, now_ms)
            self.perhaps_acknowledged.discard(name)
            if self.limit is not None and record.reconsume_times >= self.limit:
                self._bury(name, handle, record)
            else:
                self._unacked.append((name, handle))

    def _bury(self, name: str, handle: str, record: Record) -> None:
        """Give a message to the dead letters, and acknowledge it once it is there."""
        fields = {
            "offset": record.physical_offset,
            "group": self.name,
            "delayLevel": -1,
            "originMsgId": "",
            "originTopic": self.topic,
            "unitMode": "false",
        }
        returned = self.world.promises.returning((self._dead, name, record.reconsume_times + 1))

        def buried(answer: Frame | None) -> None:
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                returned.taken += 1
                self._unacked.append((name, handle))

        self.connection.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields, buried)

    def _check_hidden(self, name: str, hidden: _Hidden | None, now_ms: int, may_be_twice: bool) -> None:
        if hidden is None or may_be_twice:
            return
        if hidden.is_done:
            raise Violation(f"{self.name} has acknowledged {name}, and pops it again")
        if now_ms < hidden.until_ms:
            raise Violation(f"{self.name} pops {name}, which is hidden for {hidden.until_ms - now_ms} ms more")

    def _fields(self, handle: str) -> dict[str, Any]:
        receipt = parse_receipt(handle)
        return {
            "consumerGroup": self.name,
            "topic": self.topic if receipt.kind == "0" else retry_topic(self.topic, self.name),
            "queueId": receipt.queue_id,
            "offset": receipt.queue_offset,
            "extraInfo": handle,
        }

    def _acknowledge(self, name: str, handle: str) -> None:
        answered = partial(self._acked, name, handle)
        self.connection.ask(RequestCode.ACK_MESSAGE, self._fields(handle), answered)

    def _acked(self, name: str, handle: str, answer: Frame | None) -> None:
        hidden = self._hidden.get(name)
        if answer is None:
            if hidden is None or hidden.handle == handle:
                self.perhaps_acknowledged.add(name)
            return
        if answer.code in NO_ROOM:
            return
        if answer.code != ResponseCode.SUCCESS:
            raise Violation(f"{self.name} acknowledges {name}, and is told {answer.code}: {answer.remark}")
        self.acknowledged.add(name)
        # Later it may be on its way back already.
        if hidden is not None and hidden.handle == handle and self.world.wall_ms < hidden.until_ms:
            hidden.is_done = True

    def _hide(self, name: str, handle: str) -> None:
        ms = self.world.random.randrange(1_000, 8_000)
        fields = {**self._fields(handle), "invisibleTime": ms}
        hidden = self._hidden.get(name)
        if hidden is not None and hidden.handle == handle and self.world.wall_ms < hidden.until_ms:
            # Until it is answered nobody knows which time counts.
            del self._hidden[name]
        else:
            self._twice.add(name)
        self.connection.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields, partial(self._changed, name, handle))

    def _changed(self, name: str, handle: str, answer: Frame | None) -> None:
        if answer is None or answer.code in NO_ROOM:
            return
        if answer.code != ResponseCode.SUCCESS:
            raise Violation(f"{self.name} hides {name}, and is told {answer.code}: {answer.remark}")
        fields = answer.ext_fields or {}
        old = parse_receipt(handle)
        popped_ms, invisible_ms = int(fields["popTime"]), int(fields["invisibleTime"])
        changed = old._replace(
            start_offset=old.queue_offset,
            popped_ms=popped_ms,
            invisible_ms=invisible_ms,
            revive_queue=int(fields["reviveQid"]),
        )
        if popped_ms >= old.visible_ms:
            self._twice.add(name)
        elif name not in self._hidden:
            self._hidden[name] = _Hidden(changed.visible_ms, str(changed), popped_ms)
        self._unacked.append((name, str(changed)))
