"""A node in memory, and a client that talks to it in real event bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from crc32c import crc32c

from broker.bmq.assembly.nodes import make_node, make_proxy, open_store
from broker.bmq.core.config import DomainConfig, Mode, NodeIdentity
from broker.bmq.node.node import Basis, Node, unadministered
from broker.bmq.node.role import Door, Role
from broker.bmq.node.services import ProcessServices, QueueSettings, RunCommand
from broker.bmq.proxy.limits import BridgeLimits
from broker.bmq.proxy.node import ProxyNode
from broker.bmq.session.session import Session
from broker.bmq.store.names import next_timestamp
from broker.bmq.store.partition_files import PartitionLimits
from broker.common.clock import Now
from formats.bmq.codes import AckStatus, PutFlag
from formats.bmq.control import ber, jsonc
from formats.bmq.control.messages import (
    AdminCommand,
    BrokerResponse,
    ClientIdentity,
    ClientType,
    CloseQueue,
    CloseQueueResponse,
    ConfigureQueueStream,
    ConfigureStream,
    ConfigureStreamResponse,
    ConsumerInfo,
    ControlMessage,
    Disconnect,
    DisconnectResponse,
    Expression,
    ExpressionVersion,
    GuidInfo,
    NegotiationMessage,
    OpenQueue,
    OpenQueueResponse,
    QueueHandleParameters,
    StreamParameters,
    SubQueueIdInfo,
    Subscription,
)
from formats.bmq.disk.files import group_file_sets
from formats.bmq.disk.ledger import parse_ledger_file_name
from formats.bmq.stores.faults import Fault, Severity
from formats.bmq.stores.validate import FileView, validate_file_set, validate_ledger
from formats.bmq.wire.ack import Ack, iter_acks
from formats.bmq.wire.confirm import build_confirm_event
from formats.bmq.wire.event import (
    EncodingType,
    EventType,
    build_event,
    build_schema_event,
    iter_frames,
    schema_encoding,
)
from formats.bmq.wire.options import sub_queue_infos
from formats.bmq.wire.push import iter_pushes
from formats.bmq.wire.put import append_put
from tests.broker.fakes import MemoryDirectory

__all__ = [
    "ACK",
    "DOMAINS",
    "READ",
    "WRITE",
    "Client",
    "Pushed",
    "Rig",
    "Wanted",
    "bare_proxy",
    "guid",
    "handle",
    "identity",
    "put_event",
    "start",
    "store_faults",
]

READ, WRITE, ACK = 2, 4, 8
APPS = ("foo", "bar", "baz")
START_S = 1_795_237_864
LENGTH_MAX = 1 << 30

DOMAINS = {
    config.name: config
    for config in (
        DomainConfig("priority", Mode.PRIORITY),
        DomainConfig("fanout", Mode.FANOUT, APPS),
        DomainConfig("broadcast", Mode.BROADCAST, persistent=False),
        DomainConfig("memory", Mode.PRIORITY, persistent=False),
    )
}

NODE = NodeIdentity(
    cluster_name="local",
    node_id=0,
    host="host",
    process_name="bmqbrkr.tsk",
    process_id=4711,
    version=999_999,
    user_agent="rig",
    heartbeat_interval_ms=3000,
    heartbeats_missed_max=10,
)

LIMITS = PartitionLimits(journal=32 << 10, data=64 << 10, qlist=4 << 10)


def guid(number: int) -> bytes:
    """A GUID as a client makes them: no two alike, spread over all its bits."""
    return (1 << 126 | number << 104 | (number * 2_654_435_761 % (1 << 56)) << 48 | 0xC0FFEE).to_bytes(16, "big")


@dataclass
class Rig:
    """A running node and what it runs on."""

    node: Node
    directory: MemoryDirectory
    now: Now
    domains: dict[str, DomainConfig]
    limits: PartitionLimits

    def connect(self, **options: Any) -> Client:
        """A client that has said who it is."""
        client = Client(self.node)
        client.negotiate(identity(**options))
        return client

    def wait(self, ms: int) -> None:
        """Let time pass, tick by tick."""
        for _ in range(0, ms, 1000):
            self.now.ms += 1000
            self.now.wall_s += 1
            self.node.tick()
            self.node.work.finish()

    def configure(self, **changes: Any) -> None:
        """Set some of the parameters of queues."""
        self.node.configure(replace(self.node.settings, **changes))

    def stop(self) -> None:
        """A clean stop, as the composition root does it."""
        self.node.stopping = True
        for session in list(self.node.sessions.values()):
            self.node.disconnect(session, "the node stops")
        for partition in self.node.partitions.values():
            partition.close()
        self.node.ledger.close()

    def restart(self, directory: MemoryDirectory | None = None, **options: Any) -> Rig:
        """A new node on what a killed one left (or on `directory`)."""
        directory = directory or self.directory.after_crash()
        now = self.now
        return start(directory, domains=self.domains, limits=self.limits, wall_s=now.wall_s, ms=now.ms, **options)

    def faults(self) -> list[Fault]:
        return store_faults(self.directory)


def start(
    directory: MemoryDirectory | None = None,
    *,
    domains: dict[str, DomainConfig] | Iterable[DomainConfig] = DOMAINS,
    limits: PartitionLimits = LIMITS,
    num_partitions: int = 1,
    wall_s: int = START_S,
    ms: int = 1_000_000,
    identity: NodeIdentity = NODE,
    ledger_size: int = 64 << 10,
    outlives_power: bool = False,
    services: ProcessServices | None = None,
    settings: QueueSettings | None = None,
    administer: Callable[[Node], RunCommand] = unadministered,
    make_door: Callable[[Node], Door] | None = None,
    make_role: Callable[[Node], Role] | None = None,
) -> Rig:
    """A node on a folder in memory, a cluster of one unless another role is made for it."""
    directory = MemoryDirectory() if directory is None else directory
    known = domains if isinstance(domains, dict) else {config.name: config for config in domains}
    now = Now(wall_s, ms)

    def make_timestamp(prefix: str) -> str:
        return next_timestamp(prefix, directory.names(), datetime.fromtimestamp(now.wall_s, UTC))

    store = open_store(
        directory, num_partitions, 0, limits, ledger_size, now, make_timestamp, outlives_power=outlives_power
    )
    guids = (guid(1 << 20 | number) for number in range(1 << 20))
    services, settings = services or ProcessServices(), settings or QueueSettings()
    basis = Basis(identity, now, known.get, guids.__next__, services, settings, administer)
    if make_role is None:
        node = make_node(basis, store, make_door)
    else:
        node = Node(basis, store.ledger, store.partitions, make_role)
        node.start(store.recovered)
    return Rig(node, directory, now, known, limits)


def bare_proxy(now: Now, identity: NodeIdentity = NODE, services: ProcessServices | None = None) -> ProxyNode:
    """Make a proxy that knows no cluster."""
    basis = Basis(identity, now, lambda name: None, lambda: bytes(16), services or ProcessServices())
    node, _ = make_proxy(basis, (), "", BridgeLimits(), lambda below: 0)
    return node


def store_faults(directory: MemoryDirectory, severity: Severity | None = Severity.ERROR) -> list[Fault]:
    """Validate all files of a folder."""
    names = directory.names()
    found: list[Fault] = []
    for file_set in group_file_sets(names):
        assert file_set.complete, file_set
        parts = (file_set.journal, file_set.data, file_set.qlist)
        found += validate_file_set(*(FileView(name, directory.files[name].data) for name in parts if name))
    for name in names:
        if parse_ledger_file_name(name):
            found += validate_ledger(FileView(name, directory.files[name].data))
    return [fault for fault in found if severity is None or fault.severity is severity]


def identity(
    client_type: ClientType = ClientType.TCPCLIENT,
    client_id: str = "0123456789AB",
    features: str = "PROTOCOL_ENCODING:BER,JSON;MPS:MESSAGE_PROPERTIES_EX;SUBSCRIPTIONS:CONFIGURE_STREAM",
) -> ClientIdentity:
    """Make the identity of a current client; one that makes no GUIDs has no `client_id`."""
    return ClientIdentity(
        protocol_version=1,
        sdk_version=999_999,
        client_type=client_type,
        process_name="client",
        pid=42,
        session_id=1,
        host_name="elsewhere",
        features=features,
        guid_info=GuidInfo(client_id=client_id, nano_seconds_from_epoch=1),
        user_agent="rig",
    )


@dataclass(frozen=True)
class Wanted:
    """One subscription of a consumer; no `text` for all messages."""

    text: str = ""
    priority: int = 0
    messages_max: int = 1 << 20
    bytes_max: int = 1 << 40
    count: int = 1


@dataclass(frozen=True)
class Pushed:
    """One message as a consumer got it."""

    queue_id: int
    guid: bytes
    payload: bytes
    subscription_id: int
    flags: int = 0
    compression: int = 0
    schema_id: int = 0
    rda_info: int = 0


T = TypeVar("T")
Request = OpenQueue | ConfigureStream | ConfigureQueueStream | CloseQueue | Disconnect | AdminCommand
Item = ControlMessage | NegotiationMessage | Ack | Pushed | EventType


@dataclass
class Client:
    """One connection. `inbox` holds what came and was not asked for yet, in order."""

    node: Node
    encoding: EncodingType = EncodingType.BER
    session: Session = field(init=False)
    inbox: list[Item] = field(default_factory=list)
    received: bytearray = field(default_factory=bytearray)
    negotiated: bool = False
    _held: bytes = b""
    _requests: int = 0

    def __post_init__(self) -> None:
        self.session = self.node.connect("10.0.0.1:5000")

    # -- bytes

    def send(self, data: bytes) -> None:
        """Bytes arrive at the node, in a buffer that is overwritten afterwards, as the shell's is."""
        buffer = bytearray(self._held + data)
        used = self.session.receive(memoryview(buffer))
        assert not self.node.faults.failed, "a session's work failed: the log says why"
        self._held = bytes(buffer[used:])
        buffer[:] = b"\xee" * len(buffer)

    def take(self) -> bytes:
        """All that the node has for this client, put into the inbox; and that the link has sent it."""
        output = bytes(self.session.take_output())
        self.received += output
        self.inbox += self._decode(memoryview(output))
        self.session.output_sent()
        return output

    def _decode(self, view: memoryview) -> Iterator[Item]:
        end = 0
        for frame in iter_frames(view, 0, len(view), LENGTH_MAX):
            end = frame.end
            if frame.type == EventType.CONTROL:
                codec = jsonc if schema_encoding(frame.type_specific) is EncodingType.JSON else ber
                kind = ControlMessage if self.negotiated else NegotiationMessage
                self.negotiated = True
                yield codec.decode(kind, view[frame.body : frame.end])
            elif frame.type == EventType.ACK:
                yield from iter_acks(view, frame.body, frame.end)
            elif frame.type == EventType.PUSH:
                for push in iter_pushes(view, frame.body, frame.end):
                    for info in sub_queue_infos(push.options):
                        yield Pushed(
                            push.queue_id,
                            push.guid,
                            bytes(push.data),
                            info.sub_queue_id,
                            push.flags,
                            push.compression,
                            push.schema_id,
                            info.rda_info,
                        )
            else:
                yield EventType(frame.type)
        assert end == len(view)

    # -- what came

    def acks(self) -> list[Ack]:
        return self._pick(Ack)

    def pushes(self) -> list[Pushed]:
        """The messages that came since the last call, all that the node can send included."""
        while self.session.output_size():
            self.take()
        return self._pick(Pushed)

    def payloads(self) -> list[bytes]:
        return [push.payload for push in self.pushes()]

    def controls(self) -> list[EventType]:
        """The heartbeats that came."""
        return self._pick(EventType)

    def _pick(self, kind: type[T]) -> list[T]:
        self.take()
        found: list[T] = [item for item in self.inbox if isinstance(item, kind)]
        self.inbox = [item for item in self.inbox if not isinstance(item, kind)]
        return found

    # -- requests

    def negotiate(self, identity: ClientIdentity) -> BrokerResponse:
        self.send(self._schema_event(NegotiationMessage(choice=identity)))
        (answer,) = self._pick(NegotiationMessage)
        assert isinstance(answer.choice, BrokerResponse)
        return answer.choice

    def ask(self, choice: Request) -> object:
        """A request's answer: what is in the response with its id."""
        self._requests += 1
        self.send(self._schema_event(ControlMessage(r_id=self._requests, choice=choice)))
        (answer,) = self._pick(ControlMessage)
        assert answer.r_id == self._requests
        return answer.choice

    def _schema_event(self, message: NegotiationMessage | ControlMessage) -> bytes:
        codec = jsonc if self.encoding is EncodingType.JSON else ber
        return build_schema_event(codec.encode(message), EventType.CONTROL, self.encoding)

    def try_open(self, queue_id: int, uri: str, flags: int, **changed: Any) -> object:
        """Open a queue, with the counts that its flags call for unless they are given."""
        return self.ask(OpenQueue(handle_parameters=handle(queue_id, uri, flags, **changed)))

    def open(self, queue_id: int, uri: str, flags: int, app: str = "", sub_id: int = 0) -> OpenQueueResponse:
        info = SubQueueIdInfo(sub_id=sub_id, app_id=app) if app else None
        answer = self.try_open(queue_id, f"{uri}?id={app}" if app else uri, flags, sub_id_info=info)
        assert isinstance(answer, OpenQueueResponse), answer
        return answer

    def configure(
        self,
        queue_id: int,
        app: str = "__default",
        *,
        subscription_id: int = 0,
        priority: int = 0,
        messages_max: int = 1 << 20,
        bytes_max: int = 1 << 40,
        consume: bool = True,
    ) -> None:
        consumer = ConsumerInfo(
            max_unconfirmed_messages=messages_max,
            max_unconfirmed_bytes=bytes_max,
            consumer_priority=priority,
            consumer_priority_count=1,
        )
        one = Subscription(s_id=subscription_id, expression=Expression(text=""), consumers=(consumer,))
        parameters = StreamParameters(app_id=app, subscriptions=(one,) if consume else ())
        request = ConfigureStream(q_id=queue_id, stream_parameters=parameters)
        assert self.ask(request) == ConfigureStreamResponse(request=request)

    def subscribe(self, queue_id: int, *wanted: Wanted, app: str = "__default") -> None:
        """Take several subscriptions, under the ids 1, 2, ..."""
        subscriptions = tuple(
            Subscription(
                s_id=number,
                expression=Expression(
                    version=ExpressionVersion.VERSION_1 if each.text else ExpressionVersion.UNDEFINED, text=each.text
                ),
                consumers=(
                    ConsumerInfo(
                        max_unconfirmed_messages=each.messages_max,
                        max_unconfirmed_bytes=each.bytes_max,
                        consumer_priority=each.priority,
                        consumer_priority_count=each.count,
                    ),
                ),
            )
            for number, each in enumerate(wanted, 1)
        )
        request = ConfigureStream(
            q_id=queue_id, stream_parameters=StreamParameters(app_id=app, subscriptions=subscriptions)
        )
        assert self.ask(request) == ConfigureStreamResponse(request=request)

    def read(
        self,
        queue_id: int,
        uri: str,
        app: str = "",
        sub_id: int = 0,
        *,
        priority: int = 0,
        messages_max: int = 1 << 20,
        bytes_max: int = 1 << 40,
    ) -> None:
        """Open for reading and take as much as the limits say; the subscription goes by the sub-queue id."""
        self.open(queue_id, uri, READ, app, sub_id)
        self.configure(
            queue_id,
            app or "__default",
            subscription_id=sub_id,
            priority=priority,
            messages_max=messages_max,
            bytes_max=bytes_max,
        )

    def close(self, queue_id: int, uri: str, flags: int, *, final: bool = True, sub_id: int = 0, app: str = "") -> None:
        request = _close_request(queue_id, uri, flags, sub_id, app, final=final)
        assert self.ask(request) == CloseQueueResponse()

    def begin_to_close(self, queue_id: int, uri: str, flags: int, *, final: bool, sub_id: int, app: str) -> None:
        """Ask for a queue to be closed; the answer may come in any later step."""
        self._requests += 1
        request = _close_request(queue_id, uri, flags, sub_id, app, final=final)
        self.send(self._schema_event(ControlMessage(r_id=self._requests, choice=request)))

    def disconnect(self) -> None:
        assert self.ask(Disconnect()) == DisconnectResponse()

    def drop(self) -> None:
        """The connection breaks."""
        self.node.disconnect(self.session, "the peer closed the connection")

    # -- messages

    def put(
        self,
        queue_id: int,
        guid: bytes,
        payload: bytes,
        *,
        checksum: int | None = None,
        flags: int = PutFlag.ACK_REQUESTED,
        compression: int = 0,
        schema_id: int = 0,
    ) -> None:
        self.send(put_event(queue_id, guid, payload, checksum, flags, compression, schema_id))

    def post(self, queue_id: int, guid: bytes, payload: bytes) -> AckStatus:
        """Post a message and return its status."""
        self.put(queue_id, guid, payload)
        (ack,) = self.acks()
        assert ack.queue_id == queue_id
        assert ack.guid == guid
        return AckStatus(ack.status)

    def confirm(self, queue_id: int, *guids: bytes, sub_id: int = 0) -> None:
        self.send(build_confirm_event((queue_id, guid, sub_id) for guid in guids))


def put_event(
    queue_id: int,
    guid: bytes,
    payload: bytes,
    checksum: int | None = None,
    flags: int = PutFlag.ACK_REQUESTED,
    compression: int = 0,
    schema_id: int = 0,
) -> bytes:
    """An event of one message, its checksum right unless it is given."""
    out = bytearray()
    checksum = crc32c(payload) if checksum is None else checksum
    append_put(out, queue_id, guid, payload, checksum, flags, compression, schema_id)
    return build_event(EventType.PUT, out)


def handle(
    queue_id: int,
    uri: str,
    flags: int,
    *,
    read_count: int | None = None,
    write_count: int | None = None,
    admin_count: int = 0,
    sub_id_info: SubQueueIdInfo | None = None,
) -> QueueHandleParameters:
    """The parameters of an open or close request, with the counts that its flags call for unless they are given."""
    return QueueHandleParameters(
        uri=uri,
        q_id=queue_id,
        sub_id_info=sub_id_info,
        flags=flags,
        read_count=int(bool(flags & READ)) if read_count is None else read_count,
        write_count=int(bool(flags & WRITE)) if write_count is None else write_count,
        admin_count=admin_count,
    )


def _close_request(queue_id: int, uri: str, flags: int, sub_id: int, app: str, *, final: bool) -> CloseQueue:
    info = SubQueueIdInfo(sub_id=sub_id, app_id=app) if app else None
    return CloseQueue(handle_parameters=handle(queue_id, uri, flags, sub_id_info=info), is_final=final)
