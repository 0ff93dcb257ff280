"""A group that pulls: it commits its offsets, gives messages back, and must get every message, in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Protocol

from broker.rocketmq.tables import names
from formats.rocketmq.files.record import Record
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from tests.broker.rocketmq.answers import records_of
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.process import DELAYS_MS
from tests.simulator.rocketmq.producers import Link, Surroundings, beat
from tests.simulator.rocketmq.promises import Back, Promises, Returned
from tests.simulator.rocketmq.wire import Connection, name_of

__all__ = ["KEPT_AFTER_MS", "Beginning", "PullGroup"]

# Offsets are written every 5 s, with a tick of the clock: before that a crash may bring messages again.
KEPT_AFTER_MS = 6_000
# A held request is answered when its time is over, with one of the looks at them, once a second.
LATE_MS = 5_000
FIRST_LEVEL = 3
TIMES_MAX = 3
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4

# A group that begins at a time begins at most this long before it asks for it.
BEFORE_MS_MAX = 120_000
# The chance that a group asks for an offset that it knows, as at a rebalance.
AGAIN_LUCK = 0.08

Key = tuple[str, int]


class Beginning(Enum):
    """The place in a queue where a group begins that has no offset there."""

    START = "the start"
    END = "the end"
    TIME = "a time"


class _Stored(Protocol):
    """A message in the store; see `stores.Kept`."""

    @property
    def topic(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def queue_id(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def stored_ms(self) -> int: ...


@dataclass(slots=True)
class Progress:
    """The progress in one queue that a group has told the broker."""

    # The offset to go on from; None if it has to be asked for.
    next_offset: int | None = None
    # Offsets that the broker has taken, with the times.
    taken: list[tuple[int, int]] = field(default_factory=list)
    # The lowest that the broker may answer with, and the highest; -1 as long as none may be committed.
    floor: int = 0
    ceiling: int = -1
    # The offset at which the group has begun. Messages before it were stored by `high_ms`, the others from `low_ms` on.
    begin: int = 0
    low_ms: int = 0
    high_ms: int = 0
    is_busy: bool = False

    def took(self, offset: int, now_ms: int) -> None:
        """Note that the broker has taken an offset."""
        self.floor = max(self.floor, offset)
        self.taken.append((now_ms, self.floor))


class PullGroup:
    """A group of one consumer. With a tag it gets messages with that only. `limit`: the retries of a message."""

    def __init__(
        self,
        world: Surroundings,
        name: str,
        tag: str | None = None,
        beginning: Beginning = Beginning.START,
        limit: int = TIMES_MAX,
        *,
        is_patient: bool = False,
    ) -> None:
        self.world = world
        self.name = name
        self.tag = tag
        self.beginning = beginning
        self.limit = limit
        self.retry = names.RETRY_PREFIX + name
        world.promises.counted |= {self.retry, names.DEAD_LETTER_PREFIX + name}
        self.consumed: set[str] = set()
        self.queues: dict[Key, Progress] = {
            (topic, queue_id): Progress() for topic, queues in world.topics.items() for queue_id in range(queues)
        }
        self.queues[self.retry, 0] = Progress()
        # Requests that are held: by queue, from which offset on, and when they are to be answered at last.
        self.held: dict[Key, tuple[int, int]] = {}
        self.is_patient = is_patient
        self.back_luck = 0.4 if is_patient else 0.08
        self.connection: Connection

    @property
    def link(self) -> Link:
        """The connection of this client."""
        return self.connection

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
        if self.queues[key].next_offset is None or self.world.random.random() < AGAIN_LUCK:
            self._ask_offset(key)
        else:
            self._pull(key)

    def _fields(self, key: Key) -> dict[str, Any]:
        return {"consumerGroup": self.name, "topic": key[0], "queueId": key[1]}

    def _ask_offset(self, key: Key) -> None:
        fields = self._fields(key)
        if self._chooses_beginning(key):
            fields["setZeroIfNotFound"] = "false"
        self.connection.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields, partial(self._offset_told, key))

    def _chooses_beginning(self, key: Key) -> bool:
        return self.beginning is not Beginning.START and key[0] != self.retry

    def _begin(self, key: Key) -> None:
        """Ask where this group is to begin in a queue."""
        now_ms = self.world.wall_ms
        fields = {"topic": key[0], "queueId": key[1]}
        if self.beginning is Beginning.END:
            self.connection.ask(RequestCode.GET_MAX_OFFSET, fields, partial(self._begun, key, now_ms, None))
            return
        # Messages are stored in the millisecond in which they are sent, most of them.
        sent_ms = [sent.sent_ms for sent in self.world.promises.messages.values()]
        ms = self.world.random.choice([now_ms - self.world.random.randrange(BEFORE_MS_MAX), *sent_ms[-20:]])
        fields["timestamp"] = ms
        self.connection.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields, partial(self._begun, key, ms, ms - 1))

    def _begun(self, key: Key, low_ms: int, high_ms: int | None, answer: Frame | None) -> None:
        if answer is None:
            return
        if answer.code != ResponseCode.SUCCESS:
            raise Violation(f"{self.name} begins in {key}, and is told {answer.code}: {answer.remark}")
        progress = self.queues[key]
        progress.is_busy = False
        progress.next_offset = progress.begin = int((answer.ext_fields or {})["offset"])
        progress.low_ms = low_ms
        progress.high_ms = self.world.wall_ms if high_ms is None else high_ms

    def _offset_told(self, key: Key, answer: Frame | None) -> None:
        if answer is None:
            return
        progress = self.queues[key]
        if answer.code == ResponseCode.QUERY_NOT_FOUND and self._chooses_beginning(key) and not progress.floor:
            self._begin(key)
            return
        progress.is_busy = False
        offset = 0
        if answer.code == ResponseCode.SUCCESS:
            offset = int((answer.ext_fields or {})["offset"])
        elif answer.code not in (ResponseCode.QUERY_NOT_FOUND, ResponseCode.TOPIC_NOT_EXIST):
            raise Violation(f"{self.name} is told {answer.code} of its offset in {key}: {answer.remark}")
        # A group that does not choose its beginning begins at 0.
        ceiling = progress.ceiling if self._chooses_beginning(key) else max(0, progress.ceiling)
        if not progress.floor <= offset <= ceiling:
            raise Violation(f"{self.name} has offset {offset} in {key}, and committed {progress.floor} to {ceiling}")
        progress.next_offset = offset

    def _pull(self, key: Key) -> None:
        progress, random = self.queues[key], self.world.random
        begin = progress.next_offset
        assert begin is not None
        is_held = random.random() < 0.3
        hold_ms = random.randrange(500, 5_000)
        # Messages before `begin` may still be worked on; once that is done, the rest is committed beside the pull.
        committed = progress.floor if is_held and random.random() < 0.5 else begin
        fields = {
            **self._fields(key),
            "queueOffset": begin,
            "maxMsgNums": random.choice((1, 4, 32)),
            "sysFlag": COMMIT | SUBSCRIPTION | (SUSPEND if is_held else 0),
            "commitOffset": committed,
            "suspendTimeoutMillis": hold_ms,
            "subscription": self.tag or "*",
            "subVersion": 1,
        }
        progress.ceiling = max(progress.ceiling, begin)
        self.connection.ask(RequestCode.PULL_MESSAGE, fields, partial(self._pulled, key, begin, committed))
        if committed < begin:
            update = {**self._fields(key), "commitOffset": begin}
            self.connection.ask(RequestCode.UPDATE_CONSUMER_OFFSET, update, partial(self._updated, key, begin))
        if is_held:
            self.held[key] = begin, self.world.wall_ms + hold_ms

    def _updated(self, key: Key, offset: int, answer: Frame | None) -> None:
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            self.queues[key].took(offset, self.world.wall_ms)

    def _pulled(self, key: Key, begin: int, committed: int, answer: Frame | None) -> None:
        self.held.pop(key, None)
        if answer is None:
            return
        progress = self.queues[key]
        progress.is_busy = False
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return
        # It was committed when the request came: of that time no more is known than that it is over.
        progress.took(committed, self.world.wall_ms)
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
            if self.back_luck and self.world.random.random() < self.back_luck:
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
            "maxReconsumeTimes": self.limit,
        }
        if self.is_patient and self.world.random.random() < 0.5:
            # The limit of the group counts: it is the same.
            del fields["maxReconsumeTimes"]
        is_dead = record.reconsume_times >= self.limit
        delay_ms = 0 if is_dead else DELAYS_MS[(level or FIRST_LEVEL + record.reconsume_times) - 1]
        topic = names.DEAD_LETTER_PREFIX + self.name if is_dead else self.retry
        back = Back(name, topic, record.reconsume_times + 1, self.world.wall_ms + delay_ms)
        returned = self.world.promises.returning((topic, name, back.times))
        self.connection.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields, partial(self._given_back, back, returned))

    def _given_back(self, back: Back, returned: Returned, answer: Frame | None) -> None:
        # Without an answer the consumer keeps it, and has it consumed already.
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            returned.taken += 1
            self.world.promises.backs.append(back)

    # -- judgement

    def is_owed(self, each: _Stored, promises: Promises) -> bool:
        """Return whether this group has to get a message of the store. `Violation` if it began at a wrong place."""
        progress = self.queues.get((each.topic, each.queue_id))
        if progress is None or self.tag not in (None, promises.messages[each.name].tag):
            return False
        is_before = each.offset < progress.begin
        if each.stored_ms > progress.high_ms if is_before else each.stored_ms < progress.low_ms:
            raise Violation(
                f"{self.name} began at {progress.begin} of {each.topic}, for {progress.low_ms} to {progress.high_ms}: "
                f"{each.name} at {each.offset} was stored at {each.stored_ms}"
            )
        return not is_before

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
