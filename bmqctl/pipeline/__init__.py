"""Stores as tables: a PySpark data source over journals, and the jobs that write and report on them.

Needs the extra `spark`; nothing else in bmqctl imports pyspark, and the modules here that do not need it
(`java`, `stores`) do without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Register the format `bmq` with a session of any master; executors need bmqctl too."""
    from bmqctl.pipeline.datasource import BmqDataSource

    # PySpark refuses a source that takes over filters in a session that does not hand them down.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(BmqDataSource)
