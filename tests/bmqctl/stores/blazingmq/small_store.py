"""A store of some dozens of records with everything in it that records can refer to, and what is in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bmqctl.stores.blazingmq.build import build_store
from formats.bmq.disk.files import FileType
from tests.golden.archives import only

__all__ = ["EXTENSIONS", "START_S", "build_small_store", "message_guid", "read_files", "small_lines"]

START_S = 1_795_237_864
ORDERS, PRICES, OLD = (f"bmq://domain/{name}" for name in ("orders", "prices", "old"))
EXTENSIONS = [*(kind.extension for kind in (FileType.JOURNAL, FileType.DATA, FileType.QLIST)), ".bmq_csl"]


def message_guid(number: int) -> str:
    return f"{0x40_0000_0000 + number * 0x9E37_79B9_7F4A_7C15:032X}"[-32:]


def small_lines(messages: int = 24) -> list[dict[str, Any]]:
    """Three queues (one with apps, one deleted), confirmed, expired and outstanding messages, several sync points."""
    lines: list[dict[str, Any]] = [
        {"type": "JOURNAL_OP"},
        {"type": "QUEUE_OP", "queue_uri": ORDERS},
        {"type": "QUEUE_OP", "queue_uri": PRICES, "apps": ["foo", "bar"]},
        {"type": "QUEUE_OP", "queue_uri": OLD},
        {"type": "MESSAGE", "queue_uri": OLD, "guid": message_guid(1000), "payload": "gone"},
        {"type": "QUEUE_OP", "queue_uri": OLD, "queue_op_type": "PURGE"},
        {"type": "QUEUE_OP", "queue_uri": OLD, "queue_op_type": "DELETION"},
    ]
    for number in range(messages):
        uri = (ORDERS, PRICES)[number % 2]
        payload = bytes((number * 7 + at) % 251 for at in range(1 + number * 5))
        lines.append({"type": "MESSAGE", "queue_uri": uri, "guid": message_guid(number), "payload_hex": payload.hex()})
        if number % 4 == 1:
            lines.append({"type": "CONFIRM", "queue_uri": uri, "app_id": "foo", "guid": message_guid(number)})
            if number > messages // 2:
                lines.append({"type": "CONFIRM", "queue_uri": uri, "app_id": "baz", "guid": message_guid(number)})
        if number % 8 in (1, 2):
            lines.append({"type": "DELETION", "queue_uri": uri, "guid": message_guid(number)})
        if number % 8 == 6:
            flag = "TTL_EXPIRATION"
            lines.append({"type": "DELETION", "queue_uri": uri, "guid": message_guid(number), "deletion_flag": flag})
        if number == messages // 2:
            lines.append({"type": "JOURNAL_OP", "primary_lease_id": 2})
            lines.append({"type": "QUEUE_OP", "queue_uri": PRICES, "queue_op_type": "ADDITION", "apps": ["baz"]})
        if number % 10 == 9:
            lines.append({"type": "JOURNAL_OP"})
    return lines


def build_small_store(directory: Path, messages: int = 24) -> Path:
    directory.mkdir()
    build_store(map(json.dumps, small_lines(messages)), directory, START_S)
    return directory


def read_files(directory: Path) -> dict[str, bytes]:
    """The files' bytes, by extension."""
    return {extension: only(directory, extension).read_bytes() for extension in EXTENSIONS}
