"""`scripts/bench/large_store.py`: what it says of its store is so, and the store is sound."""

from __future__ import annotations

from pathlib import Path

import pytest

from bmqctl.stores.blazingmq.read.check import check_path
from bmqctl.stores.blazingmq.summary.summary import summarize
from scripts.bench import large_store


def test_it_is_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_store, "LAG_MESSAGES", 70)
    monkeypatch.setattr(large_store, "BATCH_MESSAGES", 300)
    store = large_store.write_store(tmp_path, 1001, payload_size=33)
    found = summarize(tmp_path, lambda done, total: None)
    assert sum(queue.messages for queue in found.queues) == 1001
    assert sum(queue.outstanding for queue in found.queues) == store.outstanding == 11
    assert sum(queue.payload_bytes or 0 for queue in found.queues) == 1001 * 33
    assert sum(found.partitions[0].records.values()) == store.records
    assert check_path(tmp_path, 10, lambda done, total: None).faults == []


def test_it_keeps_all(tmp_path: Path) -> None:
    store = large_store.write_store(tmp_path, 500, kept_each=1)
    found = summarize(tmp_path, lambda done, total: None)
    assert [queue.outstanding for queue in found.queues] == [250, 250]
    assert store.outstanding == 500
