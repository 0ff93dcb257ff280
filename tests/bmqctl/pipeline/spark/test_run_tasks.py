from __future__ import annotations

import gc

from pyspark.sql import SparkSession

from bmqctl.pipeline.spark.run_tasks import quiet, run_all


def test_the_collection_after_a_task_passes_over_the_modules(spark: SparkSession) -> None:
    (frozen,) = run_all(spark.sparkContext, lambda _: gc.get_freeze_count(), [0], "counting", quiet)
    # An interpreter with PySpark has some hundred thousand.
    assert frozen > 10_000
