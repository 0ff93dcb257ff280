"""A whole broker over a store in memory, with a clock that tests set, and peers without sockets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from broker.common.clock import Now
from broker.common.faults import Faults
from broker.rocketmq.access.guard import AccessOptions, Guard
from broker.rocketmq.access.tables import AccessTables
from broker.rocketmq.administration.registration import Nameservers
from broker.rocketmq.broker.broker import Broker, Given, State, World
from broker.rocketmq.config.node import BROKER_READERS, LOCKED
from broker.rocketmq.consuming.pop.order import Orders
from broker.rocketmq.consuming.pulling import Puller
from broker.rocketmq.delays.levels import make_due_time
from broker.rocketmq.remoting.session import Session
from broker.rocketmq.replication.options import ReplicationOptions
from broker.rocketmq.replication.role import BrokerRole
from broker.rocketmq.sending.arrivals import Arrivals
from broker.rocketmq.sending.transactions import TransactionTimes
from broker.rocketmq.settings import Settings
from broker.rocketmq.store.commit_log import Message
from broker.rocketmq.store.message_store import MessageStore, Stored, StoreOptions
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from broker.rocketmq.tables.groups import Groups
from broker.rocketmq.tables.offsets import Offsets
from broker.rocketmq.tables.options import DELAY_LEVELS, BrokerOptions, parse_delay_levels
from broker.rocketmq.tables.topics import Topics
from formats.rocketmq.files.checkpoints import TIMER_CHECKPOINT
from formats.rocketmq.files.record import Record
from formats.rocketmq.hosts import Host
from formats.rocketmq.properties import decode_properties, encode_properties
from formats.rocketmq.remoting.bodies.delays import DELAY_OFFSETS, DelayOffsets
from formats.rocketmq.remoting.bodies.routes import QueueData, TopicConfig
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame, encode_frame, next_frame
from tests.broker.rocketmq.answers import records_of
from tests.broker.rocketmq.folders import MemoryFolder

__all__ = ["OPTIONS", "Peer", "Rig", "handles"]

OPTIONS = BrokerOptions(
    "GoldenCluster",
    "broker-g",
    address=Host("127.0.0.1", 20911),
    delay_levels_ms=parse_delay_levels(DELAY_LEVELS),
)
STORE = StoreOptions(1 << 20, 2000, 50, 400)
TIMES = TransactionTimes(check_interval_ms=5_000, timeout_ms=2_000, checks_max=3)


class Rig:
    """A broker with topic `t` of one queue, and peers. `stop` and `crash` open the store again."""

    def __init__(
        self, options: BrokerOptions = OPTIONS, times: TransactionTimes = TIMES, store: StoreOptions = STORE
    ) -> None:
        self.options = replace(options)
        self.replication = ReplicationOptions()
        self.times = times
        self.store_options = store
        self.wall_ms = 1_700_000_000_000
        self.disk_used = 0.0
        self.folder = MemoryFolder(chunk=4096)
        self.files: dict[str, bytes] = {}
        self.peers: list[Peer] = []
        self.access_options = AccessOptions()
        self.kept_settings: list[Mapping[str, str]] = []
        # Whether the log goes to the disk before the files, and what of it was not there when one was written.
        self.is_sync = False
        self.unflushed: dict[str, int] = {}
        # A nameserver's answer about other brokers.
        self.other_queues: dict[str, list[QueueData]] = {}
        self._open()
        self.put_topics(TopicConfig("t", 1, 1))

    def put_topics(self, *configs: TopicConfig) -> None:
        """Make topics, and end the step, so that they are in their file."""
        self.topics.put_all(configs, self.wall_ms)
        while self.broker.end_step():
            pass

    def _open(self) -> None:
        due = make_due_time(self.options.delay_levels_ms)
        self.store: MessageStore = open_store(self.folder, self.store_options, lambda ms: f"{ms:017d}", due)
        self.topics = Topics(self.options, self.files.get("topics", b""), self._keep("topics"))
        self.groups = Groups(self.files.get("groups", b""), self._keep("groups"))
        self.offsets = Offsets(self.files.get("offsets", b""))
        self.now = Now(0, 0)
        self.faults = Faults(self.now)
        self.settings = Settings({"brokerName": self.options.name}, BROKER_READERS, self.kept_settings.append, LOCKED)
        orders = Orders(self.files.get("orders", b""))
        access = AccessTables(
            self.files.get("users", b""), self.files.get("acls", b""), self._keep("users"), self._keep("acls")
        )
        self.access = access
        self.guard = Guard(self.access_options, access, self.options.cluster)
        changed = (self.settings, access, self.guard)
        kept = (self.topics, self.groups, self.offsets, orders, *changed, self.given())
        self._state = State(self.options, self.store, *kept, self.times)
        self._world = World(
            lambda: self.wall_ms,
            lambda below: below - 1,
            lambda: "MADE",
            self._flush_log,
            self._keep("offsets"),
            self._keep("delays"),
            self._keep("timers"),
            self._keep("orders"),
            self._keep("modes"),
            lambda topic, _, done: done(self.other_queues.get(topic, [])),
            lambda: self.disk_used,
        )
        self.role = BrokerRole(self.replication, self.options, lambda: self.store.log.end)
        self.broker = self.make_broker(Nameservers(self.options, self.topics, ()))

    def make_broker(self, nameservers: Nameservers) -> Broker:
        """Make a broker over the store and the tables."""
        return Broker(self._state, self._world, self.faults, nameservers, self.role)

    def make_arrivals(self, store: MessageStore) -> Arrivals:
        """Make the way of messages into another store, for which nobody waits."""
        services = self.broker.services
        return Arrivals(store, Puller(services, lambda connection, error: None), services.statistics)

    def given(self) -> Given:
        """Read what a master goes on by."""
        return Given(
            DELAY_OFFSETS.read(self.files["delays"]) if "delays" in self.files else DelayOffsets(),
            TIMER_CHECKPOINT.unpack(self.files["timers"]) if "timers" in self.files else None,
            self.files.get("modes", b""),
        )

    def _flush_log(self) -> None:
        if self.is_sync:
            for step in self.store.begin_log_flush():
                step()

    def _keep(self, name: str) -> Any:
        def keep(data: bytes) -> None:
            self.files[name] = data
            self.unflushed[name] = self.store.log.end - self.store.flushed

        return keep

    def stop(self) -> None:
        """Stop the broker, and start it again."""
        self.broker.close()
        self.store.close()
        self.peers.clear()
        self._open()

    def crash(self) -> None:
        """End the broker as `kill -9` does, and start it again."""
        self.peers.clear()
        self.folder = self.folder.after_crash()
        self._open()

    def lose_power(self) -> None:
        """End the broker with the machine, which has flushed nothing but the small files, and start it again."""
        self.peers.clear()
        self.folder = self.folder.without_power()
        self._open()

    def peer(self) -> Peer:
        """Connect another peer."""
        peer = Peer(self, len(self.peers) + 1)
        self.peers.append(peer)
        return peer

    def pass_time(self, ms: int) -> None:
        """Let time pass, with a tick every 100 ms at least."""
        end = self.wall_ms + ms
        while self.wall_ms < end:
            self.wall_ms = min(end, self.wall_ms + 100)
            self.now.ms += 100
            self.broker.tick()
            while self.broker.end_step():
                pass

    def lead_without(self, topic: str) -> Rig:
        """Become master of an epoch, with the messages of the master before, and without a topic that it had."""
        others = {name: config for name, config in self.topics.table.items() if name != topic}
        self.topics.follow(others, self.topics.version._replace(counter=99))
        self.topics.begin_epoch(2, self.wall_ms, {})
        return self

    def plant_message(self, topic: str, body: bytes, properties: dict[str, str], queue_id: int = 0) -> Message:
        """Make a message as `plant` puts it into the store."""
        host = self.options.address.pack()
        return Message(topic, queue_id, 0, 0, self.wall_ms, host, host, 0, 0, body, encode_properties(properties))

    def plant(self, topic: str, body: bytes, properties: dict[str, str], queue_id: int = 0, **changes: Any) -> Stored:
        """Put a message straight into the store, as another broker's store could have it."""
        message = self.plant_message(topic, body, properties, queue_id)
        return Writer(self.store).put(message._replace(**changes), self.wall_ms)

    def messages(self, topic: str, queue_id: int = 0) -> list[Record]:
        """All messages of a queue."""
        queue = self.store.queues.get((topic, queue_id))
        if queue is None:
            return []
        found = [self.store.log.read(queue.get(at).physical_offset).record for at in range(queue.begin, queue.end)]
        # Nobody may hold a view of a file that is to be closed.
        return [record._replace(body=bytes(record.body)) for record in found]


class Peer:
    """A connection to the broker. `asked` are the requests that came from there."""

    def __init__(self, rig: Rig, number: int) -> None:
        self.rig = rig
        host = Host("127.0.0.1", 40_000 + number)
        self.session = Session(number, host, rig.broker, lambda _: None, lambda: rig.now.ms)
        self.asked: list[Frame] = []
        self._answers: dict[int, Frame] = {}
        self._opaque = 0

    def ask(self, code: RequestCode, body: bytes = b"", flag: int = 0, **fields: Any) -> int:
        """Send a request; the number that its answer will have."""
        self._opaque += 1
        named = {name.rstrip("_"): str(value) for name, value in fields.items()}
        frame = Frame(code, self._opaque, flag, ext_fields=named, body=body, version=493)
        data = encode_frame(frame)
        assert self.session.receive(memoryview(data)) == len(data)
        while self.rig.broker.end_step():
            pass
        return self._opaque

    def answer(self, opaque: int) -> Frame | None:
        """The answer of that number, if it has come."""
        self.read()
        return self._answers.pop(opaque, None)

    def take_answers(self) -> dict[int, Frame]:
        """All answers that have come, by their numbers."""
        self.read()
        answers, self._answers = self._answers, {}
        return answers

    def call(self, code: RequestCode, body: bytes = b"", **fields: Any) -> Frame:
        """Send a request that is answered at once; its answer."""
        found = self.answer(self.ask(code, body, **fields))
        assert found is not None
        return found

    def read(self) -> None:
        """Take in what the broker has sent."""
        view, at = memoryview(bytes(self.session.take_output())), 0
        while (found := next_frame(view, at, len(view))) is not None:
            frame, at = found
            if frame.is_response:
                self._answers[frame.opaque] = frame
            else:
                self.asked.append(frame)
        assert at == len(view)

    def send(self, body: bytes, properties: dict[str, str] | None = None, topic: str = "t", **changes: Any) -> Frame:
        """Send a message; the answer."""
        text = encode_properties(properties or {}).decode()
        fields = {"a": "p", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": self.rig.wall_ms, "h": 0, "i": text}
        return self.call(RequestCode.SEND_MESSAGE_V2, body, **{**fields, **changes})

    def pull(self, topic: str = "t", offset: int = 0, group: str = "g", **changes: Any) -> int:
        """Ask for messages; the number that the answer will have."""
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": 0,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 15_000,
            "subscription": "*",
            "subVersion": 1,
        }
        return self.ask(RequestCode.PULL_MESSAGE, **{**fields, **changes})

    def pulled(self, topic: str = "t", offset: int = 0, group: str = "g", **changes: Any) -> list[Record]:
        """Messages of a queue from an offset on."""
        answer = self.answer(self.pull(topic, offset, group, **changes))
        assert answer is not None
        return records_of(answer)

    def pop(self, topic: str = "t", group: str = "g", **changes: Any) -> int:
        """Ask for messages of any queue, hidden for ten seconds; the number that the answer will have."""
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": -1,
            "maxMsgNums": 32,
            "invisibleTime": 10_000,
            "pollTime": 0,
            "bornTime": self.rig.wall_ms,
            "initMode": 0,
        }
        return self.ask(RequestCode.POP_MESSAGE, **{**fields, **changes})

    def popped(self, topic: str = "t", group: str = "g", **changes: Any) -> dict[str, str]:
        """Pop messages: the receipt handle of each, by its body, as clients make them of an answer."""
        answer = self.answer(self.pop(topic, group, **changes))
        assert answer is not None
        return handles(answer, self.rig.options.name)

    def acknowledge(self, handle: str, topic: str = "t", group: str = "g") -> Frame:
        """Acknowledge a message of a topic, or of the retry topic that goes with it."""
        name = f"%RETRY%{group}_{topic}" if handle.split(" ")[4] == "1" else topic
        return self.call(RequestCode.ACK_MESSAGE, **_named(handle, name, group))

    def hide(self, handle: str, ms: int, topic: str = "t", group: str = "g") -> Frame:
        """Change the time for which a message is hidden."""
        return self.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **_named(handle, topic, group), invisibleTime=ms)


def _named(handle: str, topic: str, group: str) -> dict[str, Any]:
    """The fields of a request about a message that was popped."""
    words = handle.split(" ")
    return {"consumerGroup": group, "topic": topic, "queueId": words[6], "offset": words[7], "extraInfo": handle}


def handles(answer: Frame, broker: str) -> dict[str, str]:
    """The receipt handles of an answer's messages, by their bodies."""
    fields = answer.ext_fields or {}
    begins = {}
    for piece in filter(None, fields.get("startOffsetInfo", "").split(";")):
        kind, queue_id, offset = piece.split(" ")
        begins[kind, queue_id] = offset
    found = {}
    for record in records_of(answer):
        handle = decode_properties(record.properties).get("POP_CK")
        if handle is None:
            terms = f"{fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']} 0 {broker}"
            handle = f"{begins['0', str(record.queue_id)]} {terms} {record.queue_id} {record.queue_offset}"
        found[bytes(record.body).decode()] = handle
    return found
