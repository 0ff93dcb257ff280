"""Values of fields, properties and bodies of RocketMQ's requests: plausible ones, and those at the bounds of each type.

Everything follows from the given random numbers: a seed repeats a story.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from random import Random
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from broker.rocketmq.tables.names import (
    AUTO_CREATE_TOPIC,
    DEAD_LETTER_PREFIX,
    DELAY_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    TIMER_TOPIC,
    revive_topic,
)
from formats.rocketmq.remoting import raft
from formats.rocketmq.remoting.bodies.codec import BodyCodec
from formats.rocketmq.remoting.headers.codec import HeaderField
from formats.rocketmq.remoting.receipts import Receipt
from formats.rocketmq.reserved_names import RESERVED_NAMES

__all__ = [
    "BROKER",
    "CLUSTER",
    "FAMILIES",
    "GROUPS",
    "HOSTILE",
    "OUTSIDE",
    "OWN_TOPICS",
    "PROPERTIES",
    "TOPICS",
    "Raw",
    "Values",
    "dump",
]

CLUSTER = "DefaultCluster"
BROKER = "broker-a"
TOPICS = ("fuzz-0", "fuzz-1", "fuzz-2", "%RETRY%fuzzers-0", "%DLQ%fuzzers-0")
GROUPS = ("fuzzers-0", "fuzzers-1", "fuzzers-2")
REVIVE_TOPIC = revive_topic(CLUSTER)
OWN_TOPICS = (
    *("SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "TRANS_CHECK_MAX_TIME_TOPIC", "CHECKPOINT_TOPIC"),
    *("BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", AUTO_CREATE_TOPIC, DELAY_TOPIC, HALF_TOPIC, OP_TOPIC, TIMER_TOPIC),
    *(REVIVE_TOPIC, CLUSTER, BROKER, f"{CLUSTER}_REPLY_TOPIC"),
)
# A path that no topic's name may become.
OUTSIDE = "fuzz-rocketmq-outside"

NUMBERS = (
    *("0", "-1", "1", "2147483647", "-2147483648", "2147483648", "9223372036854775807", "-9223372036854775808"),
    *("9223372036854775808", "9999999999", "2305843009213693952", "9" * 20, "9" * 5_000, "-" + "9" * 5_000),
    *("", "+1", " 1", "1e3", "0x10", "NaN", "1_000", "٣", "²", "๓" * 30),
)
TEXTS = (
    *("a\0b", "x" * 128, "x" * 300, "x" * 5_000, f"../../{OUTSIDE}", f"../../../../{OUTSIDE}", f"/tmp/{OUTSIDE}/x"),
    *("..", ".", "/", "\\", "a/b", "é", "𝄞", "\x01\x02", "a\nb", "\x1b[2J", "%s%n{}", "*", "||", "null", "true"),
    *(TIMER_TOPIC, DELAY_TOPIC, HALF_TOPIC, OP_TOPIC, REVIVE_TOPIC, AUTO_CREATE_TOPIC),
    *(RETRY_PREFIX, DEAD_LETTER_PREFIX, f"{RETRY_PREFIX}{'g' * 260}", f"{RETRY_PREFIX}../../{OUTSIDE}"),
)
HOSTILE = NUMBERS + TEXTS

# Properties that the broker sets beside those with a meaning for clients.
_SET = (
    *("__transactionId__", "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRANSACTION_CHECK_TIMES", "INNER_MULTI_DISPATCH"),
    *("INNER_NUM", "INNER_BASE", "__SHARDINGKEY", "_RECALL_TAG_", "PUSH_REPLY_TIME", "REPLY_MESSAGE_ARRIVE_TIME"),
)
PROPERTIES = tuple(sorted({*RESERVED_NAMES, *_SET}))
# The properties of a topic's stored messages that the broker reads again.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    TIMER_TOPIC: ("TIMER_OUT_MS", "REAL_TOPIC", "REAL_QID", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY", "UNIQ_KEY"),
    DELAY_TOPIC: ("DELAY", "REAL_TOPIC", "REAL_QID", "UNIQ_KEY"),
    HALF_TOPIC: (
        *("TRAN_MSG", "PGROUP", "REAL_TOPIC", "REAL_QID", "UNIQ_KEY", "TRAN_PREPARED_QUEUE_OFFSET"),
        *("TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS"),
    ),
    OP_TOPIC: ("TAGS",),
    REVIVE_TOPIC: ("TAGS", "UNIQ_KEY", "TIMER_DELIVER_MS"),
    "fuzz-0": ("TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "DELAY", "KEYS", "UNIQ_KEY", "TAGS"),
    "fuzz-1": ("TRAN_MSG", "PGROUP", "TRAN_PREPARED_QUEUE_OFFSET", "CHECK_IMMUNITY_TIME_IN_SECONDS", "UNIQ_KEY"),
    "%RETRY%fuzzers-0": (
        *("RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "POP_CK", "DELAY"),
    ),
}
# Properties that change the kind of a message; present now and then.
_RARE = {
    *("TIMER_DEL_UNIQKEY", "TIMER_ROLL_TIMES", "TRAN_PREPARED_QUEUE_OFFSET", "CHECK_IMMUNITY_TIME_IN_SECONDS"),
    *("TRANSACTION_CHECK_TIMES", "POP_CK", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC"),
}

_DEPTH = 3
# JSON on which readers differ.
_ODD = ("1e400", "-1e400", "{1:2}", "{{}:1}", '"\\ud800"', "NaN", "1e3", '"\\u0000"')


class Raw(str):
    """Text that is JSON as it is."""

    __slots__ = ()


def dump(value: Any) -> str:
    """JSON for fastjson: keys may be numbers, and `Raw` is written as it is."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        items = (f"{key if isinstance(key, int) else json.dumps(key)}:{dump(item)}" for key, item in value.items())
        return "{" + ",".join(items) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


class Values:
    """Makes values from random numbers; `now_ms` is near plausible times.

    `receipts` are those received, and `addresses` are brokers'.
    """

    def __init__(self, random: Random, now_ms: int) -> None:
        self.random = random
        self.now_ms = now_ms
        self.receipts: list[str] = []
        self.addresses: tuple[str, ...] = ()

    def hostile(self) -> str:
        return self.random.choice(HOSTILE)

    # -- fields

    def field(self, field: HeaderField) -> str:
        if field.kind is bool:
            return self.random.choice(("true", "false"))
        if field.kind is int:
            return str(self.number(field.wire_name))
        return self.text(field.wire_name)

    def number(self, name: str) -> int:
        """A plausible number for a name: an id, a count, a time, a duration."""
        low = name.lower()
        if "timeout" in low or "poll" in low or "invisible" in low:
            return self.random.choice((0, 100, 1_000))
        if low == "g" or low.endswith(("timestamp", "time", "_ms")):
            return self.now_ms + self.random.choice((0, -1_000, 1_000, -86_400_000))
        if "max" in low or "nums" in low or low in ("d", "count", "perm"):
            return self.random.choice((1, 4, 6, 32))
        return self.random.choice((0, 0, 0, 1, 2, 3))

    def text(self, name: str) -> str:
        random, low = self.random, name.lower()
        match low:
            case "a" | "producergroup" | "pgroup":
                return random.choice(GROUPS)
            case "b":
                return self.topic()
            case "c" | "defaulttopic":
                return AUTO_CREATE_TOPIC
            case "i" | "properties":
                return self.properties_text(self.properties())
            case "kind":
                return random.choice(list(raft.KINDS))
            case "sender" | "receiver":
                return f"n{random.randrange(1, 4)}"
            case "extrainfo" | "receipthandle" | "pop_ck":
                return self.receipt()
            case "brokername" | "broker_name" | "bn":
                return BROKER
            case "clustername" | "cluster" | "brokerclustername":
                return CLUSTER
            case "expressiontype" | "exptype":
                return random.choice(("TAG", "SQL92"))
            case "subscription" | "exp" | "substring":
                return random.choice(("*", "a || b", "a > 1", "a CONTAINS 'x'"))
        if "topic" in low:
            return self.topic()
        if low == "group" and random.random() < 0.2:
            return "group1"
        if "group" in low:
            return random.choice(GROUPS)
        if "client" in low:
            return f"127.0.0.1@fuzz-{random.randrange(3)}"
        if "addr" in low or "host" in low:
            return f"127.0.0.1:{random.choice((1, 10_911))}"
        return random.choice(("", "x", "0", "SINGLE_TAG", "*", "Custom"))

    def topic(self) -> str:
        return self.random.choice(TOPICS if self.random.random() < 0.8 else OWN_TOPICS)

    def receipt(self) -> str:
        """A received receipt handle, or an invented one."""
        random = self.random
        if self.receipts and random.random() < 0.6:
            return random.choice(self.receipts)
        places = (random.randrange(4), self.now_ms - random.choice((0, 5_000)), random.choice((1_000, 60_000)))
        return str(Receipt(*places, random.randrange(8), random.choice("012"), BROKER, random.randrange(4), 0))

    # -- properties

    def property(self, name: str) -> str:
        random = self.random
        match name:
            case "TIMER_OUT_MS" | "TIMER_DELIVER_MS" | "BORN_TIMESTAMP":
                return str(self.now_ms + random.choice((-1_000, 500, 2_000)))
            case "TIMER_DELAY_MS":
                return random.choice(("500", "2000"))
            case "TIMER_DELAY_SEC" | "DELAY" | "TIMER_DELAY_LEVEL":
                return "1"
            case "TAGS":
                return random.choice(("a", "ck", "ack", "bAck", "d"))
            case "TRAN_MSG":
                return "true"
            case "PGROUP":
                return random.choice(GROUPS)
            case "POP_CK":
                return self.receipt()
            case "UNIQ_KEY" | "__transactionId__" | "TIMER_DEL_UNIQKEY" | "KEYS" | "__SHARDINGKEY":
                return f"{random.getrandbits(64):032X}"
        return self.text(name) if name.endswith(("TOPIC", "GROUP")) else str(random.randrange(4))

    def family(self, topic: str) -> dict[str, str]:
        names = FAMILIES.get(topic, ())
        return {name: self.property(name) for name in names if self.random.random() < (0.2 if name in _RARE else 0.95)}

    def properties(self, topic: str = "") -> dict[str, str]:
        """Properties as the broker might have set them, mostly with a hostile value."""
        random = self.random
        found = self.family(topic)
        if topic not in FAMILIES:
            found = {name: self.property(name) for name in random.sample(PROPERTIES, random.choice((0, 1, 2, 4)))}
        if found and random.random() < 0.7:
            found[random.choice(list(found))] = self.hostile()
        return found

    def properties_text(self, properties: Mapping[str, str]) -> str:
        """Properties as in a header, now and then with misplaced separators."""
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        return text if self.random.random() < 0.95 else self.random.choice((text[:-1], f"{text}\x01", f"\x02{text}"))

    # -- bodies

    def made(self, hint: Any, name: str = "", depth: int = 0) -> Any:
        origin, args = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return self.made(args[0], next((note for note in args[1:] if isinstance(note, str)), name), depth)
        if origin in (types.UnionType, Union):
            (hint,) = (each for each in args if each is not types.NoneType)
            return self.made(hint, name, depth) if self.random.random() < 0.8 else None
        if hint is bool:
            return self.random.random() < 0.5
        if hint is int:
            return self.number(name)
        if hint is str:
            return self.text(name)
        if origin is list:
            return [self.made(args[0], name, depth + 1) for _ in range(self._size(depth))]
        if origin is dict:
            pairs = range(self._size(depth))
            return {self.made(args[0], name, depth): self.made(args[1], name, depth + 1) for _ in pairs}
        hints = get_type_hints(hint, include_extras=True)
        return hint(**{each: self.made(kind, each, depth + 1) for each, kind in hints.items()})

    def _size(self, depth: int) -> int:
        return 0 if depth > _DEPTH * 2 else self.random.choice((0, 1, 2, 3))

    def body(self, cls: type[Any], changes: int) -> str:
        """JSON of a declaration, with some of its members changed."""
        value: Any = BodyCodec(cls).write_value(self.made(cls))
        for _ in range(changes):
            value = self.changed(value)
        return dump(value)

    def changed(self, value: Any) -> Any:
        """JSON with one member, at any place, replaced, left out or doubled."""
        random = self.random
        if isinstance(value, dict) and value and random.random() < 0.85:
            key = random.choice(list(value))
            match random.randrange(10):
                case 0:
                    return {name: item for name, item in value.items() if name != key}
                case 1:
                    name = key if isinstance(key, int) else json.dumps(key)
                    return Raw(f"{dump(value)[:-1]},{name}:{dump(self.junk())}}}")
                case _:
                    return {**value, key: self.changed(value[key])}
        if isinstance(value, (list, tuple)) and value and random.random() < 0.7:
            items = list(value)
            at = random.randrange(len(items))
            if random.random() < 0.2:
                return items * random.choice((0, 2, 40))
            items[at] = self.changed(items[at])
            return items
        return self.junk()

    def junk(self) -> Any:
        random = self.random
        match random.randrange(9):
            case 0:
                return Raw(random.choice([number for number in NUMBERS if number.lstrip("-").isdecimal()]))
            case 1:
                depth = random.choice((10, 70, 3_000))
                return Raw("[" * depth + "]" * depth)
            case 2:
                depth = random.choice((10, 70, 3_000))
                return Raw('{"a":' * depth + "1" + "}" * depth)
            case 3:
                return random.choice((None, True, [], {}, "", [None], 1.5, -0.0))
            case 4:
                return Raw(random.choice(_ODD))
            case 5:
                return {each: self.junk() for each in random.sample(HOSTILE, 2)} if random.random() < 0.5 else [0] * 200
            case _:
                return self.hostile()
