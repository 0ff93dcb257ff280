"""The options of streams from and to a topic of RocketMQ; the option `nameserver` marks them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from bmqctl.carrying.bridge.ends import RocketEnd, is_topic_name
from bmqctl.pipeline.source.options import BadOption
from formats.rocketmq.hosts import split_address

__all__ = ["SendOptions", "Start", "TopicOptions", "check_topic", "is_topic"]

_PLACE = ("nameserver", "topic", "group", "timeoutSeconds", "patienceSeconds")
_CONSUME = ("startingOffsets", "maxMessagesPerBatch", "partitions", "failOnDataLoss")
_SEND = ("key", "window")
_DEFAULT_GROUP: Final = "bmqctl-spark"
_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


class Start(StrEnum):
    """The first offset of each queue, for a query without a checkpoint."""

    GROUP = "group"  # the group's committed offset, or else the oldest message
    EARLIEST = "earliest"
    LATEST = "latest"


class _Place(NamedTuple):
    """The nameserver, and the time limits of an answer and of a broker's absence."""

    host: str
    port: int
    topic: str
    group: str
    timeout_s: float
    patience_s: float


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """Options of reading. `batch` limits the messages of a micro-batch, `partitions` the tasks of a queue in it."""

    host: str
    port: int
    topic: str
    group: str
    timeout_s: float
    patience_s: float
    start: Start
    batch: int
    partitions: int
    fails_on_loss: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> TopicOptions:
        """Parse a reader's options, whose names are case-insensitive. Raises BadOption."""
        given = _given(options, (*_PLACE, *_CONSUME))
        place = _place(given)
        if not place.topic:
            raise BadOption("topic: name the topic to read")
        start = given.get("startingoffsets", Start.GROUP).lower()
        if start not in list(Start):
            raise BadOption(f"startingOffsets: {start} is none of {', '.join(Start)}")
        loss = given.get("failondataloss", "true").lower()
        if loss not in ("true", "false"):
            raise BadOption(f"failOnDataLoss: {loss} is neither true nor false")
        return cls(
            *place,
            Start(start),
            _whole(given, "maxMessagesPerBatch", 100_000),
            _whole(given, "partitions", 1),
            loss == "true",
        )


@dataclass(frozen=True, slots=True)
class SendOptions:
    """Options of sending, to the topic of `end` or, if it has none, to each row's."""

    end: RocketEnd
    window: int
    timeout_s: float
    patience_s: float

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SendOptions:
        """Parse a writer's options, whose names are case-insensitive. Raises BadOption."""
        # Spark adds these two to a stream's options.
        given = _given(options, (*_PLACE, *_SEND), ignored=("checkpointlocation", "path"))
        place = _place(given)
        key = given.get("key", "")
        end = RocketEnd(place.host, place.port, place.topic, place.group, key=key)
        return cls(end, _whole(given, "window", 4096), place.timeout_s, place.patience_s)


def is_topic(options: Mapping[str, str]) -> bool:
    return any(name.lower() == "nameserver" for name in options)


def check_topic(name: str) -> str:
    """Return `name`. Raises BadOption if it is not a valid name of a topic."""
    if not is_topic_name(name):
        raise BadOption(f"topic: {name}: a topic has up to 127 of a-z, A-Z, 0-9, %, |, _ and -")
    return name


def _given(options: Mapping[str, str], names: tuple[str, ...], ignored: tuple[str, ...] = ()) -> dict[str, str]:
    known = {name.lower() for name in names}
    given = {name.lower(): value for name, value in options.items() if name.lower() not in ignored}
    unknown = sorted(given.keys() - known)
    if unknown:
        raise BadOption(f"{unknown[0]}: unknown option; the options of a topic are {', '.join(names)}")
    return given


def _place(given: Mapping[str, str]) -> _Place:
    address = given.get("nameserver", "")
    place = split_address(address)
    if place is None:
        raise BadOption(f"nameserver: {address}: expected HOST:PORT")
    topic, group = given.get("topic", ""), given.get("group", _DEFAULT_GROUP)
    if topic:
        check_topic(topic)
    if not is_topic_name(group):
        raise BadOption(f"group: {group}: a group has up to 127 of a-z, A-Z, 0-9, %, |, _ and -")
    return _Place(
        *place, topic, group, _seconds(given, "timeoutSeconds", 10.0), _seconds(given, "patienceSeconds", 30.0)
    )


def _whole(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name.lower())
    if text is None:
        return default
    if not _NUMBER.fullmatch(text) or int(text) < 1:
        raise BadOption(f"{name}: {text} is not a number of at least 1")
    return int(text)


def _seconds(given: Mapping[str, str], name: str, default: float) -> float:
    text = given.get(name.lower())
    try:
        value = default if text is None else float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise BadOption(f"{name}: {text} is not a number of seconds")
    return value
