"""The ends of a bridge as users write them, and what a bridge is told.

bmq://DOMAIN/QUEUE[?id=APP]
rocketmq://HOST:PORT/TOPIC[?group=GROUP&queue=NUMBER&key=PROPERTY]
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from bmqctl.carrying.bridge.flow import FlowOptions
from bmqctl.client.address import BadAddress, parse_address
from bmqctl.client.session import SessionOptions
from formats.bmq.uri import parse_uri
from formats.errors import FormatError

__all__ = [
    "BadBridge",
    "BlazingEnd",
    "BridgeOptions",
    "RocketEnd",
    "is_topic_name",
    "make_bridge",
    "parse_end",
    "read_bridges",
]

DEFAULT_BROKER: Final = "tcp://localhost:30114"
DEFAULT_GROUP: Final = "bmqctl-bridge"
# What Apache RocketMQ takes in a name.
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
_QUEUE_MAX: Final = (1 << 16) - 1
_KEYS: Final = {
    "name": str,
    "from": str,
    "to": str,
    "broker": str,
    "window": int,
    "batch": int,
    "skip_refused": bool,
}
_COUNT_MAX: Final = 1 << 20


class BadBridge(ValueError):
    """Bridges that cannot be: an end that is none, or a file that does not say what they are; one line."""


class BlazingEnd(NamedTuple):
    """A queue of BlazingMQ, or an app of one, and its broker."""

    host: str
    port: int
    uri: str

    def __str__(self) -> str:
        return self.uri


class RocketEnd(NamedTuple):
    """A topic of RocketMQ, and its nameserver.

    `group` consumes it. Messages go to the queue with number `queue`, 0 if that is None, or by the value of the
    property `key` to one of all queues.
    """

    host: str
    port: int
    topic: str
    group: str = DEFAULT_GROUP
    queue: int | None = None
    key: str = ""

    def __str__(self) -> str:
        return f"rocketmq://{self.host}:{self.port}{f'/{self.topic}' if self.topic else ''}"


@dataclass(frozen=True, slots=True)
class BridgeOptions:
    """One bridge.

    `wait_s` is how long ends that are away are awaited at the start, None for ever; `patience_s` how long the answers
    are when it is stopped.
    """

    name: str
    source: BlazingEnd | RocketEnd
    destination: BlazingEnd | RocketEnd
    flow: FlowOptions = field(default_factory=FlowOptions)
    session: SessionOptions = field(default_factory=SessionOptions)
    timeout_s: float = 10.0
    wait_s: float | None = None
    patience_s: float = 10.0
    idle_s: float | None = None


def is_topic_name(text: str) -> bool:
    """Return True for what RocketMQ takes as the name of a topic."""
    return _NAME.fullmatch(text) is not None


def parse_end(
    text: str, broker: str, *, may_lack_topic: bool = False, group: str = DEFAULT_GROUP
) -> BlazingEnd | RocketEnd:
    """Parse one end; `broker` is that of a BlazingMQ queue, `group` that of a topic without one. Raises `BadBridge`."""
    if text.startswith("bmq://"):
        try:
            host, port = parse_address(broker)
            return BlazingEnd(host, port, str(parse_uri(text)))
        except FormatError as fault:
            raise BadBridge(f"{text}: {fault.reason}") from None
        except BadAddress as fault:
            raise BadBridge(str(fault)) from None
    if text.startswith("rocketmq://"):
        return _parse_rocketmq(text, may_lack_topic, group)
    raise BadBridge(f"{text}: expected bmq://DOMAIN/QUEUE or rocketmq://HOST:PORT/TOPIC")


def _parse_rocketmq(text: str, may_lack_topic: bool, default_group: str) -> RocketEnd:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise BadBridge(f"{text}: expected rocketmq://HOST:PORT/TOPIC") from None
    topic = unquote(parts.path[1:])
    is_named = is_topic_name(topic) or (may_lack_topic and not topic)
    if not host or not port or parts.username is not None or parts.fragment or not is_named:
        raise BadBridge(f"{text}: expected rocketmq://HOST:PORT/TOPIC, and a topic of a-z, A-Z, 0-9, %, |, _ and -")
    query = dict(given)
    if len(query) != len(given) or query.keys() - {"group", "queue", "key"}:
        raise BadBridge(f"{text}: after ? there may be group=, queue= and key=, once each")
    if {"queue", "key"} <= query.keys():
        raise BadBridge(f"{text}: messages go to one queue or by a key, not both")
    group = query.get("group")
    queue = query.get("queue")
    is_queue = queue is None or (re.fullmatch("[0-9]{1,5}", queue) is not None and int(queue) <= _QUEUE_MAX)
    if (group is not None and not _NAME.fullmatch(group)) or not is_queue:
        raise BadBridge(f"{text}: a group is a name, and a queue a number from 0 to {_QUEUE_MAX}")
    if query.get("key") == "":
        raise BadBridge(f"{text}: the key is the name of a property")
    return RocketEnd(
        host,
        port,
        topic,
        default_group if group is None else group,
        None if queue is None else int(queue),
        query.get("key", ""),
    )


def make_bridge(
    source: str, destination: str, broker: str, *, name: str = "", flow: FlowOptions | None = None, **rest: Any
) -> BridgeOptions:
    """Make one bridge of its two ends. Raises `BadBridge` unless one is BlazingMQ's and one is RocketMQ's."""
    ends = parse_end(source, broker), parse_end(destination, broker)
    if isinstance(ends[0], BlazingEnd) == isinstance(ends[1], BlazingEnd):
        raise BadBridge(f"{source} and {destination}: a bridge leads from one system to the other")
    if isinstance(ends[1], BlazingEnd) and parse_uri(ends[1].uri).app_id:
        raise BadBridge(f"{destination}: messages are posted to a queue, not to an app of it")
    return BridgeOptions(name or str(ends[0]), *ends, flow=flow or FlowOptions(), **rest)


def read_bridges(text: str, broker: str = DEFAULT_BROKER, **rest: Any) -> list[BridgeOptions]:
    """Read the bridges of a configuration in TOML. Raises `BadBridge`."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise BadBridge(str(fault)) from None
    tables = given.get("bridge")
    if given.keys() - {"bridge"} or not isinstance(tables, list) or not tables:
        raise BadBridge("expected tables [[bridge]], and nothing else")
    bridges = [_read_bridge(at, table, broker, rest) for at, table in enumerate(tables, 1)]
    names = [each.name for each in bridges]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadBridge(f"two bridges are named {twice[0]}")
    return bridges


def _read_bridge(at: int, table: Mapping[str, Any], broker: str, rest: dict[str, Any]) -> BridgeOptions:
    where = f"bridge {at}"
    if not isinstance(table, dict) or table.keys() - _KEYS.keys() or not {"from", "to"} <= table.keys():
        raise BadBridge(f"{where}: expected from and to, and of {', '.join(_KEYS)} nothing else")
    for key, value in table.items():
        if type(value) is not _KEYS[key]:
            raise BadBridge(f"{where}: {key} = {value!r} is no {_KEYS[key].__name__}")
        if isinstance(value, int) and not isinstance(value, bool) and not 1 <= value <= _COUNT_MAX:
            raise BadBridge(f"{where}: {key} = {value} is not between 1 and {_COUNT_MAX}")
    usual = FlowOptions()
    flow = FlowOptions(
        window=table.get("window", usual.window),
        batch_messages=table.get("batch", usual.batch_messages),
        skip_refused=table.get("skip_refused", False),
    )
    try:
        return make_bridge(
            table["from"],
            table["to"],
            table.get("broker", broker),
            name=table.get("name", f"bridge {at}"),
            flow=flow,
            **rest,
        )
    except BadBridge as fault:
        raise BadBridge(f"{where}: {fault}") from None
