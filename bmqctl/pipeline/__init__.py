"""Stores as tables: a PySpark data source over journals, and the jobs that write and report on them.

Needs the extra `spark`. Nothing else in bmqctl imports pyspark, and `java` and `stores` do without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Register the format `bmq` with a session; executors need bmqctl too."""
    from bmqctl.pipeline.datasource import BmqDataSource

    # Otherwise PySpark refuses a source that accepts filters.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(BmqDataSource)
