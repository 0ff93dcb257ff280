"""Common parts of the tests of `bmqctl journal summary`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bmqctl.stores.blazingmq.build import build_store
from bmqctl.stores.blazingmq.read.scan import JournalScan
from bmqctl.stores.blazingmq.summary.summary import QueueSummary, summarize

START_S = 1_767_225_600
FANOUT, PRIORITY = "bmq://my.fanout/q", "bmq://my.priority/q"


def summary(path: Path, **options: Any) -> dict[str, QueueSummary]:
    found = summarize(path, lambda done, total: None, **options)
    by_uri = {queue.queue_uri: queue for queue in found.queues}
    assert None not in by_uri
    assert len(by_uri) == len(found.queues)
    return by_uri  # type: ignore[return-value]


def small_chunks(monkeypatch: pytest.MonkeyPatch, records: int = 7) -> None:
    monkeypatch.setattr(JournalScan.chunks, "__defaults__", (0, None, records))


def built(directory: Path, lines: list[dict[str, Any]]) -> Path:
    directory.mkdir()
    build_store(map(json.dumps, lines), directory, START_S)
    return directory
