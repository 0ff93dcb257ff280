"""Tables of a store, read without Spark: what its tasks would read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import Filter

from bmqctl.pipeline.reading import read_task, tables_of
from bmqctl.pipeline.source.options import ReadOptions

__all__ = ["read_rows"]


def read_rows(*paths: Path | str, filters: tuple[Filter, ...] = (), **options: str) -> list[dict[str, Any]]:
    """All rows of a table, task after task; every batch is validated."""
    read = ReadOptions.parse({"paths": json.dumps([str(path) for path in paths]), **options})
    tables = tables_of(read.paths)
    schema = tables.columns(read)
    rows = []
    for part in tables.plan(read, filters):
        for batch in read_task(part, read, schema, filters):
            assert batch.schema.equals(schema)
            batch.validate(full=True)
            rows += batch.to_pylist()
    return rows
