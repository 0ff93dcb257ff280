"""Tables of a store, read without Spark: what its tasks would read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import Filter

from bmqctl.pipeline.source.options import ReadOptions
from bmqctl.pipeline.source.plan import plan
from bmqctl.pipeline.source.read import read_part
from bmqctl.pipeline.source.tables import schema_of

__all__ = ["read_rows"]


def read_rows(*paths: Path | str, filters: tuple[Filter, ...] = (), **options: str) -> list[dict[str, Any]]:
    """All rows of a table, task after task; every batch is validated."""
    read = ReadOptions.parse({"paths": json.dumps([str(path) for path in paths]), **options})
    schema = schema_of(read)
    rows = []
    for part in plan(read, filters):
        for batch in read_part(part, read, schema, filters):
            assert batch.schema.equals(schema)
            batch.validate(full=True)
            rows += batch.to_pylist()
    return rows
