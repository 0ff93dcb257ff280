"""The producers behind the proxy, registered with brokers for their checks of transactions.

Source: ClusterTransactionService. A group of producers is the topic that they send to. Brokers get heartbeats of the
groups whose topics take transactions, every 20 seconds and for a new group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from broker.rocketmq.grpc.brokers.backend import TakesQuestion, Topic
from broker.rocketmq.grpc.statuses import CallRejected
from broker.rocketmq.proxy.brokers import Brokers
from broker.rocketmq.proxy.topics import ProxyTopics
from formats.errors import FormatError
from formats.rocketmq.files.record import Record, decode_record
from formats.rocketmq.grpc.codes import MessageType
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.bodies.clients import HEARTBEAT, Heartbeat, ProducerData
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.headers.consuming import UnregisterClientRequest

__all__ = ["Producers"]

_PERIOD_MS: Final = 20_000
_GROUPS_MAX: Final = 100
_WAIT_MS: Final = 3_000


class Producers:
    """The groups, and the receivers of brokers' checks for each. `client_id` is that of the proxy."""

    def __init__(self, topics: ProxyTopics, brokers: Brokers, client_id: str, now_ms: Callable[[], int]) -> None:
        self._topics = topics
        self._brokers = brokers
        self._client_id = client_id
        self._now_ms = now_ms
        self._groups: dict[str, dict[object, TakesQuestion]] = {}
        self._joined: dict[object, set[str]] = {}
        # The brokers to which each group is or will be registered; and the brokers whose heartbeat is still to be sent.
        self._told: dict[str, set[str]] = {}
        self._untold: set[str] = set()
        self._due_ms = 0

    def join(self, member: object, groups: Collection[str], asked: TakesQuestion) -> None:
        """Note a producer, which may be known already."""
        for group in groups:
            members = self._groups.setdefault(group, {})
            if not members:
                self._find_brokers(group)
            members[member] = asked
        if groups:
            self._joined.setdefault(member, set()).update(groups)

    def leave(self, member: object) -> None:
        """Forget a producer; groups without any are unregistered."""
        for group in self._joined.pop(member, ()):
            del self._groups[group][member]
            if self._groups[group]:
                continue
            del self._groups[group]
            fields = write_header(UnregisterClientRequest(self._client_id, group))
            for broker, groups in self._told.items():
                if group in groups:
                    groups.discard(group)
                    self._brokers.tell(broker, Frame(RequestCode.UNREGISTER_CLIENT, 0, ext_fields=fields))

    def _find_brokers(self, group: str) -> None:
        def found(topic: Topic | CallRejected) -> None:
            if isinstance(topic, CallRejected) or group not in self._groups:
                return
            if MessageType.TRANSACTION not in topic.types:
                return
            for queues in topic.queues:
                groups = self._told.setdefault(queues.broker_name, set())
                if group not in groups:
                    groups.add(group)
                    self._untold.add(queues.broker_name)

        self._topics.find(group, found)

    def connected(self, broker: str) -> None:
        """Send the heartbeat to a broker that has connected."""
        if self._told.get(broker):
            self._untold.add(broker)

    def tick(self) -> None:
        """Send heartbeats, if it is time."""
        now_ms = self._now_ms()
        if now_ms >= self._due_ms:
            self._due_ms = now_ms + _PERIOD_MS
            for group in self._groups:
                self._find_brokers(group)
            self._told = {broker: groups for broker, groups in self._told.items() if groups}
            self._untold.update(self._told)
        untold, self._untold = self._untold, set()
        for broker in untold:
            groups = sorted(self._told.get(broker, ()))
            for first in range(0, len(groups), _GROUPS_MAX):
                data = [ProducerData(group) for group in groups[first : first + _GROUPS_MAX]]
                body = HEARTBEAT.write(Heartbeat(self._client_id, producer_data_set=data))
                frame = Frame(RequestCode.HEART_BEAT, 0, body=body)
                self._brokers.ask(broker, frame, now_ms + _WAIT_MS, lambda _: None)

    def take_question(self, broker: str, frame: Frame) -> bool:
        """Pass a check of a transaction to a producer; return False if there is none."""
        try:
            record = decode_record(frame.body)
            group = decode_properties(record.properties).get("PGROUP", "") if isinstance(record, Record) else ""
        except FormatError:
            return False
        members = self._groups.get(group, {})
        for member, asked in list(members.items()):
            # The next check goes to the next producer.
            del members[member]
            members[member] = asked
            if asked(broker, frame):
                return True
        return False
