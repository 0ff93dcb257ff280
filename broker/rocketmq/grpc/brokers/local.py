"""The broker of this process behind the service, and its tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.common.faults import Faults
from broker.rocketmq.grpc.brokers.backend import TakesQuestion, Topic, accepted_types
from broker.rocketmq.grpc.brokers.loopback import FrameGate, Loopback, SaidBytes
from broker.rocketmq.grpc.statuses import CallRejected, topic_not_found
from broker.rocketmq.remoting.session import Service
from broker.rocketmq.tables.groups import Groups
from broker.rocketmq.tables.options import BrokerOptions
from broker.rocketmq.tables.topics import Topics
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.bodies.clients import GroupConfig
from formats.rocketmq.remoting.bodies.routes import Permission, QueueData, TopicConfig

__all__ = ["Local"]


_KNOWN_MAX: Final = 1_024
_WRITE: Final = int(Permission.WRITE)


class Local:
    """The broker; see `backend.Backend`."""

    def __init__(
        self,
        options: BrokerOptions,
        topics: Topics,
        groups: Groups,
        broker: Service,
        gate: FrameGate | None,
        faults: Faults,
        wall_ms: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        self._options = options
        self._topics = topics
        self._groups = groups
        self._broker = broker
        self._gate = gate
        self._faults = faults
        self._wall_ms = wall_ms
        self._now_ms = now_ms
        self._dirty: dict[Loopback, None] = {}
        # By name; a topic's configuration is never changed but replaced.
        self._known: dict[str, tuple[TopicConfig, Topic]] = {}
        self._numbers = 0
        self._said = SaidBytes()

    def connect(self, host: Host, asked: TakesQuestion) -> Loopback:
        self._numbers += 1
        link = Loopback(
            self._numbers,
            host,
            self._broker,
            self._gate,
            lambda link: self._dirty.setdefault(link),
            self._now_ms,
            lambda frame: asked(self._options.name, frame),
            self._faults.end_session,
        )
        link.all_said = self._said
        return link

    def knows(self, broker: str) -> bool:
        return broker == self._options.name

    def find_topic(self, name: str, found: Callable[[Topic | CallRejected], None]) -> None:
        config = self._topics.get(name)
        if config is None:
            found(topic_not_found(name))
            return
        known = self._known.get(name)
        if known is None or known[0] is not config:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            known = self._known[name] = config, _topic_of(self._options.name, name, config)
        found(known[1])

    def find_group(self, name: str, topic: str | None, found: Callable[[GroupConfig | CallRejected], None]) -> None:
        """Look up a group in the broker's table; create it where groups are created by their use."""
        found(self._groups.find(name, self._wall_ms()) or GroupConfig(name))

    def end_step(self) -> bool:
        asked_more = False
        while self._dirty:
            link = next(iter(self._dirty))
            del self._dirty[link]
            asked_more = link.deliver() or asked_more
        return asked_more

    def tick(self) -> None:
        """Do nothing: the broker has its own turn."""

    def leave(self) -> None:
        """Do nothing: the broker leaves by itself."""


def _topic_of(broker: str, name: str, config: TopicConfig) -> Topic:
    writes = config.write_queue_nums
    queues = QueueData(broker, config.read_queue_nums, writes, config.perm, config.topic_sys_flag)
    can_write = config.perm & _WRITE and writes > 0
    return Topic(name, accepted_types(config), (queues,), ((broker, writes),) if can_write else ())
