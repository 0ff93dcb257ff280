"""The public calls of the client libraries, and values that each of their parameters takes and refuses."""

from __future__ import annotations

import enum
import inspect
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import ModuleType
from typing import Any, Final, NamedTuple

from bmqctl import client
from bmqctl.client import Property, PropertyType, Subscription, rocketmq

__all__ = ["BLAZINGMQ", "ROCKETMQ", "Values", "public_parameters"]

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
SECONDS_MAX: Final = 1_000_000_000
THREE_DAYS: Final = 3 * 24 * 3600

# Classes that programs make themselves; a session makes the others.
MADE_BY_PROGRAMS: Final = frozenset({"Credentials", "Property", "Subscription"})

# Methods for the libraries' own modules.
INTERNAL: Final = {
    "bmqctl.client": {
        "Batch": {"answered"},
        "Posted": {"answered"},
        "Queue": {
            "await_room",
            "begin_processing",
            "confirm",
            "cut",
            "deliver",
            "end",
            "hand_over",
            "subscription_of",
            "suspend",
            "wake",
        },
        "Session": {"await_answer", "await_answers", "check", "close_queue", "leave", "started"},
    },
    "bmqctl.client.rocketmq": {
        "Batch": {"answered"},
        "Consumer": {"begin", "look_again", "run", "send_back", "settle"},
        "Content": {"begin_processing", "end_processing", "system_property"},
        "HiddenMessage": {"begin_processing", "end_processing", "hidden_again", "system_property"},
        "Message": {"begin_processing", "end_processing", "system_property"},
        "Posted": {"answered"},
        "Producer": {"end", "find_queues", "look_again", "put", "run"},
        "Session": {"keep_alive", "leave"},
        "SimpleConsumer": {"acknowledge", "begin", "hide", "look_again"},
    },
}


class Values(NamedTuple):
    """Values of a parameter: `good` are taken, at the bounds too; `bad` raise."""

    good: tuple[Any, ...] = ()
    bad: tuple[Any, ...] = ()


def public_parameters(module: ModuleType) -> Iterator[str]:
    """Yield the parameters of all public calls of a library, as `call.parameter`."""
    for name in module.__all__:
        made = getattr(module, name)
        if inspect.isclass(made):
            if not issubclass(made, Exception | enum.Enum):
                yield from _of_class(module, name, made)
        else:
            yield from _of_call(name, made)


def _of_class(module: ModuleType, name: str, made: type[Any]) -> Iterator[str]:
    if name in MADE_BY_PROGRAMS:
        yield from _of_call(name, made)
        return
    internal = INTERNAL[module.__name__].get(name, set())
    for method, function in inspect.getmembers(made, inspect.isfunction):
        if not method.startswith("_") and method not in internal:
            yield from _of_call(f"{name}.{method}", function)


def _of_call(name: str, call: Any) -> Iterator[str]:
    for parameter in inspect.signature(call).parameters:
        if parameter != "self":
            yield f"{name}.{parameter}"


def whole(low: int, high: int, *more: Any) -> Values:
    return Values((low, high, *more), (low - 1, high + 1, -(1 << 70), 1 << 70, low + 0.5, math.nan, "1", b"1"))


def seconds(*good: float, high: float = SECONDS_MAX, has_zero: bool = False) -> Values:
    bad = (-1e-9, -1, high * 1.001, math.nan, math.inf, -math.inf, "1")
    return Values((*good, 0) if has_zero else good, bad if has_zero else (0, *bad))


# Any object is true or false.
TRUTH: Final = Values((False, True))
NO_BOUNDS: Final = Values()

_LIMITS: Final = {
    "max_unconfirmed_messages": whole(0, LONG_MAX),
    "max_unconfirmed_bytes": whole(0, LONG_MAX),
    "priority": whole(-(1 << 30), (1 << 30) - 1),
}
_SUBSCRIPTIONS: Final = Values(
    ((), [Subscription()], [Subscription("x > 1", 1, 1, 1, "mine")], [Subscription("x > 1")] * 4096),
    (5, [5], ["x > 1"], [Subscription("x >")], [Subscription("x" * 129)], [Subscription()] * 4097),
)
_CONNECT: Final = {
    "tls": Values((None,), (5,)),
    "timeout_s": seconds(1e-9, 10, SECONDS_MAX),
    "window": whole(1, INT_MAX),
    "buffer_size": whole(1, LONG_MAX),
    "tracing": Values((None,), (5, "tracing")),
}
_PAYLOAD: Final = Values((b"x", bytearray(b"x"), memoryview(b"xx")), (b"", "text", 5, None))
_BMQ_PROPERTIES: Final = Values(
    (
        None, {}, {"n" * 4095: LONG_MAX}, {f"n{each}": -LONG_MAX - 1 for each in range(255)}, {"b": b"", "t": ""},
        b"no area",
    ),
    (
        5, "text", [5], {5: 1}, {"x": 1 << 63}, {"x": 1.5}, {"x": None}, {"n" * 4096: 1}, {"x": "\ud800"},
        {"\ud800": 1},
        {f"n{each}": 1 for each in range(256)}, [Property("x", PropertyType.SHORT, 1 << 15)],
        [Property("x", PropertyType.CHAR, b"xx")], [Property("x", PropertyType.BOOL, 1)],
    ),
)  # fmt: skip
_PAYLOADS: Final = Values(([], [b"x", b"y"]), (5, [5], ["text"], [b""]))


def _named(call: str, values: Mapping[str, Values]) -> dict[str, Values]:
    return {f"{call}.{name}": each for name, each in values.items()}


BLAZINGMQ: Final[dict[str, Values]] = {
    **_named("connect", _CONNECT),
    "connect.uri": Values(
        (),
        (
            "",
            "tcp://",
            "tcp://a",
            "tcp://a:0",
            "tcp://a:65536",
            "http://a:1",
            "tcp://\ud800:1",
            "tcp://[::1:1",
            "x" * 5000,
            5,
        ),
    ),
    "connect.credentials": Values(
        (None, ("BASIC", b""), ("B" * 255, bytes(1 << 20)), client.Credentials("BASIC", b"user:password")),
        (
            5,
            "BASIC",
            (),
            ("BASIC",),
            ("", b"x"),
            ("B" * 256, b"x"),
            ("\ud800", b""),
            ("BASIC", "x"),
            ("BASIC", bytes((1 << 20) + 1)),
        ),
    ),
    "connect.reconnect": TRUTH,
    "connect.on_change": Values((None, str), (5, "text")),
    "connect.process_name": Values(("", "x" * 255), (5, "x" * 256, "\ud800")),
    "Session.open.uri": Values(
        (
            f"bmq://bmq.test.mem.priority/{'q' * 64}",
            "bmq://unknown/q",
            f"bmq://{'d' * 4000}/q",
            f"bmq://bmq.test.mem.fanout/q?id={'a' * 4000}",
        ),
        (
            "",
            "text",
            "bmq://",
            "bmq://d",
            "bmq://d/",
            f"bmq://d/{'q' * 65}",
            "bmq://d/q?id=",
            "bmq://d/q?x=1",
            "bmq://d/\u00fc",
            f"bmq://{'d' * 5000}/q",
            5,
            None,
        ),
    ),
    "Session.open.read": Values((True,)),
    "Session.open.write": TRUTH,
    **_named("Session.open", _LIMITS),
    "Session.open.subscriptions": _SUBSCRIPTIONS,
    "Session.open.suspends_on_bad_host_health": TRUTH,
    "Session.set_host_health.is_healthy": TRUTH,
    "Queue.post.payload": Values((*_PAYLOAD.good, bytes(64 << 20)), (*_PAYLOAD.bad, bytes((64 << 20) + 1))),
    "Queue.post.properties": _BMQ_PROPERTIES,
    "Queue.post.compress": TRUTH,
    "Queue.send.payload": _PAYLOAD,
    "Queue.send.properties": _BMQ_PROPERTIES,
    "Queue.send.compress": TRUTH,
    "Queue.post_all.payloads": _PAYLOADS,
    "Queue.post_all.compress": TRUTH,
    "Queue.receive.count_max": whole(1, INT_MAX, None),
    **_named("Queue.configure", {name: Values((*each.good, None), each.bad) for name, each in _LIMITS.items()}),
    "Queue.configure.subscriptions": Values((*_SUBSCRIPTIONS.good, None), _SUBSCRIPTIONS.bad),
    # The messages of another queue: filled in where there are some.
    "Queue.confirm_all.messages": Values(([],), (5,)),
    "Batch.post.payload": _PAYLOAD,
    "Batch.post.properties": _BMQ_PROPERTIES,
    "Batch.post.compress": TRUTH,
    "Batch.post_all.payloads": _PAYLOADS,
    "Batch.post_all.compress": TRUTH,
    # Checked where it is used.
    "Subscription.expression": Values((None, "x > 1")),
    **_named("Subscription", {name: Values((*each.good, None), each.bad) for name, each in _LIMITS.items()}),
    "Subscription.correlation": NO_BOUNDS,
    "Credentials.mechanism": NO_BOUNDS,
    "Credentials.data": NO_BOUNDS,
    "Property.name": NO_BOUNDS,
    "Property.type": NO_BOUNDS,
    "Property.value": NO_BOUNDS,
}

_NAMES: Final = ("", " ", "a b", "a.b", "\u00fc", "a\x00", 5, None, b"a")
_TOPIC: Final = Values(("t" * 127,), (*_NAMES, "t" * 128))
_GROUP: Final = Values(("g" * 120, "%|_-"), (*_NAMES, "g" * 121))
_FILTER: Final = {
    "tags": Values(("", "*", "a || b", "a" * 8192), (5, None, "a" * 8193, "\ud800")),
    "sql": Values((None, "a > 1", "a >", f"a = '{'x' * 8186}'"), ("", 5, "a" * 8193, "\ud800")),
    "from_start": TRUTH,
}
_OUTGOING: Final = {
    # The last is the most that a frame holds; brokers take 4 MiB by default.
    "payload": Values(
        (*_PAYLOAD.good, bytes(4 << 20), bytes((16 << 20) - (64 << 10))), (*_PAYLOAD.bad, bytes(16 << 20))
    ),
    "properties": Values(
        (None, {}, {"a": "b"}, {"a": "x" * 32_000}),
        (
            5, "text", {5: "x"}, {"a": 5}, {"": "x"}, {"a": ""}, {"a\x01": "x"}, {"a": "x\x02"}, {"KEYS": "x"},
            {"a": "x" * 32_768}, {"a": "\ud800"},
        ),
    ),
    "tag": Values((None, "", "a"), (5, "a\x02", "\ud800", "a" * 32_768)),
    "keys": Values(((), "a", ["a", "b"]), (5, [5], [""], ["a b"], ["a\x02"], ["a" * 32_768])),
    "sharding_key": Values((None, "", "a"), (5, "a\x02", "\ud800", "a" * 32_768)),
    "priority": whole(0, INT_MAX, None),
}  # fmt: skip
_MOMENT: Final = Values(
    (None, datetime.now(UTC), datetime(1970, 1, 2, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)),
    (5, "now", datetime(1969, 1, 1, tzinfo=UTC), datetime.min, datetime.min.replace(tzinfo=UTC)),
)
_LATER: Final = {
    "delay_level": whole(0, INT_MAX, 1, 18),
    "deliver_at": _MOMENT,
}

ROCKETMQ: Final[dict[str, Values]] = {
    **_named("connect", _CONNECT),
    "connect.uri": Values(
        (),
        (
            "", "rocketmq://", "rocketmq://a", "rocketmq://a:65536", "tcp://a:1", "rocketmq://a:1,",
            ",".join(["rocketmq://a:1"] + 64 * ["a:1"]), 5,
        ),
    ),
    "connect.credentials": Values(
        (None, ("key", "secret"), ("k" * 1024, "s" * 1024)),
        (
            5, "ab", (), ("a",), ("", "b"), ("a", ""), ("a" * 1025, "b"), ("a", "b" * 1025), (b"a", b"b"),
            ("\ud800", "b"),
        ),
    ),
    "connect.retry_s": seconds(1e-9, SECONDS_MAX, has_zero=True),
    "Session.producer.topic": _TOPIC,
    "Session.producer.group": _GROUP,
    "Session.consume.topic": Values(("t" * 127, "%DLQ%unknown"), _TOPIC.bad),
    "Session.consume.group": _GROUP,
    **_named("Session.consume", _FILTER),
    "Session.consume.since": _MOMENT,
    "Session.consume.broadcast": TRUTH,
    "Session.consume.max_unconfirmed_messages": whole(1, INT_MAX),
    "Session.consume.max_unconfirmed_bytes": whole(1, LONG_MAX),
    "Session.simple_consumer.topic": _TOPIC,
    "Session.simple_consumer.group": _GROUP,
    **_named("Session.simple_consumer", _FILTER),
    "Session.simple_consumer.hidden_s": seconds(THREE_DAYS, high=THREE_DAYS, has_zero=True),
    "Session.simple_consumer.attempts_max": whole(1, INT_MAX),
    "Session.stored_queues.topic": _TOPIC,
    "StoredQueue.read.offset": whole(0, LONG_MAX),
    "StoredQueue.read.count_max": whole(1, INT_MAX),
    "Consumer.receive.count_max": whole(1, INT_MAX, None),
    "Message.reject.delay_level": whole(-1, INT_MAX, 18),
    "SimpleConsumer.receive.count_max": whole(1, 32),
    "SimpleConsumer.receive.wait_s": seconds(0.1, has_zero=True),
    "HiddenMessage.hide.seconds": seconds(THREE_DAYS, high=THREE_DAYS, has_zero=True),
    **_named("Producer.post", _OUTGOING | _LATER),
    **_named("Producer.send", _OUTGOING | _LATER),
    "Producer.post_all.payloads": _PAYLOADS,
    **_named("Batch.post", _OUTGOING),
}  # fmt: skip

assert rocketmq.__name__ == "bmqctl.client.rocketmq"
