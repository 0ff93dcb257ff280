"""The clients of a replica group: a producer that tries one broker after another, a reader that asks any, and an
administrator of controllers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Protocol

from formats.rocketmq.flags import Transaction
from formats.rocketmq.message_ids import OffsetId
from formats.rocketmq.properties import encode_properties
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, encode_frame, next_frame
from tests.broker.rocketmq.answers import records_of
from tests.simulator.controllers.judge import Judge
from tests.simulator.controllers.machines import BEGIN_MS, FLEETING, TOPICS, Machine
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.wire import name_of

__all__ = ["GroupClient", "Link"]

ASKED_MAX = 6
# Of all actions in worlds with a topic that comes and goes, those about it, and of these its deletions.
FLEETING_PART, REMOVED_PART = 0.2, 0.1
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4
# The answers to a message that is not acknowledged: it may be stored.
NOT_YET = (ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SYSTEM_ERROR)
NOTHING = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
    ResponseCode.SYSTEM_BUSY,
    # A consumer group that is new, while the disk is full.
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.TOPIC_NOT_EXIST,
)

Done = Callable[[Frame | None], None]


class Link:
    """A client's end of a connection; see `network.End`. It calls `wake` when it has something to say."""

    def __init__(
        self,
        wake: Callable[[Link], None],
        ended: Callable[[], None],
        asked: Callable[[Link, Frame], None] = lambda link, frame: None,
    ) -> None:
        self.finished = False
        self._told = asked
        self._wake = wake
        self._ended = ended
        self._output = bytearray()
        self._opaque = 0
        self._asked: dict[int, tuple[Done, Done]] = {}

    @property
    def asked(self) -> int:
        """The number of requests without an answer."""
        return len(self._asked)

    def ask(self, code: int, body: bytes, fields: dict[str, Any], said: Done, done: Done) -> None:
        """Send a request: `said` gets the answer as it is said, and `done` as it comes, or None."""
        self._opaque += 1
        told = {name: str(value) for name, value in fields.items()}
        self._asked[self._opaque] = said, done
        self._output += encode_frame(Frame(code, self._opaque, 0, None, told, body, version=493))
        self._wake(self)

    def hear(self, data: bytes) -> None:
        """Judge what the other end says; see `network.Watch`."""
        view, at = memoryview(data), 0
        while (found := next_frame(view, at, len(view))) is not None:
            frame, at = found
            if frame.is_response and frame.opaque in self._asked:
                self._asked[frame.opaque][0](frame)

    def receive(self, data: memoryview) -> int:
        at = 0
        while not self.finished and (found := next_frame(data, at, len(data))) is not None:
            frame, at = found
            if not frame.is_response:
                self._told(self, frame)
            elif frame.opaque in self._asked:
                self._asked.pop(frame.opaque)[1](frame)
        return at

    def take_output(self) -> bytearray:
        output, self._output = self._output, bytearray()
        return output

    def output_sent(self) -> None: ...

    def end(self) -> None:
        self.finished = True
        asked, self._asked = self._asked, {}
        self._ended()
        for _, done in asked.values():
            done(None)


class ClientWorld(Protocol):
    """The surroundings of clients."""

    random: Random

    @property
    def now_ms(self) -> int: ...

    def connect_client(self, client: GroupClient, machine: Machine) -> None:
        """Connect a client to a broker, in the next step."""
        ...


class GroupClient:
    """The producer and the reader of a group."""

    def __init__(self, world: ClientWorld, judge: Judge) -> None:
        self.world = world
        self.judge = judge
        self.links: dict[str, Link] = {}
        self.acked = 0
        self.seen: set[str] = set()
        # Messages that readers need not get, though they are confirmed.
        self.unowed: set[str] = set()
        self._count = 0
        self._believed: str | None = None
        self._next: dict[int, int] = dict.fromkeys(range(TOPICS["t"]), 0)
        # Decides on what becomes of a topic that comes and goes, if there is one.
        self.fleeting: Random | None = None

    def tick(self) -> None:
        """Connect where it is not connected."""
        for machine in self.judge.machines:
            if machine.key not in self.links and machine.is_awake:
                self.world.connect_client(self, machine)

    @property
    def unseen(self) -> set[str]:
        """Return the confirmed messages of this producer that the reader must still get."""
        names = {known.name for known in self.judge.truth.values()}
        return {name for name in names if name.startswith(f"{self.judge.name}.")} - self.seen - self.unowed

    def act(self, *, sends: bool = True) -> None:
        """Send a message, or ask for some."""
        machine, random = self._choose(), self.world.random
        link = None if machine is None else self.links.get(machine.key)
        if machine is None or link is None or link.asked >= ASKED_MAX:
            return
        if sends and self.fleeting is not None and self.fleeting.random() < FLEETING_PART:
            if self.fleeting.random() < REMOVED_PART:
                link.ask(RequestCode.DELETE_TOPIC_IN_BROKER, b"", {"topic": FLEETING}, _nothing, _nothing)
            else:
                self._send(machine, link, FLEETING)
        elif sends and random.random() < 0.6:
            self._send(machine, link, "t")
        else:
            self._pull(machine, link)

    def _choose(self) -> Machine | None:
        """Choose who took the last message, mostly."""
        machines, random = self.judge.machines, self.world.random
        if self._believed is not None and random.random() < 0.7:
            return next(machine for machine in machines if machine.key == self._believed)
        return random.choice(machines)

    # -- sending

    def _send(self, machine: Machine, link: Link, topic: str) -> None:
        self._count += 1
        name = f"{self.judge.name}.{self._count}" if topic == "t" else f"{topic}.{self._count}"
        properties = self._properties(name) if topic == "t" else {}
        fields = {
            "a": "p",
            "b": topic,
            "c": "TBW102",
            "d": 4,
            "e": self.world.random.choice(list(self._next)),
            "f": int(Transaction.PREPARED) if "TRAN_MSG" in properties else 0,
            "g": BEGIN_MS + self.world.now_ms,
            "h": 0,
            "i": encode_properties(properties).decode(),
            "j": 0,
            "k": "false",
            "m": "false",
        }
        body = f"{name} ".encode().ljust(self.world.random.randrange(20, 300), b".")
        said, done = partial(self._said, machine, name), partial(self._sent, machine, link, name)
        link.ask(RequestCode.SEND_MESSAGE_V2, body, fields, said, done)

    def _properties(self, name: str) -> dict[str, str]:
        return {"UNIQ_KEY": f"U{name}"}

    def _said(self, machine: Machine, name: str, answer: Frame | None) -> None:
        assert answer is not None
        if answer.code == ResponseCode.SUCCESS:
            offset = OffsetId.parse((answer.ext_fields or {})["msgId"]).physical_offset
            self.judge.answered(machine, name, offset)

    def _sent(self, machine: Machine, link: Link, name: str, answer: Frame | None) -> None:
        if answer is None or answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            if self._believed == machine.key:
                self._believed = None
        elif answer.code == ResponseCode.SUCCESS:
            self.acked += 1
            self._believed = machine.key
            self._taken(link, name, answer.ext_fields or {})
        elif answer.code not in NOT_YET:
            raise Violation(f"{machine.key} answers a message with {answer.code}: {answer.remark}")

    def _taken(self, link: Link, name: str, fields: dict[str, str]) -> None:
        """Go on with a message that was acknowledged; nothing here."""

    def asked(self, link: Link, frame: Frame) -> None:
        """Take a request of a broker; nothing here."""

    # -- reading

    def _pull(self, machine: Machine, link: Link) -> None:
        random = self.world.random
        queue_id = random.choice(list(self._next))
        begin = self._next[queue_id] if random.random() < 0.9 else random.randrange(self._next[queue_id] + 1)
        is_held = random.random() < 0.3
        fields = {
            "consumerGroup": "g",
            "topic": "t",
            "queueId": queue_id,
            "queueOffset": begin,
            "maxMsgNums": random.choice((1, 8, 32)),
            "sysFlag": SUBSCRIPTION | (SUSPEND if is_held else 0),
            "commitOffset": 0,
            "suspendTimeoutMillis": random.randrange(500, 3_000),
            "subscription": "*",
            "subVersion": 1,
        }
        said, done = partial(self._told, machine, queue_id, begin), partial(self._pulled, machine, queue_id, begin)
        link.ask(RequestCode.PULL_MESSAGE, b"", fields, said, done)

    def _told(self, machine: Machine, queue_id: int, begin: int, answer: Frame | None) -> None:
        assert answer is not None
        if answer.code == ResponseCode.SUCCESS:
            for number, record in enumerate(records_of(answer)):
                if (record.queue_id, record.queue_offset) != (queue_id, begin + number):
                    raise Violation(f"{machine.key} gives {record.queue_offset} of {queue_id} for {begin + number}")
                self.judge.read(machine, record)

    def _pulled(self, machine: Machine, queue_id: int, begin: int, answer: Frame | None) -> None:
        if answer is None or answer.code in NOTHING:
            return
        if answer.code != ResponseCode.SUCCESS:
            raise Violation(f"{machine.key} answers a reader with {answer.code}: {answer.remark}")
        records = records_of(answer)
        self.seen.update(name_of(record.body) for record in records)
        self._next[queue_id] = max(self._next[queue_id], begin + len(records))


def _nothing(answer: Frame | None) -> None:
    """Take an answer that says nothing."""
