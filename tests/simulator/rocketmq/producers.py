"""Producers of a simulated world: plain messages, batches, late ones, transactions; what is lost is sent again."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Protocol

from formats.rocketmq.flags import Transaction
from formats.rocketmq.message_ids import OffsetId
from formats.rocketmq.properties import encode_properties
from formats.rocketmq.remoting.batch import BatchMessage, encode_batch
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, HeaderEncoding
from tests.broker.rocketmq.answers import records_of
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.calls import Calls
from tests.simulator.rocketmq.process import DELAYS_MS
from tests.simulator.rocketmq.promises import Fate, Promises, Sent
from tests.simulator.rocketmq.wire import Connection, name_of

__all__ = ["RECALL_MS_MIN", "WAITING_MAX", "Link", "Producer", "Surroundings", "beat"]

LEVELS = (1, 1, 2)
WAITING_MAX = 8
REFUSALS = (ResponseCode.SERVICE_NOT_AVAILABLE,)
# A message can be recalled in time only if it is not given out meanwhile.
RECALL_MS_MIN = 2_000
# A producer may repeat its answer to a question about a transaction, at most this time later.
REPEAT_MS_MAX = 12_000


Link = Connection | Calls


class Surroundings(Protocol):
    """The world as its clients see it."""

    random: Random
    promises: Promises
    topics: dict[str, int]

    @property
    def wall_ms(self) -> int: ...

    def was_full_since(self, ms: int) -> bool:
        """Return whether the disk may have lacked room at a time or later."""
        ...

    def note(self, text: str) -> None:
        """Tell what happens."""
        ...

    def connect(self, name: str, asked: Callable[[Frame], None], encoding: HeaderEncoding | None = None) -> Connection:
        """Connect a client; unless it says how, it writes headers in either way."""
        ...

    def connect_grpc(self, name: str) -> Calls:
        """Connect a client to the gRPC service."""
        ...

    def connect_nameserver(self, name: str) -> Connection:
        """Connect an administrator to a nameserver."""
        ...

    def disconnect(self, link: Link) -> None:
        """End a connection."""
        ...


def beat(connection: Connection, name: str, group: bytes) -> None:
    """Send a heartbeat."""
    named = name.encode()
    body = b'{"clientID":"%b",%b}' % (named, group % named)
    connection.ask(RequestCode.HEART_BEAT, {}, lambda answer: None, body)


class Producer:
    """A producer; its connection is made by `connect`."""

    def __init__(self, world: Surroundings, name: str) -> None:
        self.world = world
        self.name = name
        self._count = 0
        self._again: list[tuple[Sent, dict[str, str], int]] = []
        # The order of sending on this connection, and with it the offset of each message, by queue. A broker may answer
        # in another order.
        self._order = 0
        self._placed: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self._recallable: list[tuple[Sent, str]] = []
        # Answers to questions about transactions that will be given once more, and when.
        self._repeats: list[tuple[int, Callable[[], None]]] = []
        self.connection: Connection

    @property
    def link(self) -> Link:
        """The connection of this client."""
        return self.connection

    def connect(self) -> None:
        """Connect, and say who this is."""
        self._placed.clear()
        self._repeats.clear()
        self.connection = self.world.connect(self.name, self._asked)
        self.heartbeat()

    def heartbeat(self) -> None:
        """Say that this producer is there."""
        beat(self.connection, self.name, b'"producerDataSet":[{"groupName":"%b"}]')

    def act(self) -> None:
        """Send a message, or send one again, or recall one."""
        if self.link.waiting >= WAITING_MAX:
            return
        random = self.world.random
        if self._repeats and self._repeats[0][0] <= self.world.wall_ms:
            self._repeats.pop(0)[1]()
            return
        if self._again and random.random() < 0.7:
            self._send(*self._again.pop())
            return
        kind = random.randrange(20)
        if kind < 10:
            self._send_plain()
        elif kind < 12:
            self._send_batch()
        elif kind < 14:
            self.send_delayed()
        elif kind < 16:
            self._send_late(random.choice(self._timers()))
        elif kind < 19:
            self._prepare()
        elif self._recallable:
            self._recall(*self._recallable.pop(random.randrange(len(self._recallable))))

    def _timers(self) -> list[dict[str, str]]:
        random = self.world.random
        ms = random.randrange(1_000, 20_000)
        return [
            {"TIMER_DELAY_SEC": str(ms // 1000)},
            {"TIMER_DELAY_MS": str(ms)},
            {"TIMER_DELIVER_MS": str(self.world.wall_ms + ms)},
        ]

    # -- messages

    def _make(self, **changes: Any) -> Sent:
        self._count += 1
        topic = self.world.random.choice(list(self.world.topics))
        sent = Sent(f"{self.name}.{self._count}", topic, self.world.random.choice("AB"), self.world.wall_ms, **changes)
        self.world.promises.messages[sent.name] = sent
        return sent

    def _send_plain(self) -> None:
        self._send(self._make(), {}, 0)

    def send_delayed(self) -> None:
        """Send a message with a level of delay."""
        self._send_late({"DELAY": str(self.world.random.choice(LEVELS))})

    def _send_late(self, when: dict[str, str]) -> None:
        self._send(self._make(due_ms=self.world.wall_ms + _delay_ms(when, self.world.wall_ms)), when, 0)

    def _prepare(self) -> None:
        fate = self.world.random.choice((Fate.COMMIT, Fate.ROLLBACK))
        self._send(self._make(is_half=True, fate=fate), {"TRAN_MSG": "true", "PGROUP": self.name}, 4)

    def _fields(self, topic: str, properties: dict[str, str], flags: int) -> dict[str, Any]:
        queue_id = self.world.random.randrange(self.world.topics[topic])
        text = encode_properties(properties).decode()
        return {
            "a": self.name,
            "b": topic,
            "c": "TBW102",
            "d": 4,
            "e": queue_id,
            "f": flags,
            "g": self.world.wall_ms,
            "h": 0,
            "i": text,
            "j": 0,
            "k": "false",
            "m": "false",
        }

    def _body(self, sent: Sent) -> bytes:
        return f"{sent.name} ".encode().ljust(self.world.random.randrange(20, 600), b".")

    def _send(self, sent: Sent, properties: dict[str, str], flags: int) -> None:
        told = {"UNIQ_KEY": f"U{sent.name}", "KEYS": f"K{sent.name}", "TAGS": sent.tag, **properties}
        sent.keys = (told["KEYS"],)
        fields = self._fields(sent.topic, told, flags)
        self._order += 1
        answered = partial(self._answered, sent, properties, flags, fields["e"], self._order)
        self.connection.ask(RequestCode.SEND_MESSAGE_V2, fields, answered, self._body(sent))

    def _answered(
        self, sent: Sent, properties: dict[str, str], flags: int, queue_id: int, order: int, answer: Frame | None
    ) -> None:
        if answer is None:
            sent.may_be_there = True
            if self.world.random.random() < 0.8:
                self._again.append((sent, properties, flags))
        elif answer.code in REFUSALS and self.world.was_full_since(sent.sent_ms):
            sent.is_refused = True
        elif answer.code != ResponseCode.SUCCESS:
            raise Violation(f"{sent.name} is answered with {answer.code}: {answer.remark}")
        else:
            sent.is_acked, sent.is_refused = True, False
            self._acked(sent, properties, queue_id, order, answer.ext_fields or {})

    def _acked(self, sent: Sent, properties: dict[str, str], queue_id: int, order: int, fields: dict[str, str]) -> None:
        if sent.is_half:
            self._end_local(sent, fields)
        elif not properties:
            self._told(sent, queue_id, int(fields["queueOffset"]), order)
        elif "recallHandle" in fields and not sent.may_be_there:
            self._recallable.append((sent, fields["recallHandle"]))

    def _told(self, sent: Sent, queue_id: int, offset: int, order: int) -> None:
        """Note the place of a message: messages of a queue are in the order in which they were sent."""
        key = sent.topic, queue_id
        placed = self._placed.setdefault(key, [])
        at = bisect(placed, (order, offset))
        if at > 0 and placed[at - 1][1] >= offset:
            raise Violation(f"{sent.name} is at offset {offset}, and one sent before is at {placed[at - 1][1]}")
        if at < len(placed) and placed[at][1] <= offset:
            raise Violation(f"{sent.name} is at offset {offset}, and one sent after it is at {placed[at][1]}")
        placed.insert(at, (order, offset))
        self.world.promises.placed(*key, offset, sent.name)

    def _send_batch(self) -> None:
        first = self._make()
        batch = [first, *(self._make() for _ in range(self.world.random.randrange(5)))]
        for sent in batch:
            sent.topic = first.topic
            # With a disk that is full, a part of it is stored.
            sent.may_be_there = True
        messages = [
            BatchMessage(0, self._body(sent), encode_properties({"UNIQ_KEY": f"U{sent.name}", "TAGS": sent.tag}))
            for sent in batch
        ]
        fields = {**self._fields(first.topic, {}, 0), "m": "true"}
        self._order += 1
        answered = partial(self._batch_answered, batch, fields["e"], self._order)
        self.connection.ask(RequestCode.SEND_BATCH_MESSAGE, fields, answered, encode_batch(messages))

    def _batch_answered(self, batch: list[Sent], queue_id: int, order: int, answer: Frame | None) -> None:
        if answer is None or (answer.code in REFUSALS and self.world.was_full_since(batch[0].sent_ms)):
            return
        if answer.code != ResponseCode.SUCCESS:
            raise Violation(f"a batch is answered with {answer.code}: {answer.remark}")
        first = int((answer.ext_fields or {})["queueOffset"])
        for number, sent in enumerate(batch):
            sent.is_acked = True
            self._told(sent, queue_id, first + number, order)

    # -- transactions

    def _end_local(self, sent: Sent, fields: dict[str, str]) -> None:
        """The local transaction is over: say how, or keep silent until somebody asks."""
        if self.world.random.random() < 0.6:
            place = OffsetId.parse(fields["msgId"]).physical_offset
            self._end(sent, int(fields["queueOffset"]), place, is_asked=False)

    def _end(self, sent: Sent, offset: int, place: int, *, is_asked: bool) -> None:
        # Nothing has come of what was not acknowledged.
        fate = sent.fate if sent.is_acked else Fate.ROLLBACK
        sent.is_told |= fate is Fate.COMMIT
        fields = {
            "producerGroup": self.name,
            "tranStateTableOffset": offset,
            "commitLogOffset": place,
            "commitOrRollback": int(Transaction.COMMIT if fate is Fate.COMMIT else Transaction.ROLLBACK),
            "fromTransactionCheck": str(is_asked).lower(),
            "msgId": f"U{sent.name}",
        }
        if self.world.random.random() < 0.5:
            self.connection.ask(RequestCode.END_TRANSACTION, fields, None)
        else:
            self.connection.ask(RequestCode.END_TRANSACTION, fields, partial(self._ended, sent, fate))

    def _ended(self, sent: Sent, fate: Fate, answer: Frame | None) -> None:
        if answer is None:
            return
        is_refused = answer.code in REFUSALS and self.world.was_full_since(sent.sent_ms)
        if answer.code != ResponseCode.SUCCESS and not is_refused:
            raise Violation(f"the end of a transaction is answered with {answer.code}: {answer.remark}")
        if fate is Fate.COMMIT and answer.code == ResponseCode.SUCCESS and sent.ended_ms is None:
            sent.ended_ms = self.world.wall_ms

    def _asked(self, frame: Frame) -> None:
        if frame.code != RequestCode.CHECK_TRANSACTION_STATE:
            return
        fields = frame.ext_fields or {}
        (record,) = records_of(frame)
        sent = self.world.promises.messages[name_of(record.body)]
        self.world.promises.asked(sent)
        if self.world.random.random() < 0.8:
            offset, place = int(fields["tranStateTableOffset"]), int(fields["commitLogOffset"])
            self._end(sent, offset, place, is_asked=True)
            if self.world.random.random() < 0.4:
                due_ms = self.world.wall_ms + self.world.random.randrange(REPEAT_MS_MAX)
                self._repeats.append((due_ms, partial(self._end, sent, offset, place, is_asked=True)))

    # -- recalls

    def _recall(self, sent: Sent, handle: str) -> None:
        if sent.due_ms - self.world.wall_ms < RECALL_MS_MIN:
            return
        fields = {"topic": sent.topic, "recallHandle": handle, "producerGroup": self.name}
        self.connection.ask(RequestCode.RECALL_MESSAGE, fields, partial(self._recalled, sent))

    def _recalled(self, sent: Sent, answer: Frame | None) -> None:
        if answer is None:
            # Nobody knows whether it comes.
            sent.is_acked = False
        elif answer.code == ResponseCode.SUCCESS:
            sent.is_recalled = True


def _delay_ms(when: dict[str, str], now_ms: int) -> int:
    """The time for which a message is to wait."""
    if "DELAY" in when:
        return DELAYS_MS[int(when["DELAY"]) - 1]
    if "TIMER_DELAY_SEC" in when:
        return int(when["TIMER_DELAY_SEC"]) * 1000
    if "TIMER_DELAY_MS" in when:
        return int(when["TIMER_DELAY_MS"])
    return int(when["TIMER_DELIVER_MS"]) - now_ms
