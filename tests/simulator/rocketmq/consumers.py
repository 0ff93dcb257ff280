"""A group that pulls: it commits its offsets, gives messages back, and must get every message, in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from broker.rocketmq.core import names
from formats.rocketmq.codes import RequestCode, ResponseCode
from formats.rocketmq.frame import Frame
from formats.rocketmq.record import Record
from tests.broker.rocketmq.answers import records_of
from tests.simulator.invariants import Violation
from tests.simulator.rocketmq.process import DELAYS_MS
from tests.simulator.rocketmq.producers import Surroundings, beat
from tests.simulator.rocketmq.promises import Back
from tests.simulator.rocketmq.wire import Connection, name_of

__all__ = ["PullGroup"]

# Offsets are written every 5 s, with a tick of the clock: before that a crash may bring messages again.
KEPT_AFTER_MS = 6_000
# A held request is answered when its time is over, with one of the looks at them, once a second.
LATE_MS = 5_000
FIRST_LEVEL = 3
TIMES_MAX = 3
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4

Key = tuple[str, int]


@dataclass(slots=True)
class Progress:
    """The progress in one queue that a group has told the broker."""

    # The offset to go on from; None if it has to be asked for.
    next_offset: int | None = None
    # Offsets that the broker has taken, with the times.
    taken: list[tuple[int, int]] = field(default_factory=list)
    # The lowest that the broker may answer with, and the highest.
    floor: int = 0
    ceiling: int = 0
    is_busy: bool = False


class PullGroup:
    """A group of one consumer. With a tag it gets messages with that only."""

    def __init__(self, world: Surroundings, name: str, tag: str | None = None) -> None:
        self.world = world
        self.name = name
        self.tag = tag
        self.retry = names.RETRY_PREFIX + name
        self.consumed: set[str] = set()
        self.queues: dict[Key, Progress] = {
            (topic, queue_id): Progress() for topic, queues in world.topics.items() for queue_id in range(queues)
        }
        self.queues[self.retry, 0] = Progress()
        # Requests that are held: by queue, from which offset on, and when they are to be answered at last.
        self.held: dict[Key, tuple[int, int]] = {}
        self.gives_back = True
        self.connection: Connection

    def connect(self) -> None:
        """Connect, after a start of the broker."""
        self.connection = self.world.connect(self.name, lambda frame: None)
        self.held.clear()
        for progress in self.queues.values():
            progress.next_offset, progress.is_busy = None, False
        self.heartbeat()

    def heartbeat(self) -> None:
        """Say that this group is there."""
        beat(self.connection, self.name, b'"consumerDataSet":[{"groupName":"%b","subscriptionDataSet":[]}]')

    def broker_died(self) -> None:
        """Offsets of the last seconds may be forgotten."""
        before_ms = self.world.wall_ms - KEPT_AFTER_MS
        for progress in self.queues.values():
            known = [offset for ms, offset in progress.taken if ms <= before_ms]
            progress.floor = known[-1] if known else 0
            progress.taken = [(0, progress.floor)] if known else []

    # -- what it does

    def act(self) -> None:
        """Ask for messages of a queue."""
        free = [key for key, progress in self.queues.items() if not progress.is_busy]
        if not free:
            return
        key = self.world.random.choice(free)
        self.queues[key].is_busy = True
        if self.queues[key].next_offset is None:
            self._ask_offset(key)
        else:
            self._pull(key)

    def _fields(self, key: Key) -> dict[str, Any]:
        return {"consumerGroup": self.name, "topic": key[0], "queueId": key[1]}

    def _ask_offset(self, key: Key) -> None:
        self.connection.ask(RequestCode.QUERY_CONSUMER_OFFSET, self._fields(key), partial(self._offset_told, key))

    def _offset_told(self, key: Key, answer: Frame | None) -> None:
        if answer is None:
            return
        progress = self.queues[key]
        progress.is_busy = False
        offset = 0
        if answer.code == ResponseCode.SUCCESS:
            offset = int((answer.ext_fields or {})["offset"])
        elif answer.code not in (ResponseCode.QUERY_NOT_FOUND, ResponseCode.TOPIC_NOT_EXIST):
            raise Violation(f"{self.name} is told {answer.code} of its offset in {key}: {answer.remark}")
        if not progress.floor <= offset <= progress.ceiling:
            raise Violation(
                f"{self.name} has offset {offset} in {key}, and committed {progress.floor} to {progress.ceiling}"
            )
        progress.next_offset = offset

    def _pull(self, key: Key) -> None:
        progress, random = self.queues[key], self.world.random
        begin = progress.next_offset
        assert begin is not None
        is_held = random.random() < 0.3
        hold_ms = random.randrange(500, 5_000)
        fields = {
            **self._fields(key),
            "queueOffset": begin,
            "maxMsgNums": random.choice((1, 4, 32)),
            "sysFlag": COMMIT | SUBSCRIPTION | (SUSPEND if is_held else 0),
            "commitOffset": begin,
            "suspendTimeoutMillis": hold_ms,
            "subscription": self.tag or "*",
            "subVersion": 1,
        }
        progress.ceiling = max(progress.ceiling, begin)
        self.connection.ask(RequestCode.PULL_MESSAGE, fields, partial(self._pulled, key, begin))
        if is_held:
            self.held[key] = begin, self.world.wall_ms + hold_ms

    def _pulled(self, key: Key, begin: int, answer: Frame | None) -> None:
        self.held.pop(key, None)
        if answer is None:
            return
        progress = self.queues[key]
        progress.is_busy = False
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return
        # It was committed when the request came: of that time no more is known than that it is over.
        progress.taken.append((self.world.wall_ms, begin))
        progress.floor = begin
        fields = answer.ext_fields or {}
        if answer.code == ResponseCode.SUCCESS:
            self._got(key, begin, records_of(answer), int(fields["nextBeginOffset"]))
        elif answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            self._got(key, begin, [], int(fields["nextBeginOffset"]))
        elif answer.code != ResponseCode.PULL_NOT_FOUND:
            raise Violation(f"{self.name} pulls {key} from {begin}, and is told {answer.code}: {answer.remark}")

    def _got(self, key: Key, begin: int, records: list[Record], end: int) -> None:
        offsets = {record.queue_offset for record in records}
        order = [record.queue_offset for record in records]
        if order != sorted(offsets) or any(not begin <= offset < end for offset in order):
            raise Violation(f"{self.name} pulls {key} from {begin} to {end}, and gets {order}")
        for offset in range(begin, end):
            self._check_left_out(key, offset, offset in offsets)
        for record in records:
            name = name_of(record.body)
            self.world.promises.found(*key, record.queue_offset, name, record.stored_ms)
            self.consumed.add(name)
            if self.gives_back and self.world.random.random() < 0.08:
                self._give_back(name, record)
        self.queues[key].next_offset = end

    def _check_left_out(self, key: Key, offset: int, is_there: bool) -> None:
        """A message is left out if it has another tag, and only then."""
        name = self.world.promises.places.get(key, {}).get(offset)
        tag = None if name is None else self.world.promises.messages[name].tag
        is_wanted = self.tag is None or (tag == self.tag if tag is not None else is_there)
        if is_wanted != is_there:
            raise Violation(
                f"{self.name} gets{'' if is_there else ' not'} {name} at {offset} of {key}, which has tag {tag}"
            )

    # -- messages that come again

    def _give_back(self, name: str, record: Record) -> None:
        level = self.world.random.choice((0, 1, 1, 2))
        fields = {
            "offset": record.physical_offset,
            "group": self.name,
            "delayLevel": level,
            "originMsgId": "",
            "originTopic": record.topic,
            "unitMode": "false",
            "maxReconsumeTimes": TIMES_MAX,
        }
        is_dead = record.reconsume_times >= TIMES_MAX
        delay_ms = 0 if is_dead else DELAYS_MS[(level or FIRST_LEVEL + record.reconsume_times) - 1]
        topic = names.DEAD_LETTER_PREFIX + self.name if is_dead else self.retry
        back = Back(name, topic, record.reconsume_times + 1, self.world.wall_ms + delay_ms)
        self.connection.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields, partial(self._given_back, back))

    def _given_back(self, back: Back, answer: Frame | None) -> None:
        # Without an answer the consumer keeps it, and has it consumed already.
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            self.world.promises.backs.append(back)

    # -- judgement

    def check_held(self) -> None:
        """Check that held requests get the messages that are there, and an answer in time."""
        if self.connection.outgoing:
            return
        for key, (begin, until_ms) in self.held.items():
            if self.world.wall_ms > until_ms + LATE_MS:
                raise Violation(f"{self.name} waits for an answer about {key} since {until_ms}")
            name = self.world.promises.places.get(key, {}).get(begin)
            if name is not None and self.tag is None:
                raise Violation(f"{self.name} waits at {begin} of {key}, where {name} is")
