"""Stories for the ports without requests of clients: gRPC, HA, controllers, pages and the console.

`STORIES` has those of every port.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from formats.rocketmq.grpc.codes import ENUMS
from formats.rocketmq.grpc.declarations import MESSAGES, METHODS
from formats.rocketmq.grpc.messages import Message, make
from formats.rocketmq.remoting import raft
from formats.rocketmq.remoting.replication import (
    EPOCH_REPORT,
    REPORT,
    SLAVE_HANDSHAKE,
    EpochReport,
    Report,
    SlaveHandshake,
)
from tests.fuzz.rocketmq.requests import Requests
from tests.fuzz.rocketmq.stories import (
    CLIENT_STORIES,
    FLOOD,
    MIB,
    Story,
    incomplete,
    long_bodies,
    many_registrations,
    many_values,
)
from tests.fuzz.rocketmq.values import HOSTILE, Values
from tests.fuzz.rocketmq.wire import Action
from tests.fuzz.session_events import changed_words

__all__ = ["STORIES", "grpc_message"]

_GRPC_DEPTH = 5

# -- gRPC


def grpc_message(values: Values, name: str, depth: int = 0) -> Message:
    """Make a message with values in most fields, some of them hostile."""
    random = values.random
    found = make(name)
    fields = MESSAGES.get(name, ())
    # Of the fields with one choice, the last one set counts.
    for field in random.sample(fields, len(fields)):
        if random.random() < 0.25:
            continue
        mark, kind = (field.kind[0], field.kind[1:]) if field.kind[0] in "*?" else ("", field.kind)
        many = random.choice((0, 1, 1, 3)) if mark == "*" else 1
        for _ in range(many):
            _set_field(values, found, field.name, kind, mark == "*", depth)
    return found


def _set_field(values: Values, message: Message, name: str, kind: str, is_list: bool, depth: int) -> None:
    random = values.random
    if kind == "map":
        key = random.choice(("a", "KEYS", "TRAN_MSG", *HOSTILE))
        getattr(message, name)[key.encode(errors="replace").decode()] = values.hostile()
        return
    value: Any
    if kind in MESSAGES:
        if depth > _GRPC_DEPTH:
            return
        value = grpc_message(values, kind, depth + 1)
    elif kind in ("Timestamp", "Duration"):
        seconds = random.choice((0, 1, 60, values.now_ms // 1_000, -1, (1 << 63) - 1, -(1 << 63), 253_402_300_800))
        value = make(kind, seconds=seconds, nanos=random.choice((0, 1, -1, (1 << 31) - 1, -(1 << 31))))
    else:
        value = _scalar(values, name, kind)
    if is_list:
        getattr(message, name).append(value)
    elif kind in MESSAGES or kind in ("Timestamp", "Duration"):
        getattr(message, name).CopyFrom(value)
    else:
        setattr(message, name, value)


def _scalar(values: Values, name: str, kind: str) -> Any:
    random = values.random
    if kind in ENUMS:
        return random.choice([*map(int, ENUMS[kind]), 99])
    match kind:
        case "bool":
            return random.random() < 0.5
        case "float":
            return random.choice((0.0, 1.5, -1.0, float("inf"), float("nan")))
        case "int32":
            return random.choice((0, 1, 3, 32, -1, (1 << 31) - 1, -(1 << 31)))
        case "int64":
            return random.choice((0, 1, values.now_ms, -1, (1 << 63) - 1, -(1 << 63)))
        case "bytes":
            return random.choice((b"", b"x", random.randbytes(30), b"z" * 100_000))
    if random.random() < 0.3:
        return values.hostile()
    return values.topic() if name == "name" else values.text(name)


def calls(requests: Requests) -> Story:
    random = requests.random
    for _ in range(12):
        name = random.choice(list(METHODS))
        count = random.choice((1, 1, 3)) if METHODS[name].streams_requests else 1
        pieces = []
        for _ in range(count):
            message = grpc_message(requests.values, METHODS[name].request)
            data = message.SerializeToString()
            pieces.append((changed_words(random, data, 1) if random.random() < 0.1 else data, 1))
        what = " ".join(f"{name} {message!r}".split())
        yield Action("grpc", what, tuple(pieces), random.randrange(3), call=name)


def grpc_unfinished(requests: Requests) -> Story:
    """Send the preface of HTTP/2, and false or unfinished frames."""
    random = requests.random
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
    size = random.choice((20, 16_384, MIB, (1 << 24) - 1))
    kind, flags, stream = random.randrange(12), random.choice((0, 1, 4, 5, 8, 0x20)), random.choice((0, 1, 3, 1 << 31))
    head = size.to_bytes(3, "big") + bytes((kind, flags)) + (stream & 0xFFFF_FFFF).to_bytes(4, "big")
    copies = random.choice((1, 1, 40))
    pieces = ((preface + head, 1), (b"\0", min(size, 15 * MIB)))
    what = f"an HTTP/2 frame of type {kind}, {size} bytes"
    yield Action("grpc", what, pieces, FLOOD + random.randrange(1_000), copies, answers=0)


# -- HA, pages and the console


def replication(requests: Requests) -> Story:
    """Pretend to be a slave with arbitrary offsets."""
    random = requests.random
    numbers = (0, 1, -1, 1 << 20, (1 << 62), (1 << 63) - 1, -(1 << 63))
    link = FLOOD + random.randrange(1_000)
    data = bytearray()
    if random.random() < 0.5:
        shakes = [
            random.choice((1, 2, 0, -1)),
            random.choice((0, 1, -1)),
            random.choice((0, 1)),
            random.choice(numbers),
        ]
        data += SLAVE_HANDSHAKE.pack(SlaveHandshake(*shakes))
        data += b"".join(EPOCH_REPORT.pack(EpochReport(2, random.choice(numbers))) for _ in range(3))
    else:
        data += b"".join(REPORT.pack(Report(random.choice(numbers))) for _ in range(random.choice((1, 3, 200))))
    whole = changed_words(random, bytes(data), 4) if random.random() < 0.4 else bytes(data)
    copies = random.choice((1, 1, 1, 50))
    yield Action(
        "ha", f"a slave that reports {whole[:40].hex()}", ((whole, 1),), link, copies, wait_s=0.05, node=link % 3
    )


def agreeing(requests: Requests) -> Story:
    """Send messages of a false controller to each."""
    random = requests.random
    for _ in range(6):
        kind = random.choice(list(raft.KINDS))
        sender, receiver = random.sample(("n1", "n2", "n3"), 2)
        fields = [("group", "group1"), ("sender", sender), ("receiver", receiver), ("kind", kind)]
        numbers = (0, 1, 2, 5, 1_000, (1 << 62) - 1, -1, 1 << 62)
        made: dict[str, Any] = {name: random.choice(numbers) for name in raft.KINDS[kind]._fields}
        made |= {
            "pre": random.random() < 0.5,
            "granted": True,
            "ok": True,
            "text": random.choice(("", "{}", "x", "null")),
        }
        entry = {"term": made.get("term", 0), "text": random.choice(("", "{}", "[]", "x"))}
        made["entries"] = [entry] * random.choice((0, 1, 70))
        body = json.dumps({_camel(name): value for name, value in made.items()})
        action = requests.request(raft.CODE, fields, body)
        yield action._replace(node=int(receiver[1]) - 1, what=f"Raft {kind} {body[:200]}")


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


def pages(requests: Requests) -> Story:
    """Send requests for pages: partial, unexpected, or never read."""
    random = requests.random
    texts = ("GET /met", "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "\r\n")
    text = random.choice(
        (*texts, f"GET /{'x' * 20_000} HTTP/1.1\r\n\r\n", f"POST /metrics HTTP/1.1\r\n{'A: b' * 9_000}")
    )
    copies = random.choice((1, 1, 3, 40))
    link = FLOOD + random.randrange(1_000)
    yield Action("pages", f"{text[:60]!r}", ((text.encode(), 1),), link, copies, answers=int(copies == 1))


def consoles(requests: Requests) -> Story:
    random = requests.random
    places = ("/", "/api/session", "/api/overview", "/api/messages", "/api/login", "/static/../../x", "/api/queues")
    for _ in range(random.choice((5, 80))):
        place = random.choice((*places, f"/api/{requests.values.hostile()[:200]}")).encode(errors="replace")
        host = random.choice((b"127.0.0.1", b"127.0.0.1", b"evil.example", b"[::1].evil", b""))
        body = requests.values.hostile().encode(errors="replace")
        head = random.choice((b"GET ", b"GET ", b"POST ", b"PUT ")) + place.replace(b" ", b"%20").replace(b"\n", b"%0A")
        head += (
            b" HTTP/1.1\r\nHost: "
            + host
            + b"\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        link = FLOOD + random.getrandbits(20)
        yield Action("console", f"{head[:80]!r}", ((head + body, 1),), link, wait_s=0.2)


STORIES: Mapping[str, tuple[Callable[[Requests], Story], ...]] = {
    "broker": CLIENT_STORIES,
    "nameserver": (many_values, many_registrations, long_bodies, incomplete),
    "controller": (agreeing, agreeing, long_bodies, incomplete),
    "ha": (replication,),
    "proxy": CLIENT_STORIES,
    "grpc": (calls, calls, calls, grpc_unfinished),
    "pages": (pages,),
    "console": (consoles,),
}
