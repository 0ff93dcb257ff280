"""The table `faults`: the damage in each store, as `bmqctl journal validate` finds it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from bmqctl.pipeline.rocketmq.tables import batch_of_rows
from bmqctl.pipeline.source.stores import StoreError
from bmqctl.stores.blazingmq.read.files import NotAStoreFile
from bmqctl.stores.rocketmq.check.check import check_log_store
from formats.bmq.stores.faults import Fault

__all__ = ["store_fault_batches"]

# Maximum number of faults kept for a store, to bound memory.
_FAULTS_MAX: Final = 1 << 18
_ROWS_PER_BATCH: Final = 1 << 12


def store_fault_batches(broker: str, root: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the faults of the store `root`, at most the first _FAULTS_MAX. Raises `OSError` and StoreError."""
    try:
        faults = iter(check_log_store(root, _FAULTS_MAX, lambda done, total: None).faults)
    except NotAStoreFile as error:
        raise StoreError(str(error)) from None
    while rows := [_row(broker, root, one) for one in islice(faults, _ROWS_PER_BATCH)]:
        yield batch_of_rows(rows, schema)


def _row(broker: str, root: Path, one: Fault) -> dict[str, Any]:
    return {
        "broker": broker,
        "store": str(root),
        "file": one.file.removeprefix(f"{root}/"),
        "offset": one.offset,
        "code": one.code,
        "severity": one.severity.value,
        "reason": one.reason,
        "advice": one.advice,
    }
