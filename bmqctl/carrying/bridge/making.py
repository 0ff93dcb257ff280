"""Construction of bridges from their ends, which know their systems' needs; the configuration of bridges."""

from __future__ import annotations

import secrets
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from bmqctl.carrying.bridge.blazingmq_ends import Make
from bmqctl.carrying.bridge.carrying import Bridge, Destination, Source, Tell, TryAgain
from bmqctl.carrying.bridge.ends import BadBridge
from bmqctl.carrying.bridge.flow import FlowOptions
from bmqctl.carrying.bridge.rocketmq_source import MakeOfRecord
from bmqctl.carrying.options import CarryOptions
from bmqctl.client.remoting.client import PLAIN, Security
from bmqctl.client.session import SessionOptions

__all__ = [
    "BridgeEnd",
    "BridgeOptions",
    "Carriage",
    "Means",
    "make",
    "make_bridge",
    "read_bridges",
]

DEFAULT_BROKER: Final = "tcp://localhost:30114"
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
_SALT_SIZE: Final = 16


@dataclass(frozen=True, slots=True)
class Means:
    """Access to brokers: `session` is for BlazingMQ, `security` for RocketMQ.

    `wait_s` limits the wait for the first connection; None is unlimited.
    """

    session: SessionOptions = field(default_factory=SessionOptions)
    security: Security = PLAIN
    timeout_s: float = 10.0
    wait_s: float | None = None


class Carriage(NamedTuple):
    """A bridge in construction, as one of its ends sees it.

    With `salt`, messages get GUIDs that no other run repeats; without it, those of an earlier move.
    """

    means: Means
    options: CarryOptions
    flow: FlowOptions
    tell: Tell
    salt: bytes

    def trying(self, end: object) -> TryAgain:
        return TryAgain(str(end), self.tell, self.means.wait_s)


class BridgeEnd(Protocol):
    """A place from or to which messages are carried.

    `has_queues` is True if it has several queues, each with its own order. `key` names the property by whose value
    messages are spread, "" for none.
    """

    @property
    def has_queues(self) -> bool: ...
    @property
    def key(self) -> str: ...

    def maker_of_messages(self, uri: str, salt: bytes) -> Make:
        """Make a converter of a queue's messages for this end; with `salt` no other run's repeat them."""
        ...

    def maker_of_records(self, salt: bytes) -> MakeOfRecord:
        """Make a converter of a topic's messages for this end; `salt` as in `maker_of_messages`."""
        ...

    def source(self, to: BridgeEnd, lanes: int, carriage: Carriage) -> Source: ...

    async def destination(self, has_queues: bool, carriage: Carriage) -> tuple[Destination, int]:
        """Make the destination of a bridge, and count its lanes. Raises `CannotBegin`.

        `has_queues` is that of the source.
        """
        ...

    def check_posted_to(self) -> None:
        """Raise `BadBridge` if this end accepts no messages."""
        ...


@dataclass(frozen=True, slots=True)
class BridgeOptions:
    """One bridge; `patience_s` limits the wait for answers when it is stopped."""

    name: str
    source: BridgeEnd
    destination: BridgeEnd
    flow: FlowOptions = field(default_factory=FlowOptions)
    means: Means = field(default_factory=Means)
    patience_s: float = 10.0
    idle_s: float | None = None


async def make(
    source: tuple[BridgeEnd, Means],
    destination: tuple[BridgeEnd, Means],
    options: CarryOptions,
    flow: FlowOptions,
    tell: Tell,
) -> Bridge:
    """Make the bridge between two ends. Raises `CannotBegin`."""
    salt = b"" if options.moves else secrets.token_bytes(_SALT_SIZE)
    carriage = Carriage(source[1], options, flow, tell, salt)
    to, lanes = await destination[0].destination(source[0].has_queues, carriage._replace(means=destination[1]))
    return Bridge(source[0].source(destination[0], lanes, carriage), to, flow, tell, options.count_max)


Parse = Callable[[str, str], BridgeEnd]
"""Parses an end; the second text is the broker of BlazingMQ's queues. Raises `BadBridge`."""


def make_bridge(source: BridgeEnd, destination: BridgeEnd, name: str = "", **rest: Any) -> BridgeOptions:
    """Check the two ends of a bridge. Raises `BadBridge` unless they are of two systems."""
    if type(source) is type(destination):
        raise BadBridge(f"{source} and {destination}: a bridge leads from one system to the other")
    destination.check_posted_to()
    return BridgeOptions(name or str(source), source, destination, **rest)


def read_bridges(text: str, parse: Parse, broker: str = DEFAULT_BROKER, **rest: Any) -> list[BridgeOptions]:
    """Read the bridges of a configuration in TOML. Raises `BadBridge`."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise BadBridge(str(fault)) from None
    tables = given.get("bridge")
    if given.keys() - {"bridge"} or not isinstance(tables, list) or not tables:
        raise BadBridge("expected tables [[bridge]], and nothing else")
    bridges = [_read_bridge(at, table, parse, broker, rest) for at, table in enumerate(tables, 1)]
    names = [each.name for each in bridges]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadBridge(f"two bridges are named {twice[0]}")
    return bridges


def _read_bridge(at: int, table: Mapping[str, Any], parse: Parse, broker: str, rest: dict[str, Any]) -> BridgeOptions:
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
        source, destination = (parse(table[key], table.get("broker", broker)) for key in ("from", "to"))
        return make_bridge(source, destination, table.get("name", where), flow=flow, **rest)
    except BadBridge as fault:
        raise BadBridge(f"{where}: {fault}") from None
