"""The tables of an export as Spark reads them."""

from __future__ import annotations

import re
from typing import Final

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

from bmqctl.pipeline.export.manifest import Manifest
from bmqctl.pipeline.export.output import Output
from bmqctl.pipeline.export.table_files import FileFormat
from bmqctl.pipeline.reading import BlazingMQTables, RocketMQTables, Subject

__all__ = ["count_exported", "exported_table", "subject_of_export"]

_MAGIC: Final = re.compile(r"([\\{}\[\]*?])")


def subject_of_export(manifest: Manifest) -> Subject:
    return RocketMQTables(manifest.brokers) if manifest.brokers else BlazingMQTables()


def exported_table(session: SparkSession, output: Output, manifest: Manifest, table: str) -> DataFrame:
    schema = from_arrow_schema(subject_of_export(manifest).schema(table))
    paths = [_literal(output.url(file.path)) for file in manifest.tables[table].files]
    if not paths:
        return session.createDataFrame([], schema)
    file_format = FileFormat(manifest.format)
    reader = session.read
    if file_format in (FileFormat.PARQUET, FileFormat.DELTA):
        return reader.schema(schema).parquet(*paths)
    if file_format is FileFormat.JSON:
        return reader.schema(schema).json(paths)
    frame = reader.schema(StructType([_as_text(each) for each in schema])).csv(paths, header=True, escape='"')
    lists = {each.name: each.dataType for each in schema if isinstance(each.dataType, (ArrayType, MapType))}
    return frame.withColumns({name: f.from_json(name, kind) for name, kind in lists.items()})


def count_exported(context: SparkContext, output: Output, manifest: Manifest, table: str) -> int:
    return exported_table(SparkSession(context), output, manifest, table).count()


def _literal(path: str) -> str:
    """The pattern that matches only this path: Spark takes all paths for patterns."""
    return _MAGIC.sub(r"\\\1", path)


def _as_text(column: StructField) -> StructField:
    """The column with text in place of lists and maps, which are JSON in CSV files."""
    return StructField(column.name, StringType()) if isinstance(column.dataType, (ArrayType, MapType)) else column
