"""No request holds up others for 50 ms: each code, at each port, with the longest body that its port takes.

The processor time of each step is measured, and the least of three tries counts. The limit is 50 ms on the machine for
which the bounds were chosen. `slowness` says how much slower this one is, and `ROOM` leaves a margin.
"""

from __future__ import annotations

import gc
import json
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import pytest

from broker.rocketmq.access.guard import AccessOptions, Guard
from broker.rocketmq.access.tables import AccessTables
from broker.rocketmq.nameserver.service import NameserverService
from broker.rocketmq.remoting.limits import frame_bytes_max
from broker.rocketmq.remoting.session import Session
from broker.rocketmq.store.message_store import StoreOptions
from formats.errors import FormatError
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting import raft
from formats.rocketmq.remoting.bodies import access, clients, controllers, lite, popping, routes
from formats.rocketmq.remoting.bodies.routes import CLUSTER_INFO, TOPIC_LIST, TOPIC_ROUTE
from formats.rocketmq.remoting.bodies.statistics import read_consume_stats
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import FRAME_BYTES_MAX, Frame, encode_frame, next_frame
from tests.broker.rocketmq.consuming.dense_bodies import dense_bodies
from tests.broker.rocketmq.controller.rig import Rig as ControllerRig
from tests.broker.rocketmq.nameserver.nameserver_rig import Requests
from tests.broker.rocketmq.proxy.remoting_clients_rig import Proxied
from tests.broker.rocketmq.rig import Peer, Rig
from tests.rigs.machine_speed import slowness

HELD_UP_S: Final = 0.05
ROOM: Final = 2
HEADER_BYTES: Final = 8 << 10
CODES: Final = (*map(int, RequestCode), raft.CODE, 7_777)
# Fields that many requests have, so that they come as far as possible.
FIELDS: Final = {
    "consumerGroup": "g",
    "group": "g",
    "producerGroup": "p",
    "topic": "t",
    "queueId": 0,
    "clientId": "c",
    "clientID": "c",
    "brokerName": "broker-g",
    "bname": "broker-1",
    "brokerAddr": "127.0.0.1:1",
    "clusterName": "c",
    "brokerId": 1,
    "haServerAddr": "127.0.0.1:2",
    "offset": 0,
    "commitOffset": 0,
    "queueOffset": 0,
    "maxMsgNums": 32,
    "sysFlag": 4,
    "suspendTimeoutMillis": 0,
    "subscription": "*",
    "subVersion": 1,
    "index": 0,
    "count": 100_000,
    "namespace": "n",
    "key": "k",
    "username": "u",
    "timestamp": 0,
    "isForce": "true",
    "invisibleTime": 1_000,
    "pollTime": 0,
    "bornTime": 1_700_000_000_000,
    "initMode": 0,
    "defaultTopic": "TBW102",
    "readQueueNums": 4,
    "writeQueueNums": 4,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": "false",
    "maxNum": 64,
    "beginTimestamp": 0,
    "endTimestamp": 9_999_999_999_999,
}


SLOWNESS: Final[list[float]] = []


def longest_s(*, measures: bool = False) -> float:
    """The time that a step may take on this machine, by its speed when it was slowest."""
    if measures or not SLOWNESS:
        SLOWNESS.append(slowness())
    return ROOM * HELD_UP_S * max(SLOWNESS)


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Have the collector run as rarely as in a broker; see `broker.shell.loop.runtime`."""
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(100_000, 50, 1_000)
    yield
    gc.set_threshold(*before)


def taken(work: Callable[[], object]) -> float:
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


def check(name: object, attempt: Callable[[], list[Callable[[], object]]]) -> None:
    """Fail if one of the steps that `attempt` prepares takes too long, in each of three tries."""
    tries = []
    for _ in range(3):
        tries.append(max(taken(step) for step in attempt()))
        if tries[-1] < longest_s() or tries[-1] < longest_s(measures=True):
            return
    raise AssertionError(f"{name}: others were held up for {min(tries) * 1000:.0f} ms")


def joined(size: int, item: Callable[[int], bytes], length: int, separator: bytes = b",") -> bytes:
    return separator.join(map(item, range(size // length)))


SHAPES: Final[dict[str, Callable[[int], bytes]]] = {
    "numbers": lambda size: b"[" + b"0," * (size // 2 - 1) + b"0]",
    "objects": lambda size: b'{"a":[' + b"{}," * (size // 3 - 4) + b"{}]}",
    "nests": lambda size: b'{"a":[' + b"[[[[[[[[0]]]]]]]]," * (size // 18 - 4) + b"0]}",
    "deep": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "keys": lambda size: b"{" + joined(size, lambda number: b'"%06x":0' % number, 11) + b"}",
    "bare keys": lambda size: b"{" + joined(min(size, 250_000), lambda number: b"%06d:0" % (number + 1), 9) + b"}",
    "too many bare keys": lambda size: b"{" + joined(size, lambda number: b"%06d:0" % (number + 1), 9) + b"}",
    "object keys": lambda size: b"{" + joined(min(size, 250_000), lambda number: b'{"a":%06d}:0' % 1, 15) + b"}",
    "repaired strings": lambda size: b'{1:["",' + b'"",' * (min(size, 250_000) // 3 - 4) + b'""]}',
    "floats": lambda size: b"[" + b"1e9," * (size // 4 - 1) + b"0]",
    "escapes": lambda size: b'["' + b"\\u00e9" * (size // 6 - 4) + b'"]',
    "quotes": lambda size: b'"' * size,
    "properties": lambda size: joined(size, lambda number: b"k%06d=v" % number, 10, b"\n"),
    "zeros": lambda size: b"\0" * size,
}


def frame(code: int, body: bytes, **changes: Any) -> memoryview:
    fields = {name: str(value) for name, value in {**FIELDS, **changes}.items()}
    data = encode_frame(Frame(code, 1, 0, ext_fields=fields, body=body, version=493))
    assert len(data) <= frame_bytes_max(code) + 4
    return memoryview(data)


RIGS: Final[list[Rig]] = []
PROXIED: Final[list[Proxied]] = []
CONTROLLERS: Final = ControllerRig()


def broker_steps(code: int, body: bytes) -> list[Callable[[], object]]:
    if not RIGS:
        RIGS.append(Rig())
    (rig,) = RIGS
    session, data = rig.peer().session, frame(code, body)
    return [lambda: session.receive(data), rig.broker.end_step, rig.broker.tick, rig.broker.end_step]


def nameserver_steps(code: int, body: bytes, **changes: Any) -> list[Callable[[], object]]:
    access = AccessTables(b"", b"", lambda data: None, lambda data: None)
    service = NameserverService(Requests().server, Guard(AccessOptions(), access, "c"), lambda: 1_000_000)
    session = Session(1, Host("127.0.0.1", 40_001), service, lambda _: None, lambda: 0)
    data = frame(code, body, **changes)
    return [lambda: session.receive(data), service.end_step, service.tick]


def controller_steps(code: int, body: bytes) -> list[Callable[[], object]]:
    peer, data = CONTROLLERS.peer(), frame(code, body)
    return [lambda: peer.session.receive(data), CONTROLLERS.leader().service.tick]


def proxy_steps(code: int, body: bytes) -> list[Callable[[], object]]:
    if not PROXIED:
        PROXIED.append(Proxied())
    session, data = PROXIED[0].client().session, frame(code, body)
    return [lambda: session.receive(data), PROXIED[0].service.tick]


PORTS: Final = {
    "broker": broker_steps,
    "nameserver": nameserver_steps,
    "controller": controller_steps,
    "proxy": proxy_steps,
}


# A body takes longer to be made than to be refused. The ports are tried one after the other with those of a shape.
@lru_cache(maxsize=8)
def shaped(shape: str, size: int) -> bytes:
    return SHAPES[shape](size)[:size]


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_no_request_holds_up_others(port: str, shape: str) -> None:
    for code in CODES:
        body = shaped(shape, frame_bytes_max(code) - HEADER_BYTES)
        check((port, code, shape), lambda code=code, body=body: PORTS[port](code, body))  # type: ignore[misc]


@pytest.mark.parametrize("shape", SHAPES)
def test_an_answer_of_a_stranger_does_not_hang_a_tool(shape: str) -> None:
    """Reading 4 MiB takes half a second at most; a reader in Python took three seconds."""
    body = SHAPES[shape](FRAME_BYTES_MAX // 4)
    for read in (CLUSTER_INFO.read, TOPIC_ROUTE.read, TOPIC_LIST.read, read_consume_stats):

        def try_to_read(read: Callable[[bytes], object] = read) -> None:
            with suppress(FormatError):
                read(body)

        assert taken(try_to_read) < 15 * longest_s()


# The bodies that requests have, by port and code.
BODIES: Final[dict[tuple[str, RequestCode], type[Any]]] = {
    ("broker", RequestCode.HEART_BEAT): clients.Heartbeat,
    ("broker", RequestCode.LOCK_BATCH_MQ): clients.LockRequest,
    ("broker", RequestCode.UNLOCK_BATCH_MQ): clients.LockRequest,
    ("broker", RequestCode.CHECK_CLIENT_CONFIG): clients.CheckClientRequest,
    ("broker", RequestCode.UPDATE_AND_CREATE_TOPIC_LIST): routes.TopicConfigList,
    ("broker", RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP): clients.GroupConfig,
    ("broker", RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST): clients.GroupConfigList,
    ("broker", RequestCode.BATCH_ACK_MESSAGE): popping.BatchAckRequest,
    ("broker", RequestCode.QUERY_ASSIGNMENT): popping.AssignmentRequest,
    ("broker", RequestCode.SET_MESSAGE_REQUEST_MODE): popping.RequestMode,
    ("broker", RequestCode.LITE_SUBSCRIPTION_CTL): lite.LiteSubscriptions,
    ("broker", RequestCode.AUTH_CREATE_ACL): access.AclInfo,
    ("nameserver", RequestCode.REGISTER_TOPIC_IN_NAMESRV): routes.TopicRoute,
    ("nameserver", RequestCode.QUERY_DATA_VERSION): routes.DataVersion,
    ("nameserver", RequestCode.REGISTER_BROKER): routes.RegisterBrokerBody,
    ("controller", RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET): controllers.SyncStateSet,
    ("proxy", RequestCode.HEART_BEAT): clients.Heartbeat,
    ("proxy", RequestCode.LOCK_BATCH_MQ): clients.LockRequest,
    ("proxy", RequestCode.BATCH_ACK_MESSAGE): popping.BatchAckRequest,
    ("proxy", RequestCode.QUERY_ASSIGNMENT): popping.AssignmentRequest,
}


@pytest.mark.parametrize(("port", "code"), BODIES, ids=lambda each: str(getattr(each, "name", each)))
def test_bodies_of_least_items_hold_up_nobody(port: str, code: RequestCode) -> None:
    size = min(frame_bytes_max(code) - HEADER_BYTES, routes.REGISTRATION_BYTES_MAX)
    # The bounds refuse what is longest: a body with as many items as they allow takes longer.
    for parts in (1, 2, 4):
        for name, body in dense_bodies(BODIES[port, code], size // parts):
            check((port, code, name, parts), lambda body=body: PORTS[port](code, body))  # type: ignore[misc]


def registration(count: int) -> bytes:
    table = {
        f"some-topic-of-a-broker-{number}": {
            "attributes": {"+message.type": "NORMAL"},
            "order": False,
            "perm": 6,
            "readQueueNums": 8,
            "topicFilterType": "SINGLE_TAG",
            "topicName": f"some-topic-of-a-broker-{number}",
            "topicSysFlag": 0,
            "writeQueueNums": 8,
        }
        for number in range(count)
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1}
    wrapper = {"dataVersion": version, "topicConfigTable": table}
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}, separators=(",", ":")).encode()


def compressed_registration(count: int) -> bytes:
    def piece(text: bytes) -> bytes:
        return struct.pack(">i", len(text)) + text

    version = piece(b'{"counter":1,"stateVersion":0,"timestamp":1}')
    topics = b"".join(piece(b'topic-%d 8 8 6 SINGLE_TAG {"a":"b"}' % number) for number in range(count))
    return zlib.compress(version + struct.pack(">i", count) + topics + piece(b"[]"))


def test_registrations_of_many_topics_hold_up_nobody() -> None:
    for name, body, compressed in (
        ("plain", registration(8_000), "false"),
        ("compressed", compressed_registration(8_000), "true"),
        ("bare keys", b"{" + b",".join(b"%06d:0" % number for number in range(100_000, 199_000)) + b"}", "false"),
        ("object keys", b'{"x":{' + b",".join(b'{"a":%d}:1' % number for number in range(99_000)) + b"}}", "false"),
        ("no topics", zlib.compress(b"\0" * (60 << 20)), "true"),
        ("topics without an end", compressed_registration(500_000), "true"),
    ):
        check(
            name,
            lambda body=body, compressed=compressed: nameserver_steps(  # type: ignore[misc]
                RequestCode.REGISTER_BROKER, body, compressed=compressed
            ),
        )


def test_heartbeats_with_as_many_groups_as_they_may_have_hold_up_nobody() -> None:
    count = clients.HEARTBEAT_GROUPS_MAX
    groups = ",".join(f'{{"groupName":"g{number}"}}' for number in range(count))
    body = f'{{"clientID":"c","consumerDataSet":[{groups}]}}'.encode()
    check("heartbeat", lambda: broker_steps(RequestCode.HEART_BEAT, body))


def put(peer: Peer, code: RequestCode, **fields: Any) -> None:
    named = {name: str(value) for name, value in fields.items()}
    data = encode_frame(Frame(code, 1, 0, ext_fields=named, version=493))
    assert peer.session.receive(memoryview(data)) == len(data)


def pull(peer: Peer, **changes: Any) -> None:
    fields = {
        "consumerGroup": "g",
        "topic": "t",
        "queueId": 0,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 15_000,
        "subscription": "*",
        "subVersion": 1,
    }
    put(peer, RequestCode.PULL_MESSAGE, **{**fields, **changes})


EXPRESSIONS: Final = {
    "searches": " AND ".join(["a NOT CONTAINS 'xxxxxxxxy'"] * 64) + " AND b = 'x'",
    "long searches": " AND ".join([f"a NOT CONTAINS '{'x' * 15}y{'x' * 16}'"] * 62) + " AND b = 'x'",
    "comparisons": " OR ".join(["a=1"] * 1_000),
    "numbers": " OR ".join(["n>1.5"] * 900),
    "conditions": " OR ".join(["a=TRUE"] * 800),
    "small": "b = 'x'",
    "too long": " OR ".join(["a CONTAINS 'xxxxxxxxy'"] * 1_150),
    "no expression": " OR ".join(["a=1"] * 1_000) + " OR",
}
PROPERTIES: Final = {
    "long": {"a": "x" * 30_000, "n": "1" * 1_000},
    "many": {"a": "x", "n": "1" * 1_000, **{f"{number:x}": "1" for number in range(4_000)}},
}


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("properties", PROPERTIES)
def test_filters_hold_up_nobody(properties: str, expression: str) -> None:
    rig = Rig(store=StoreOptions(8 << 20, 20_000, 50, 400))
    rig.broker.start()
    peer = rig.peer()
    for _ in range(30):
        peer.send(b"m", PROPERTIES[properties])
    text = EXPRESSIONS[expression]

    def steps() -> list[Callable[[], object]]:
        # Each try has an expression of its own, which nothing is known of.
        text_ = f"{text} {' ' * next(number)}"
        pulls = [lambda: pull(peer, subscription=text_, expressionType="SQL92")]
        return [*pulls, rig.broker.end_step, *pulls, rig.broker.end_step]

    number = iter(range(10))
    check(expression, steps)


def waiting_rig(count: int, kind: str) -> tuple[Rig, Peer]:
    rig = Rig()
    peer = rig.peer()
    for number in range(count):
        if kind == "pull":
            pull(peer, sysFlag=2 | 4)
        else:
            fields = {"consumerGroup": f"g{number // 1_000}", "topic": "t", "queueId": -1, "pollTime": 5_000}
            more = {"bornTime": rig.wall_ms, "maxMsgNums": 32, "invisibleTime": 10_000, "initMode": 0}
            code = RequestCode.POP_MESSAGE if kind == "pop" else RequestCode.NOTIFICATION
            put(peer, code, **fields, **more)
    while rig.broker.end_step():
        pass
    return rig, peer


@pytest.mark.parametrize("kind", ["pull", "pop", "notification"])
@pytest.mark.parametrize("event", ["message", "end of the wait", "end of the connection"])
def test_waiting_requests_hold_up_nobody(kind: str, event: str) -> None:
    def steps() -> list[Callable[[], object]]:
        rig, peer = waiting_rig(8_000, kind)
        if event == "message":
            sender = rig.peer()
            fields = {"a": "p", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 0, "h": 0}
            first: Callable[[], object] = lambda: put(sender, RequestCode.SEND_MESSAGE_V2, **fields)  # noqa: E731
        elif event == "end of the wait":
            rig.wall_ms += 20_000
            first = rig.broker.tick
        else:
            first = peer.session.end
        return [first, *[rig.broker.end_step] * 40]

    check((kind, event), steps)


def test_all_waiting_pulls_are_answered() -> None:
    rig, peer = waiting_rig(3_000, "pull")
    rig.peer().send(b"m")
    view, at, codes = memoryview(bytes(peer.session.take_output())), 0, []
    while (found := next_frame(view, at, len(view))) is not None:
        answer, at = found
        codes.append(answer.code)
    assert codes == [ResponseCode.SUCCESS] * 3_000
