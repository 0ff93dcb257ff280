"""Jobs taken to a cluster by `spark-submit`: here one of two processes, on this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from bmqctl.pipeline.export.export import ExportRequest, plan_export
from bmqctl.pipeline.export.output import OutputError
from bmqctl.pipeline.export.verify import VerifyRequest, verify
from bmqctl.pipeline.spark import launch
from bmqctl.pipeline.spark.launch import SparkFailed, Where, first_line, is_local, run_job
from bmqctl.pipeline.spark.run_tasks import OnProgress, quiet, run_all
from bmqctl.pipeline.spark.session import QUICK
from bmqctl.testing import free_port
from tests.bmqctl.pipeline.source.lifecycles import lifecycles

CLUSTER = Where(
    "local-cluster[1,1,1024]", memory="512m", conf=("spark.ui.enabled=false", f"spark.driver.extraJavaOptions={QUICK}")
)


@dataclass(frozen=True)
class ExportThere:
    """Runs in the driver: exports a store, and tells where executors have their modules from."""

    request: ExportRequest

    def run(self, context: SparkContext, on_progress: OnProgress, /) -> tuple[int, str, str]:
        def where_from(_: int) -> tuple[str, str]:
            import pyarrow

            import bmqctl

            return str(bmqctl.__file__), str(pyarrow.__file__)

        plan = plan_export(self.request)
        summary = plan.run(context, on_progress)
        (found,) = run_all(context, where_from, [0], "looking", quiet)
        return sum(summary.records.values()), *found


@dataclass(frozen=True)
class Fail:
    """Runs in the driver."""

    def run(self, context: SparkContext, on_progress: OnProgress, /) -> None:
        raise OutputError("a place that cannot be used")


@pytest.fixture
def without_traces() -> Iterator[None]:
    """Spark's local cluster keeps its executors' logs in its own directory."""
    work = Path(pyspark.__file__).parent / "work"
    before = set(work.iterdir()) if work.exists() else None
    yield
    if before is None:
        shutil.rmtree(work, ignore_errors=True)
    else:
        for path in set(work.iterdir()) - before:
            shutil.rmtree(path)


def test_executors_get_what_they_need(spark: SparkSession, tmp_path: Path, without_traces: None) -> None:
    store, said = lifecycles()
    out = tmp_path / "out"
    request = ExportRequest((str(store.save(tmp_path / "store")),), str(out))
    steps: list[str] = []
    count, code, arrow = run_job(ExportThere(request), CLUSTER, lambda step, done, total: steps.append(step))
    assert count == store.sequence_number
    assert code.endswith("bmqctl_code.zip/bmqctl/__init__.py")
    assert Path(arrow).parts[-3:] == ("bmqctl_packages", "pyarrow", "__init__.py")
    assert steps[:2] == ["packing dependencies for the executors", "submitting to Spark"]
    assert {"writing", "committing"} <= set(steps)
    verdict = verify(spark.sparkContext, VerifyRequest(str(out)), quiet)
    assert verdict.differences == []
    assert verdict.tables["messages"].rows == len(said)


def test_error_of_a_submitted_job_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    # The driver is the same for all masters; executors, which take long to start, have no part in this.
    monkeypatch.setattr(launch, "is_local", lambda master: False)
    with pytest.raises(OutputError, match="a place that cannot be used"):
        run_job(Fail(), Where("local[1]", memory="512m", ship=False, conf=CLUSTER.conf), quiet)


def test_a_master_that_is_not_there_is_one_line() -> None:
    port = free_port()
    for master, said in (
        (f"spark://127.0.0.1:{port}", rf"no master there \(127.0.0.1:{port}: Connection refused\)"),
        (f"spark://127.0.0.1:{port},[::1]:{port}", rf"no master there \(127.0.0.1:{port}: .*; \[::1\]:{port}: .*\)"),
        ("spark://127.0.0.1", "spark://127.0.0.1: expected spark://HOST:PORT"),
        ("spark://127.0.0.1:70000", "spark://127.0.0.1:70000: expected spark://HOST:PORT"),
        ("spark://127.0.0.1:0", "spark://127.0.0.1:0: expected spark://HOST:PORT"),
    ):
        with pytest.raises(SparkFailed, match=rf"^{said}$"):
            run_job(Fail(), Where(master, ship=False), quiet)


def test_a_driver_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(
        "#!/bin/sh\n"
        "echo 'WARN something' >&2\n"
        "echo 'Exception in thread: Exception thrown in awaitResult:' >&2\n"
        "echo 'Caused by: org.apache.spark.SparkException: no queue' >&2\n"
    )
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(SparkFailed, match=r"^Caused by: org.apache.spark.SparkException: no queue$"):
        run_job(Fail(), Where("yarn", ship=False), quiet)
    assert os.environ["SPARK_HOME"] == str(tmp_path)


def test_masters_that_are_local() -> None:
    masters = ["local", "local[*]", "local[4]", "local-cluster[1,1,1024]", "spark://host:7077", "yarn"]
    assert [is_local(master) for master in masters] == [True, True, True, False, False, False]


def test_error_of_a_task_is_the_reason() -> None:
    text = "An error occurred while calling collect.\n: org.apache.spark.SparkException\nbmqctl.x.StoreError: gone\n"
    assert first_line(RuntimeError(text)) == "bmqctl.x.StoreError: gone"
    assert first_line(RuntimeError("only\nthis")) == "only"
    assert first_line(RuntimeError()) == "RuntimeError"
