"""Requests of every code, made from the declarations of headers and bodies, with hostile values in their fields.

`cases` lists the single tries at each port: each field of each code with each hostile value, absent, and doubled, and
each property of stored messages. Between them come random requests.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from formats.rocketmq.remoting import raft
from formats.rocketmq.remoting.batch import BatchMessage, encode_batch
from formats.rocketmq.remoting.bodies import access as access_bodies
from formats.rocketmq.remoting.bodies import clients as client_bodies
from formats.rocketmq.remoting.bodies import controllers as controller_bodies
from formats.rocketmq.remoting.bodies import lite as lite_bodies
from formats.rocketmq.remoting.bodies import popping as pop_bodies
from formats.rocketmq.remoting.bodies import routes as route_bodies
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame, HeaderEncoding, encode_frame
from formats.rocketmq.remoting.headers import replicating, routing
from formats.rocketmq.remoting.headers.codec import HeaderField
from formats.rocketmq.remoting.headers.table import HEADERS
from tests.fuzz.rocketmq.values import BROKER, FAMILIES, HOSTILE, OWN_TOPICS, PROPERTIES, TOPICS, Values, dump
from tests.fuzz.rocketmq.wire import Action
from tests.fuzz.session_events import changed_words

__all__ = ["BODIES", "CODES", "Case", "Requests", "all_names", "cases", "frame_of", "name_of"]

ABSENT, DOUBLED = "<absent>", "<doubled>"
# A field with one of these is not tried with other values.
_FLAGS = (0, 0, 0, 0, 2, 1)
_PREPARED, _COMPRESSED = 4, 1

BODIES: Mapping[int, type[Any]] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: route_bodies.TopicConfigList,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: route_bodies.TopicConfig,
    RequestCode.HEART_BEAT: client_bodies.Heartbeat,
    RequestCode.CHECK_CLIENT_CONFIG: client_bodies.CheckClientRequest,
    RequestCode.LOCK_BATCH_MQ: client_bodies.LockRequest,
    RequestCode.UNLOCK_BATCH_MQ: client_bodies.LockRequest,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: client_bodies.GroupConfig,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: client_bodies.GroupConfigList,
    RequestCode.REGISTER_BROKER: route_bodies.RegisterBrokerBody,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: route_bodies.TopicRoute,
    RequestCode.QUERY_DATA_VERSION: route_bodies.DataVersion,
    RequestCode.AUTH_CREATE_USER: access_bodies.UserInfo,
    RequestCode.AUTH_UPDATE_USER: access_bodies.UserInfo,
    RequestCode.AUTH_CREATE_ACL: access_bodies.AclInfo,
    RequestCode.AUTH_UPDATE_ACL: access_bodies.AclInfo,
    RequestCode.BATCH_ACK_MESSAGE: pop_bodies.BatchAckRequest,
    RequestCode.QUERY_ASSIGNMENT: pop_bodies.AssignmentRequest,
    RequestCode.SET_MESSAGE_REQUEST_MODE: pop_bodies.RequestMode,
    RequestCode.LITE_SUBSCRIPTION_CTL: lite_bodies.LiteSubscriptions,
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: controller_bodies.SyncStateSet,
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: controller_bodies.SyncStateSet,
}
_CONFIGS = (
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.UPDATE_NAMESRV_CONFIG,
    RequestCode.UPDATE_CONTROLLER_CONFIG,
    RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
)
# Not those by which an operator rightly ends the service, such as brokerPermission, maxMessageSize and
# transactionTimeOut.
_SETTINGS = (
    *("authenticationEnabled", "authorizationEnabled", "traceOn"),
    *("haHousekeepingInterval", "slaveTimeout", "storePathRootDir", "listenPort", "namesrvAddr", "noSuchProperty"),
    *("brokerName", "enablePropertyFilter", "messageDelayLevel", "deleteWhen", "rocketmqHome", "configBlackList"),
    *("enableElectUncleanMaster", "scanNotActiveBrokerInterval", "timerWheelEnable", "autoCreateSubscriptionGroup"),
)
# Requests by which an operator may harm a broker, and which the broker of other clients does not get.
_OPERATOR = (
    RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    RequestCode.CLEAN_BROKER_DATA,
    RequestCode.CONTROLLER_ELECT_MASTER,
)
_BATCHES = (RequestCode.SEND_BATCH_MESSAGE,)
_REPLICATION = (
    RequestCode.EXCHANGE_BROKER_HA_INFO,
    RequestCode.RESET_MASTER_FLUSH_OFFSET,
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
)


def _codes(port: str) -> tuple[int, ...]:
    """The codes whose fields are tried at a port; any code goes to any port now and then."""
    found = []
    for code in RequestCode:
        headers = HEADERS.get(code)
        module = headers.request.cls.__module__ if headers and headers.request else ""
        if module == routing.__name__:
            place = {"nameserver"}
        elif module == replicating.__name__:
            place = {"controller", "broker"} if code in _REPLICATION else {"controller"}
        elif not module:
            place = {"broker", "nameserver", "controller", "proxy"}
        else:
            place = {"broker", "proxy"}
        if port in place or (port == "controller" and code == RequestCode.BROKER_HEARTBEAT):
            found.append(int(code))
    return (*found, raft.CODE) if port == "controller" else tuple(found)


CODES: Mapping[str, tuple[int, ...]] = {port: _codes(port) for port in ("broker", "nameserver", "controller", "proxy")}


_NAMES = {int(code): code.name for code in RequestCode}


class Case(NamedTuple):
    """A field of a code, or a property of messages to a topic (code 0), and the value to try."""

    code: int
    name: str
    value: str
    topic: str = ""


def _fields(code: int) -> tuple[HeaderField, ...]:
    if code == raft.CODE:
        return raft.RAFT_HEADER.fields
    headers = HEADERS.get(code)
    return headers.request.fields if headers is not None and headers.request is not None else ()


def name_of(code: int) -> str:
    return _NAMES.get(code, str(code))


def all_names(port: str) -> Iterator[str]:
    """Yield the names of all codes, with their fields, that are tried at a port."""
    for code in CODES.get(port, ()):
        yield f"{port}: {name_of(code)}"
        yield from (f"{port}: {name_of(code)} {field.wire_name}" for field in _fields(code))


@cache
def cases(port: str) -> tuple[Case, ...]:
    """List the single tries at a port, in a fixed order: properties that the broker reads again come first."""
    values = (*HOSTILE, ABSENT, DOUBLED)
    found = []
    if port in ("broker", "proxy"):
        found += [Case(0, name, value, topic) for topic in FAMILIES for name in FAMILIES[topic] for value in HOSTILE]
        topics = (*TOPICS, *OWN_TOPICS)
        for name in PROPERTIES:
            found += [Case(0, name, value, topics[at % len(topics)]) for at, value in enumerate(HOSTILE)]
    found += [Case(code, field.wire_name, value) for code in CODES[port] for field in _fields(code) for value in values]
    found += [Case(code, "", "") for code in CODES[port]]
    return tuple(found)


def frame_of(
    code: int, fields: Sequence[tuple[str, Any]] = (), body: str | bytes = b"", opaque: int = 1, flag: int = 0
) -> bytes:
    """Make a frame with a header in JSON, whose fields may be doubled and of any type."""
    pairs = ",".join(f"{json.dumps(name)}:{dump(value)}" for name, value in fields)
    head = f'{{"code":{code},"flag":{flag},"language":"JAVA","opaque":{opaque},"version":0,"extFields":{{{pairs}}}}}'
    header = head.encode()
    data = body.encode(errors="replace") if isinstance(body, str) else body
    return struct.pack(">II", 4 + len(header) + len(data), len(header) & 0xFFFFFF) + header + data


class Requests:
    """Makes requests to one port from random numbers."""

    def __init__(self, values: Values, port: str, without: Sequence[str] = ()) -> None:
        self.random = values.random
        self._codes = [code for code in CODES.get(port, ()) if name_of(code) not in without]
        self._others = [code for codes in CODES.values() for code in codes if name_of(code) not in without]
        self.values = values
        self.port = port
        # The names of the codes and fields of all requests.
        self.produced: set[str] = set()
        self._opaque = 0

    # -- requests

    def any(self) -> Action:
        """Make a random request; two in three are plausible in most fields."""
        random = self.random
        if random.random() < 0.3 and self.port in ("broker", "proxy"):
            topic = random.choice(list(FAMILIES) if random.random() < 0.7 else [*TOPICS, *OWN_TOPICS])
            return self.message(topic, self.values.properties(topic))
        code = random.choice(self._codes if random.random() < 0.95 else [*self._others, 0, -1])
        fields = self.plausible(code)
        for _ in range(random.choice((0, 0, 1, 1, 2, 5))):
            if fields:
                at = random.randrange(len(fields))
                fields[at] = (fields[at][0], self.values.hostile() if random.random() < 0.8 else self.values.junk())
        action = self.request(code, fields)
        if random.random() < 0.03:
            return self._garbled(action)
        return action

    def case(self, case: Case) -> Action:
        """Make the request of a case, plausible in everything else."""
        if not case.code:
            return self.message(case.topic, {**self.values.family(case.topic), case.name: case.value})
        fields = self.plausible(case.code)
        if case.value == ABSENT:
            fields = [pair for pair in fields if pair[0] != case.name]
        elif case.value == DOUBLED:
            fields += [(case.name, self.values.hostile())]
        elif case.name:
            fields = [pair for pair in fields if pair[0] != case.name] + [(case.name, case.value)]
        return self.request(case.code, fields)

    def request(self, code: int, fields: Sequence[tuple[str, Any]], body: str | bytes | None = None) -> Action:
        random = self.random
        self._opaque += 1
        body = self.body(code, dict(fields)) if body is None else body
        flag = random.choice(_FLAGS) if random.random() < 0.1 else 0
        self.produced.add(f"{self.port}: {name_of(code)}")
        self.produced.update(f"{self.port}: {name_of(code)} {name}" for name, _ in fields)
        what = f"{name_of(code)} {_shown(fields)} {_short(body)}"
        data = self._binary(code, fields, body, flag) if random.random() < 0.2 else None
        if data is None:
            data = frame_of(code, fields, body, self._opaque, flag)
        return Action(self.port, what, ((data, 1),), link=random.randrange(3), answers=int(not flag))

    def _binary(self, code: int, fields: Sequence[tuple[str, Any]], body: str | bytes, flag: int) -> bytes | None:
        """The frame with a binary header; None if that cannot hold it."""
        texts = {name: value for name, value in fields if type(value) is str}
        data = body.encode(errors="replace") if isinstance(body, str) else body
        frame = Frame(code, self._opaque, flag, None, texts, data, encoding=HeaderEncoding.BINARY)
        try:
            return encode_frame(frame)
        except (ValueError, struct.error):
            return None

    def plausible(self, code: int) -> list[tuple[str, Any]]:
        random, values = self.random, self.values
        fields = [
            (field.wire_name, values.field(field))
            for field in _fields(code)
            if field.is_required or random.random() < 0.7
        ]
        if code in _OPERATOR:
            fields = [(name, "broker-z" if value == BROKER else value) for name, value in fields]
        return fields

    def _garbled(self, action: Action) -> Action:
        """Make a false or incomplete frame of an action; the connection is not used again."""
        ((data, _),) = action.pieces
        match self.random.randrange(3):
            case 0:
                data = changed_words(self.random, data, 4)
            case 1:
                data = data[: self.random.randrange(len(data))]
            case _:
                data = struct.pack(">I", self.random.choice((0, 1, 3, 1 << 24, (1 << 31) - 1, 1 << 31))) + data[4:]
        return action._replace(
            pieces=((data, 1),), link=1_000 + self._opaque, what=f"garbled {action.what}", wait_s=0.02
        )

    # -- bodies

    def body(self, code: int, fields: Mapping[str, Any]) -> str | bytes:
        """Make a body as the code's declaration says, with changes in two of three."""
        random, values = self.random, self.values
        changes = random.choice((0, 1, 3))
        if code in BODIES:
            return values.body(BODIES[code], changes).replace('"Super"', '"Normal"')
        if code == raft.CODE:
            return values.body(raft.KINDS.get(str(fields.get("kind")), raft.Append), changes)
        if code in _CONFIGS:
            names = random.sample(_SETTINGS, random.choice((1, 1, 3)))
            return "".join(f"{name}={random.choice(('true', 'false', values.hostile()))}\n" for name in names)
        if code in _BATCHES:
            return self.batch()
        if code == RequestCode.CONTROLLER_GET_SYNC_STATE_DATA:
            return dump(values.changed([BROKER]))
        if code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_REPLY_MESSAGE_V2):
            return self.payload(str(fields.get("b", fields.get("topic", ""))))
        if random.random() < 0.1:
            return dump(values.junk())
        return b""

    def payload(self, topic: str) -> str | bytes:
        """Make the body of a message: for the broker's own topics, of their kind."""
        random = self.random
        if "REVIVE_LOG" in topic:
            note = random.choice((pop_bodies.CheckPoint, pop_bodies.AckNote, pop_bodies.BatchAckNote))
            return self.values.body(note, random.choice((0, 1, 1, 2)))
        if "OP_HALF" in topic:
            return ",".join(random.choice(("0", "1", self.values.hostile())) for _ in range(random.choice((1, 3))))
        return random.choice((b"", b"x", b"x" * 1_000, random.randbytes(20), b"\0" * 20_000))

    def batch(self) -> bytes:
        """Make a batch of messages, now and then with wrong words."""
        values = self.values
        messages = []
        for _ in range(self.random.choice((0, 1, 3, 40))):
            properties = values.properties_text(values.properties(self.random.choice((*FAMILIES, ""))))
            body = self.random.choice((b"", b"x" * 20))
            messages.append(BatchMessage(0, body, properties.encode(errors="replace")[:0x7FFF]))
        data = encode_batch(messages)
        return changed_words(self.random, data, 4) if self.random.random() < 0.3 else data

    def message(self, topic: str, properties: Mapping[str, str], code: int = 0) -> Action:
        random, values = self.random, self.values
        sends = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
        code = code or random.choice((*sends, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_REPLY_MESSAGE_V2))
        text = values.properties_text(properties)
        flags = random.choice((0, 0, 0, 0, _PREPARED, _COMPRESSED, 8, 12, 0x300, 1 << 7))
        if properties.get("TRAN_MSG") == "true" and random.random() < 0.5:
            flags = _PREPARED
        given = {
            "topic": topic,
            "b": topic,
            "m": "false",
            "batch": "false",
            "properties": text,
            "i": text,
            "sysFlag": str(flags),
            "f": str(flags),
        }
        if topic in OWN_TOPICS and random.random() < 0.8:
            # Most have one queue.
            given |= {"queueId": "0", "e": "0"}
        fields = [(field.wire_name, given.get(field.wire_name, values.field(field))) for field in _fields(code)]
        body: str | bytes = self.payload(topic)
        if code == RequestCode.SEND_BATCH_MESSAGE:
            data = body.encode(errors="replace") if isinstance(body, str) else body
            body = encode_batch([BatchMessage(0, data, text.encode(errors="replace")[:0x7FFF])])
            fields = [(name, "true" if name == "m" else value) for name, value in fields]
        return self.request(code, fields, body)


def _shown(fields: Sequence[tuple[str, Any]]) -> str:
    return "{" + ", ".join(f"{name}={_short(value)}" for name, value in fields) + "}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}... ({len(text)} characters)"
