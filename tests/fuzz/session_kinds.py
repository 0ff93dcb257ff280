"""The peers of brokers: the beginning of each kind of session, and its messages.

A `Teller` opens what it needs with correct events, and then sends more of them, changed ones, invented ones, others'
events and those received, by its random numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from crc32c import crc32c

from formats.bmq.codes import EventType
from formats.bmq.control.messages import (
    AdminCommand,
    AuthenticationMessage,
    AuthenticationRequest,
    ClientIdentity,
    ClientType,
    CloseQueue,
    ClusterMessage,
    ConfigureQueueStream,
    ConfigureStream,
    ConsumerInfo,
    ControlMessage,
    Disconnect,
    ElectionProposal,
    ElectorMessage,
    Expression,
    ExpressionVersion,
    LeaderHeartbeat,
    NodeStatus,
    NodeStatusAdvisory,
    OpenQueue,
    QueueHandleParameters,
    QueueStreamParameters,
    ScoutingResponse,
    StatusCategory,
    StopRequest,
    StreamParameters,
    SubQueueIdInfo,
    Subscription,
)
from formats.bmq.wire.confirm import build_confirm_event
from formats.bmq.wire.event import HEARTBEAT_REQUEST, build_event, iter_frames
from formats.bmq.wire.push import iter_pushes
from formats.bmq.wire.put import append_put
from formats.bmq.wire.reject import build_reject_event
from formats.errors import FormatError
from tests.fuzz.session_events import LENGTH_MAX, Maker
from tests.fuzz.session_peer import Lost, Peer, client_identity

__all__ = ["KINDS", "NoMember", "Teller"]

READ, WRITE, ACK = 2, 4, 8
DOMAINS = ("bmq.test.mmap.priority", "bmq.test.mmap.fanout", "bmq.test.mem.priority", "bmq.test.mem.broadcast")
APPS = ("foo", "bar", "baz", "nobody")
QUEUE_IDS = (0, 1, 2, 3, 4, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001)
TEXTS = ("", "", "x > 1", "x == 'a' || y", "z < 0")

_CLIENT_KINDS = (
    *(EventType.CONTROL, EventType.CONTROL, EventType.PUT, EventType.PUT, EventType.CONFIRM, EventType.REJECT),
    *(EventType.ACK, EventType.PUSH, EventType.AUTHENTICATION, EventType.HEARTBEAT_RSP),
)
_MEMBER_KINDS = (
    *(EventType.CONTROL, EventType.CONTROL, EventType.CONTROL, EventType.ELECTOR, EventType.CLUSTER_STATE),
    *(EventType.STORAGE, EventType.PARTITION_SYNC, EventType.REPLICATION_RECEIPT),
    *(EventType.PUT, EventType.ACK, EventType.PUSH, EventType.CONFIRM, EventType.REJECT),
    *(EventType.AUTHENTICATION, EventType.RECOVERY, EventType.HEARTBEAT_RSP),
)

# An operator's commands are carried out, but only on queues of the domains above.
COMMANDS = (
    *("HELP", "HELP PLUMBING", "BROKERCONFIG DUMP", "STAT SHOW", "STAT LIST_TUNABLES", "STAT GET x", "CLUSTERS LIST"),
    *("DOMAINS DOMAIN {domain} INFOS", "DOMAINS DOMAIN {domain} QUEUE {queue} INTERNALS"),
    *(
        "DOMAINS DOMAIN {domain} QUEUE {queue} PURGE {app}",
        "DOMAINS DOMAIN {domain} QUEUE {queue} LIST {number} {number}",
    ),
    *("DOMAINS DOMAIN {domain} QUEUE {queue} LIST {app} {number} {number}", "DOMAINS RECONFIGURE {domain}"),
    *("DOMAINS RESOLVER CACHE_CLEAR ALL", "CONFIGPROVIDER CACHE_CLEAR {domain}", "DOMAINS REMOVE {nowhere}"),
    *("CLUSTERS CLUSTER {cluster} STATUS", "CLUSTERS CLUSTER {cluster} HEALTH"),
    *("CLUSTERS CLUSTER {cluster} QUEUEHELPER", "CLUSTERS CLUSTER {cluster} FORCE_GC_QUEUES"),
    *("CLUSTERS CLUSTER {cluster} STORAGE SUMMARY", "CLUSTERS CLUSTER {cluster} STORAGE PARTITION {number} SUMMARY"),
    *("CLUSTERS CLUSTER {cluster} STORAGE PARTITION {number} ROLLOVER", "STAT SET {number} {number}"),
    *(
        "CLUSTERS CLUSTER {cluster} STORAGE DOMAIN {domain} QUEUE_STATUS",
        "CLUSTERS CLUSTER {cluster} STATE ELECTOR GET x",
    ),
    *("CLUSTERS CLUSTER {cluster} STORAGE REPLICATION GET_ALL {number}", "ENCODING JSON_PRETTY CLUSTERS LIST"),
    *("ENCODING JSON_COMPACT STAT SHOW", '{{"domains": {{"domain": {{"name": "{domain}", "command": {{}}}}}}}}', "{{"),
)
WORDS: dict[str, tuple[str, ...]] = {
    "domain": (*DOMAINS, "nowhere", "..", "../../etc/passwd", "a\0b", "x" * 300, "é"),
    "nowhere": ("nowhere", "..", "", "y" * 300),
    "queue": ("q0", "q1", "q2", "none", "x" * 70, "a/b"),
    "app": (*APPS, "*", "__default", "x" * 500),
    "number": ("0", "1", "-1", "10", "UNLIMITED", "2147483648", "9" * 30, "x", "ALL"),
    "cluster": ("local", "nowhere", "é"),
}


class NoMember(Exception):
    """The cluster does not take the liar for one of its nodes: nothing would be tried."""


class Teller:
    """One session's story. `told` has the events sent."""

    def __init__(self, seed: str, port: int) -> None:
        self.random = Random(seed)
        self.maker = Maker(self.random)
        self.port = port
        self.told: list[bytes] = []
        self._requests = 0
        self._guids = 0
        self._pushed: list[tuple[int, bytes]] = []
        self._features = ""

    # -- events as they should be

    def control(self, choice: Any) -> bytes:
        self._requests += 1
        return self.maker.schema_event(ControlMessage(r_id=self._requests, choice=choice))

    def parameters(self) -> QueueHandleParameters:
        random = self.random
        domain, flags = random.choice(DOMAINS), random.choice((READ, WRITE, READ | WRITE, WRITE | ACK))
        app = random.choice(APPS) if "fanout" in domain and flags & READ else ""
        if app:
            flags = READ
        uri = f"bmq://{domain}/q{random.randrange(3)}"
        return QueueHandleParameters(
            uri=f"{uri}?id={app}" if app else uri,
            q_id=random.choice(QUEUE_IDS),
            sub_id_info=SubQueueIdInfo(sub_id=random.choice((1, 1, 2, 0x8000_0000)), app_id=app) if app else None,
            flags=flags,
            read_count=int(bool(flags & READ)) * random.choice((1, 1, 2, (1 << 31) - 1)),
            write_count=int(bool(flags & WRITE)) * random.choice((1, 1, 2, (1 << 31) - 1)),
        )

    def consumer(self) -> ConsumerInfo:
        random = self.random
        return ConsumerInfo(
            max_unconfirmed_messages=random.choice((0, 1, 10, 1000, (1 << 63) - 1)),
            max_unconfirmed_bytes=random.choice((1, 1000, 1 << 30, (1 << 63) - 1)),
            consumer_priority=random.choice((0, 0, 1, -1, (1 << 31) - 1)),
            consumer_priority_count=random.choice((1, 1, 3, (1 << 31) - 1)),
        )

    def configure(self) -> ConfigureStream | ConfigureQueueStream:
        random = self.random
        queue_id = random.choice(QUEUE_IDS)
        if random.random() < 0.2:
            each = self.consumer()
            old = QueueStreamParameters(
                sub_id_info=SubQueueIdInfo(sub_id=1, app_id=random.choice(APPS)) if random.random() < 0.5 else None,
                max_unconfirmed_messages=each.max_unconfirmed_messages,
                max_unconfirmed_bytes=each.max_unconfirmed_bytes,
                consumer_priority=each.consumer_priority,
                consumer_priority_count=each.consumer_priority_count,
            )
            return ConfigureQueueStream(q_id=queue_id, stream_parameters=old)
        subscriptions = tuple(
            Subscription(
                s_id=random.choice((0, 1, 2, 3, 0xFFFF_FFFF)),
                expression=Expression(version=ExpressionVersion.VERSION_1, text=random.choice(TEXTS)),
                consumers=tuple(self.consumer() for _ in range(random.choice((0, 1, 1, 2)))),
            )
            for _ in range(random.choice((0, 1, 1, 1, 3)))
        )
        app_id = random.choice((*APPS, "__default", "__default", "__default"))
        return ConfigureStream(
            q_id=queue_id, stream_parameters=StreamParameters(app_id=app_id, subscriptions=subscriptions)
        )

    def signed(self, number: int) -> int:
        return number - (1 << 32) if number >> 31 else number

    def put(self) -> bytes:
        random = self.random
        out = bytearray()
        for _ in range(random.choice((1, 1, 2, 20))):
            self._guids += 1
            guid = random.choice((self._guids, self._guids, 1, 0)).to_bytes(8, "big") + b"fuzzfuzz"
            if random.random() < 0.02:
                guid = bytes(16)
            data = random.randbytes(random.choice((1, 3, 8, 100, 1000)))
            checksum = crc32c(data) if random.random() < 0.95 else 0
            options = b"" if random.random() < 0.9 else random.randbytes(random.choice((4, 8, 12)))
            schema_id = random.choice((0, 0, 0, 1, 2, 3, 0xFFFF))
            flags = random.choice((1, 1, 1, 0, 2, 3, 0xF)) if not schema_id else 3
            queue_id = self.signed(random.choice(QUEUE_IDS))
            append_put(out, queue_id, guid, data, checksum, flags, random.choice((0, 0, 0, 1)), schema_id, options)
        return build_event(EventType.PUT, out)

    def confirm(self) -> bytes:
        random = self.random
        build = build_confirm_event if random.random() < 0.8 else build_reject_event
        rows = []
        for _ in range(random.choice((1, 1, 3))):
            queue_id, guid = self.signed(random.choice(QUEUE_IDS)), random.randbytes(16)
            if self._pushed and random.random() < 0.8:
                queue_id, guid = random.choice(self._pushed)
            rows.append((queue_id, guid, self.signed(random.choice((0, 1, 2, 0x8000_0000)))))
        return build(rows)

    def close(self) -> CloseQueue:
        return CloseQueue(handle_parameters=self.parameters(), is_final=self.random.random() < 0.5)

    def client_event(self) -> bytes:
        match self.random.randrange(12):
            case 0 | 1:
                return self.control(OpenQueue(handle_parameters=self.parameters()))
            case 2 | 3:
                return self.control(self.configure())
            case 4:
                return self.control(self.close())
            case 5 | 6 | 7 | 8:
                return self.put()
            case 9 | 10:
                return self.confirm()
            case _:
                return HEARTBEAT_REQUEST

    def authentication(self) -> bytes:
        request = AuthenticationRequest(mechanism=self.random.choice(("ANONYMOUS", "BASIC", "", "é" * 99)), data=b"a:b")
        return self.maker.schema_event(AuthenticationMessage(choice=request), EventType.AUTHENTICATION)

    # -- the course of a session

    def tell(self, peer: Peer, event: bytes, *, learns: bool = False) -> None:
        """Send an event; with `learns`, look at the answers."""
        self.told.append(event)
        peer.send(event)
        for answer in peer.take(0.0):
            if learns:
                self.learn(answer)

    def learn(self, event: bytes) -> None:
        """Remember pushed messages, and the brokers' words."""
        view = memoryview(event)
        for frame in iter_frames(view, 0, len(view), LENGTH_MAX):
            if frame.type == EventType.PUSH:
                try:
                    for push in iter_pushes(view, frame.body, frame.end):
                        self._pushed = [*self._pushed[-20:], (push.queue_id, push.guid)]
                except FormatError:
                    pass
        self.maker.show(event)

    def identity(self, kind: ClientType) -> ClientIdentity:
        identity = client_identity(kind, makes_guids=self.random.random() < 0.8)
        if self.random.random() < 0.1:
            changed: ClientIdentity = self.maker.changed(identity)
            identity = replace(changed, client_type=kind)
        return identity

    def clients(self, peer: Peer, make: Callable[[], bytes], count: int) -> None:
        """Send correct events, among them more and more others."""
        for number in range(count):
            event = make()
            self.maker.show(event)
            if number > 4:
                event = self.spoilt(event, _CLIENT_KINDS)
            self.tell(peer, event, learns=True)

    def spoilt(self, event: bytes, kinds: tuple[EventType, ...]) -> bytes:
        match self.random.randrange(20):
            case 0 | 1 | 2:
                return self.maker.changed_event(event)
            case 3:
                return self.maker.any_event(kinds)
            case 4:
                return event + event
            case 5:
                return self.maker.seen_event(kinds) or event
            case 6 if self.random.random() < 0.2:
                return self.maker.garbled(event)
            case 7 if self.random.random() < 0.2:
                return self.control(Disconnect())
            case 8 if self.random.random() < 0.3:
                return self.authentication()
            case _:
                return event

    def client(self) -> None:
        with Peer(self.port, self.identity(ClientType.TCPCLIENT)) as peer:
            self.clients(peer, self.client_event, self.random.choice((10, 40, 100)))

    def proxy(self) -> None:
        identity = replace(self.identity(ClientType.TCPBROKER), cluster_node_id=-1, cluster_name="")

        def make() -> bytes:
            match self.random.randrange(12):
                case 0:
                    return self.control(ClusterMessage(choice=StopRequest(cluster_name="local")))
                case 1:
                    status = self.random.choice(list(NodeStatus))
                    return self.control(ClusterMessage(choice=NodeStatusAdvisory(status=status)))
                case _:
                    return self.client_event()

        with Peer(self.port, identity) as peer:
            self.clients(peer, make, self.random.choice((10, 40, 100)))

    def admin(self) -> None:
        def make() -> bytes:
            chosen = {name: self.random.choice(words) for name, words in WORDS.items()}
            command = self.random.choice(COMMANDS).format(**chosen)
            if self.random.random() < 0.1:
                at = self.random.randrange(len(command) + 1)
                command = command[:at] + self.random.choice(("\0", "é", " ", '"', "}", "\n", "x" * 1000)) + command[at:]
            return self.control(AdminCommand(command=command))

        with Peer(self.port, self.identity(ClientType.TCPADMIN)) as peer:
            self.clients(peer, make, self.random.choice((5, 20, 40)))

    # -- a member

    def member(self, ports: dict[int, int], cluster_name: str, node_id: int, heard: deque[bytes]) -> None:
        """Be node `node_id` to the others, by their ids and ports, which it dials. A lost link is made again.

        `heard` are events from the others, with which the next session begins.
        """
        for event in heard:
            self.maker.show(event)
        peers: dict[int, Peer] = {}
        try:
            for _ in range(self.random.choice((10, 40, 120))):
                other = self.random.choice(list(ports))
                try:
                    if other not in peers:
                        peers[other] = self._join(ports[other], cluster_name, node_id)
                    for event in peers[other].take(0.003):
                        heard.append(event)
                        self.maker.show(event)
                    self.told.append(event := self._member_event())
                    peers[other].send(event)
                except Lost:
                    if other in peers:
                        peers.pop(other).close()
        finally:
            for peer in peers.values():
                peer.close()

    def _join(self, port: int, cluster_name: str, node_id: int) -> Peer:
        asking = replace(client_identity(ClientType.TCPBROKER), cluster_name=cluster_name, cluster_node_id=node_id)
        if not self._features:
            with Peer(port, asking) as peer:
                # It may be refused, since members have to agree.
                self._features = peer.response.broker_identity.features
        peer = Peer(port, replace(asking, features=self._features))
        if peer.response.result.category is not StatusCategory.SUCCESS:
            peer.close()
            raise NoMember(peer.response.result.message)
        return peer

    def _member_event(self) -> bytes:
        random = self.random
        match random.randrange(12):
            case 0:
                choice = random.choice((LeaderHeartbeat(), ElectionProposal(), ScoutingResponse(will_vote=True)))
                made = self.maker.message(ElectorMessage)
                return self.maker.schema_event(replace(made, choice=choice), EventType.ELECTOR)
            case 1 | 2 | 3:
                return self.maker.seen_event(_MEMBER_KINDS) or self.client_event()
            case 4 | 5:
                return self.client_event()
            case 6 if random.random() < 0.2:
                return self.maker.garbled(self.maker.any_event(_MEMBER_KINDS))
            case _:
                return self.maker.any_event(_MEMBER_KINDS)


KINDS = ("client", "proxy", "admin", "member")
