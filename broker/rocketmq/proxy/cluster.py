"""The brokers of a cluster behind the service for gRPC: see `broker.rocketmq.grpc.brokers.backend`.

Source: the cluster mode of the original's proxy (ClusterServiceManager, ClusterMessageService). Consumers are not
registered with brokers, as pops need no subscription there. Producers are, for the brokers' checks of transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from broker.rocketmq.administration.registration import Dial
from broker.rocketmq.grpc.brokers.backend import Done, TakesQuestion, Topic
from broker.rocketmq.grpc.statuses import CallRejected, not_asked
from broker.rocketmq.proxy.access import Checks, ProxyAccess
from broker.rocketmq.proxy.brokers import Brokers
from broker.rocketmq.proxy.nameservers import ProxyNameservers
from broker.rocketmq.proxy.remoting import RemotingClients
from broker.rocketmq.proxy.topics import ProxyTopics
from broker.rocketmq.proxy.users import Users
from broker.rocketmq.proxy.wire import Events, Wire
from broker.rocketmq.remoting.session import Session
from formats.errors import FormatError
from formats.rocketmq.files.record import Record, decode_record
from formats.rocketmq.grpc.codes import MessageType
from formats.rocketmq.hosts import Host
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.bodies.clients import HEARTBEAT, GroupConfig, Heartbeat, ProducerData
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.headers.consuming import UnregisterClientRequest

__all__ = ["Cluster"]

_WAIT_MS: Final = 3_000
_POPPING: Final = frozenset((RequestCode.POP_MESSAGE, RequestCode.POP_LITE_MESSAGE))
# The interval of periodic work.
_TICK_MS: Final = 500

_PERIOD_MS: Final = 20_000
_GROUPS_MAX: Final = 100


class Producers:
    """The groups of producers, and each group's receivers of brokers' checks. `client_id` is the proxy's.

    A group is the topic that it sends to. Brokers get heartbeats of the groups whose topics take transactions, every 20
    seconds and for a new group. Source: ClusterTransactionService.
    """

    def __init__(self, topics: ProxyTopics, brokers: Brokers, client_id: str, now_ms: Callable[[], int]) -> None:
        self._topics = topics
        self._brokers = brokers
        self._client_id = client_id
        self._now_ms = now_ms
        self._groups: dict[str, dict[object, TakesQuestion]] = {}
        self._joined: dict[object, set[str]] = {}
        # The brokers where each group is or will be registered; and those whose heartbeat is still to be sent.
        self._told: dict[str, set[str]] = {}
        self._untold: set[str] = set()
        self._due_ms = 0

    def join(self, member: object, groups: Collection[str], asked: TakesQuestion) -> None:
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
        if self._told.get(broker):
            self._untold.add(broker)

    def tick(self) -> None:
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


class Cluster:
    """The brokers that nameservers know.

    `dial` connects to an address, `open_session` makes a connection's session, and `client_id` is this proxy's id at
    brokers. `seal` signs the proxy's requests, also those for gRPC clients; remoting clients sign their own. `checks`
    are those of all clients.
    """

    def __init__(
        self,
        nameservers: Sequence[str],
        dial: Callable[[str], Dial],
        open_session: Callable[[str, Wire], Session],
        client_id: str,
        seal: Callable[[Frame], Frame],
        checks: Checks,
        now_ms: Callable[[], int],
    ) -> None:
        self._dial = dial
        self._open_session = open_session
        self._now_ms = now_ms
        self._ticked_ms = now_ms()
        self._later: list[Callable[[], None]] = []
        quiet = Events(lambda: None, lambda: None, lambda frame: False)
        self._nameservers = ProxyNameservers([self._make_wire(address, quiet) for address in nameservers], seal, now_ms)
        self._brokers = Brokers(
            self._nameservers,
            self._make_wire,
            self._connected,
            self._lost,
            self._asked,
            self.later,
            seal,
            now_ms,
        )
        self._topics = ProxyTopics(self._nameservers, self._brokers, now_ms)
        self._users = Users(self._brokers, checks.cluster, now_ms)
        self.access = ProxyAccess(checks, self._users)
        self.producers = Producers(self._topics, self._brokers, client_id, now_ms)
        # Clients subscribed to lite topics: brokers notify them of changes.
        self.subscribers: dict[_Link, TakesQuestion] = {}

    @property
    def names(self) -> list[str]:
        return self._brokers.names

    @property
    def lacks(self) -> str | None:
        """The reason not to serve clients, in one line, if any."""
        return None if self.names else "no broker is known: no nameserver has answered, or none has one"

    def _make_wire(self, address: str, events: Events) -> Wire:
        return Wire(
            address,
            self._dial(address),
            self._open_session,
            events,
            lambda work: self._later.append(work),
            self._now_ms,
        )

    def remoting_clients(self, address: str) -> RemotingClients:
        """Make the service for remoting clients; they get `address` as that of every broker."""
        return RemotingClients(self._nameservers, self._brokers, self.access, self._make_wire, address, self._now_ms)

    def _connected(self, broker: str) -> None:
        self.producers.connected(broker)

    def _lost(self, broker: str) -> None:
        self._topics.lost(broker)

    def _asked(self, broker: str, frame: Frame) -> bool:
        if frame.code == RequestCode.NOTIFY_UNSUBSCRIBE_LITE:
            return any(asked(broker, frame) for asked in list(self.subscribers.values()))
        return frame.code == RequestCode.CHECK_TRANSACTION_STATE and self.producers.take_question(broker, frame)

    def ask(self, broker: str, frame: Frame, wait_ms: int, done: Done) -> None:
        """Ask the broker of a name, which may take `wait_ms` to answer."""
        self._brokers.ask(broker, frame, self._now_ms() + wait_ms + _WAIT_MS, done)

    def later(self, work: Callable[[], None]) -> None:
        self._later.append(work)

    # -- see `grpc.backend.Backend`

    def connect(self, host: Host, asked: TakesQuestion) -> _Link:
        return _Link(self, asked)

    def knows(self, broker: str) -> bool:
        """Return True: only a request shows that there is no broker of a name."""
        return True

    def find_topic(self, name: str, found: Callable[[Topic | CallRejected], None]) -> None:
        self._topics.find(name, found)

    def find_group(self, name: str, topic: str | None, found: Callable[[GroupConfig | CallRejected], None]) -> None:
        self._topics.find_group(name, topic, found)

    def end_step(self) -> bool:
        """Call the functions left for after the step; return whether there were any."""
        works, self._later[:] = list(self._later), []
        for work in works:
            work()
        return bool(works)

    def tick(self) -> None:
        now_ms = self._now_ms()
        if not 0 <= now_ms - self._ticked_ms < _TICK_MS:
            self._ticked_ms = now_ms
            self._nameservers.tick()
            self._brokers.tick()
            self._topics.tick()
            self._users.tick()
            self.producers.tick()

    def leave(self) -> None:
        self._brokers.leave()
        self._nameservers.leave()


class _Link:
    def __init__(self, cluster: Cluster, asked: TakesQuestion) -> None:
        self._cluster = cluster
        self._asked = asked
        self._waiting: dict[int, Done] = {}
        self._numbers = 0
        self._is_ended = False

    @property
    def is_over(self) -> bool:
        """False: the client has no connection of its own that could be lost."""
        return False

    def ask(self, broker: str, frame: Frame, done: Done, wait_ms: int = 0) -> None:
        """Ask a broker; see `grpc.backend.Link`.

        This works even after the client is gone, to return messages that came too late for it.
        """
        self._numbers += 1
        number = self._numbers
        self._waiting[number] = done
        is_pop = frame.code in _POPPING
        if frame.code == RequestCode.LITE_SUBSCRIPTION_CTL and not self._is_ended:
            self._cluster.subscribers[self] = self._asked

        def answered(answer: Frame) -> None:
            waits = self._waiting.pop(number, None) is not None
            if waits or (is_pop and answer.code == ResponseCode.SUCCESS):
                done(answer)

        self._cluster.ask(broker, frame, wait_ms, answered)

    def join(self, frame: Frame, producer_groups: Collection[str], done: Done) -> None:
        if not self._is_ended:
            self._cluster.producers.join(self, producer_groups, self._asked)
        self._cluster.later(lambda: done(Frame(ResponseCode.SUCCESS, 0)))

    def end(self) -> None:
        self._is_ended = True
        self._cluster.producers.leave(self)
        self._cluster.subscribers.pop(self, None)
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            done(not_asked(ResponseCode.SYSTEM_ERROR, "the client is gone"))
