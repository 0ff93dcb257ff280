"""Machines on which Spark cannot work: each command says why in one line, before a JVM is started where that shows."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.pipeline.spark import java, session
from bmqctl.pipeline.spark.launch import first_line
from tests.bmqctl.pipeline.spark.java_rig import script
from tests.bmqctl.stores.blazingmq.small_store import build_small_store


@pytest.fixture(params=["spark-export", "spark-report"])
def command(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command on a store; no JVM may be started."""

    def start(*arguments: object) -> None:
        raise AssertionError("a JVM would be started")

    monkeypatch.setattr(session, "_start", start)
    store = str(build_small_store(tmp_path / "store"))
    return [request.param, store, *(["--out", str(tmp_path / "out")] if request.param == "spark-export" else [])]


def _refusal(command: list[str]) -> str:
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    (line,) = done.stderr.splitlines()
    return line.removeprefix(f"bmqctl {command[0]}: ")


def test_a_java_that_is_too_old(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = script(tmp_path / "old", 'echo "Unrecognized option: $1" >&2; exit 1')
    monkeypatch.setattr(java, "candidates", lambda: iter([tmp_path / "nope" / "bin" / "java", old]))
    line = _refusal(command)
    assert line.startswith("Spark needs Java 17 to 22, but none was found (")
    assert f"{old} does not run" in line
    assert "brings one" in line


@pytest.mark.parametrize("place", ["/proc/nope", "/dev/null"])
def test_a_folder_of_spark_that_cannot_be_written_to(
    command: list[str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"/tmp,{place}")
    line = _refusal(command)
    assert line.startswith(f"{place}: ")
    assert line.endswith("; SPARK_LOCAL_DIRS names this folder")


def test_too_few_descriptors(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (64, 64))
    assert _refusal(command) == "Spark needs 512 open files, and the limit is 64: raise it (ulimit -Hn)"


def test_a_temporary_folder_without_space(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(session, "write_java_home", full)
    assert _refusal(command).endswith(": No space left on device; TMPDIR names another folder")


TASK = (
    "Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task 0.0 in stage"
)
CALL = "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"{CALL}: org.apache.spark.SparkException: {TASK} 0.0 (TID 0) (localhost executor driver): "
            'java.io.IOException: Cannot run program "/nope": error=2, No such file or directory\n'
            "\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)\n"
            "Caused by: java.io.IOException: error=2, No such file or directory\n",
            'java.io.IOException: Cannot run program "/nope": error=2, No such file or directory '
            "(PYSPARK_PYTHON names the Python of the executors)",
        ),
        (
            f"{CALL}: org.apache.spark.SparkException: {TASK} 0.0 (TID 0) (localhost executor driver): "
            "java.io.IOException: No space left on device\n\tat java.base/java.io.FileOutputStream.writeBytes\n",
            "java.io.IOException: No space left on device",
        ),
        (
            "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
            ": java.io.IOException: Failed to get a temp directory under [/nope].\n\tat org.apache.spark\n",
            "java.io.IOException: Failed to get a temp directory under [/nope].",
        ),
    ],
)
def test_the_reason_is_told_and_not_the_call(text: str, reason: str) -> None:
    assert first_line(RuntimeError(text)) == reason
