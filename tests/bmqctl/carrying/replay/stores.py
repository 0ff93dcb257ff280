"""A store with a message of every fate, written line by line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bmqctl.stores.blazingmq.build import build_store

__all__ = ["FANOUT", "PRIORITY", "START_S", "build", "guid", "lines", "message"]

START_S = 1_767_225_600
FANOUT = "bmq://bmq.test.persistent.fanout/replayed"
PRIORITY = "bmq://bmq.test.persistent.priority/replayed"


def guid(number: int) -> str:
    return f"40{number:030X}"


def message(number: int, uri: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "MESSAGE",
        "queue_uri": uri,
        "guid": guid(number),
        "payload": f"message {number}",
        "timestamp": START_S + number,
        "properties": {"n": number, "region": "eu" if number % 2 else "us"},
    } | more


def lines() -> list[dict[str, Any]]:
    """List the records of two queues.

    Fan-out: 0 outstanding for all; 1 confirmed by foo; 2 by foo and bar; 3 by all; 4 expired after foo; 5 is older than
    app baz. The other: 10 outstanding, 11 confirmed, 12 expired, 13 purged, 14 outstanding, compressed.
    """

    def confirm(number: int, app: str) -> dict[str, Any]:
        return {"type": "CONFIRM", "queue_uri": FANOUT, "guid": guid(number), "app_id": app}

    def deletion(number: int, uri: str, **more: Any) -> dict[str, Any]:
        return {"type": "DELETION", "queue_uri": uri, "guid": guid(number)} | more

    expired = {"deletion_flag": "TTL_EXPIRATION"}
    return [
        {"type": "QUEUE_OP", "queue_uri": FANOUT, "apps": ["foo", "bar"]},
        {"type": "QUEUE_OP", "queue_uri": PRIORITY},
        message(5, FANOUT),
        message(13, PRIORITY),
        {"type": "QUEUE_OP", "queue_uri": PRIORITY, "queue_op_type": "PURGE"},
        {"type": "QUEUE_OP", "queue_uri": FANOUT, "queue_op_type": "ADDITION", "apps": ["baz"]},
        *(message(number, FANOUT) for number in range(5)),
        confirm(1, "foo"),
        confirm(2, "foo"),
        confirm(2, "bar"),
        confirm(3, "foo"),
        confirm(3, "bar"),
        deletion(3, FANOUT),
        confirm(4, "foo"),
        deletion(4, FANOUT, **expired),
        *(message(number, PRIORITY) for number in (10, 11, 12)),
        message(14, PRIORITY, payload="squeeze me " * 300, compression="ZLIB"),
        deletion(11, PRIORITY),
        deletion(12, PRIORITY, **expired),
    ]


def build(directory: Path, of: Iterable[dict[str, Any]]) -> Path:
    directory.mkdir()
    build_store(map(json.dumps, of), directory, START_S)
    return directory
