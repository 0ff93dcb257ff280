"""Delta Lake's log: the files of a table, version by version.

An export writes it itself: the cluster needs none of Delta's own libraries; only readers do. Source: the Delta
transaction log protocol, reader version 1 and writer version 2:
https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from bmqctl.pipeline.export.manifest import WrittenFile
from bmqctl.pipeline.export.output import Output
from bmqctl.pipeline.export.table_files import partition_values

__all__ = ["live_files", "log_entry", "next_version", "spark_schema_json"]

LOG = "_delta_log"
_VERSION = re.compile(r"(\d{20})\.json")
Partitions = Sequence[tuple[str, str]]
"""The columns of directories, with their types."""


def next_version(output: Output, table: str) -> int:
    names = (name.rpartition("/")[2] for name in output.sizes(f"{table}/{LOG}"))
    versions = (match for match in map(_VERSION.fullmatch, names) if match)
    return max((int(match[1]) + 1 for match in versions), default=0)


def live_files(output: Output, table: str) -> set[str]:
    """The files of the newest version, relative to the output, from the log's entries.

    An export makes no checkpoints; others' checkpoints leave its entries for a month.
    """
    live: set[str] = set()
    for name in sorted(output.sizes(f"{table}/{LOG}")):
        if _VERSION.fullmatch(name.rpartition("/")[2]):
            for line in (output.read(name) or b"").splitlines():
                action = json.loads(line)
                if "add" in action:
                    live.add(f"{table}/{unquote(action['add']['path'])}")
                elif "remove" in action:
                    live.discard(f"{table}/{unquote(action['remove']['path'])}")
    return live


def spark_schema_json(schema: pa.Schema, partitions: Partitions) -> dict[str, Any]:
    fields = json.loads(from_arrow_schema(schema).json())["fields"]
    fields += [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in partitions]
    return {"type": "struct", "fields": [{**field, "nullable": True} for field in fields]}


def log_entry(
    table: str,
    version: int,
    schema: pa.Schema,
    added: Iterable[WrittenFile],
    removed: Iterable[WrittenFile],
    *,
    partitions: Partitions,
    app: tuple[str, int],
    now_ms: int,
) -> tuple[str, str]:
    """The name (relative to the output) and text of a new version of the table, with added and removed files.

    `app` is the id of the export, and the number of its run.
    """
    actions: list[dict[str, Any]] = []
    operation = {"mode": "Append", "partitionBy": json.dumps([name for name, _ in partitions])}
    actions.append({"commitInfo": {"timestamp": now_ms, "operation": "WRITE", "operationParameters": operation}})
    if version == 0:
        actions.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
        metadata = {
            "id": app[0],
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(spark_schema_json(schema, partitions)),
            "partitionColumns": [name for name, _ in partitions],
            "configuration": {},
            "createdTime": now_ms,
        }
        actions.append({"metaData": metadata})
    actions.append({"txn": {"appId": f"bmqctl-{app[0]}", "version": app[1], "lastUpdated": now_ms}})
    actions += [{"remove": _remove(table, file, now_ms)} for file in removed]
    actions += [{"add": _add(table, file, now_ms)} for file in added]
    lines: Sequence[str] = [json.dumps(action, separators=(",", ":")) for action in actions]
    return f"{table}/{LOG}/{version:020}.json", "\n".join([*lines, ""])


def _add(table: str, file: WrittenFile, now_ms: int) -> dict[str, Any]:
    return {
        "path": _relative(table, file.path),
        "partitionValues": partition_values(file.path),
        "size": file.bytes,
        "modificationTime": now_ms,
        "dataChange": True,
        "stats": json.dumps({"numRecords": file.rows}),
    }


def _remove(table: str, file: WrittenFile, now_ms: int) -> dict[str, Any]:
    return {"path": _relative(table, file.path), "deletionTimestamp": now_ms, "dataChange": True}


def _relative(table: str, path: str) -> str:
    """The path as a URI relative to the table; percent signs of a directory's name are quoted again."""
    return quote(path.removeprefix(f"{table}/"), safe="/=")
