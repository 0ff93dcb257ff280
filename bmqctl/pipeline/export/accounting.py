"""The account of the stores read, by the tasks of a job and in the manifest of an export."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark import SparkContext

from bmqctl.pipeline.export.manifest import Manifest
from bmqctl.pipeline.reading import read_task, tables_of
from bmqctl.pipeline.source.options import ReadOptions, Table
from bmqctl.pipeline.spark.run_tasks import OnProgress, run_all
from bmqctl.stores.blazingmq.read.account import Account

__all__ = ["ReadPart", "account_of_export", "account_of_stores", "worst_of"]

ReadPart = Callable[[Account], Iterator[pa.RecordBatch]]
"""Yields the rows of a task; the account is complete when all are read."""

# Columns that require reading whole records: of BlazingMQ's stores, and of RocketMQ's.
_DEEP_COLUMNS: Final = ("stored_size", "offset")


def worst_of(accounts: Mapping[str, Account]) -> Account:
    """The account of the table with the most losses: tables of one store have lost the same records."""
    sizes = {
        name: (each.damaged + each.missing, each.damaged_bytes + each.missing_bytes) for name, each in accounts.items()
    }
    return accounts[max(sizes, key=lambda name: sizes[name])] if sizes else Account()


def account_of_export(manifest: Manifest) -> Account:
    """The account of the store at the last export; empty for earlier versions."""
    accounts: dict[str, dict[str, Any]] = manifest.runs[-1].accounts if manifest.runs else {}
    return worst_of({name: Account(**each) for name, each in accounts.items()})


def account_of_stores(
    context: SparkContext, stores: tuple[str, ...], on_progress: OnProgress, table: Table = Table.RECORDS
) -> Account:
    """Read a table of stores, by default all records, for its account. Raises StoreError."""
    options = ReadOptions(paths=stores, table=table)
    tables = tables_of(stores)
    schema = tables.columns(options)
    schema = pa.schema([next((schema.field(name) for name in _DEEP_COLUMNS if name in schema.names), schema.field(0))])
    reads = [partial(read_task, part, options, schema, ()) for part in tables.plan(options)]
    accounts = run_all(context, _account, reads, "looking for damage", on_progress)
    return Account.total([tables.lost_files(options), *accounts])


def _account(read: ReadPart) -> Account:
    account = Account(compares=True)
    for _ in read(account):
        pass
    return account
