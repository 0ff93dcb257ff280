"""Launch of a job: in a session of this process, or in a separate driver that `spark-submit` takes to a cluster.

The driver runs on this machine (client mode). Executors get the code of bmqctl and, by default, its packages with
native code. They need a Python of the same version, and Spark's own Python side, which every distribution of Spark has.
"""

from __future__ import annotations

import errno
import os
import pickle
import resource
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import files as files_of
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Protocol, TypeVar

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from bmqctl.pipeline.spark.java import find_java, write_java_home
from bmqctl.pipeline.spark.run_tasks import OnProgress
from bmqctl.pipeline.spark.session import local_context
from bmqctl.pipeline.spark.work_directory import work_directory

__all__ = ["Job", "SparkFailed", "Where", "is_local", "run_job", "run_submitted"]

OUR_PACKAGES = ("bmqctl", "formats")
SHIPPED = ("numpy", "pyarrow", "crc32c", "construct")
SHIPPED_AS = "bmqctl_packages"
STANDALONE = "spark://"
_SUBMITTER = "submitter"
_LOOK_EACH_S = 1.0
_STOP_TIMEOUT_S = 10
_CONNECT_TIMEOUT_S = 5
_REASON_LINES = 400
# Spark's class path has 280 files, all of them open.
_DESCRIPTORS_MIN = 512
# The beginnings of Py4J's and Spark's error messages.
_CALL = "An error occurred while calling "
_FAILED_TASK = "most recent failure: Lost task "
Result = TypeVar("Result", covariant=True)


class SparkFailed(Exception):
    """Failure of Spark; the first line of its own message."""


class Job(Protocol[Result]):
    """A job; it, its result and its exceptions must be picklable."""

    def run(self, context: SparkContext, on_progress: OnProgress, /) -> Result:
        """Run the job in the driver."""


@dataclass(frozen=True)
class Where:
    """The master, and the driver's settings.

    `memory` is the driver's heap, as Spark writes sizes; `cores` is for this machine: None uses all. `quick` suits
    local work. `ship` sends along the packages that executors need; `conf` is Spark's settings, `key=value`.
    """

    master: str = "local[*]"
    cores: int | None = None
    memory: str = "2g"
    quick: bool = False
    ship: bool = True
    conf: tuple[str, ...] = ()


def is_local(master: str) -> bool:
    """Return True if Spark runs in this process and its JVM."""
    return master == "local" or master.startswith("local[")


def run_job(job: Job[Result], where: Where, on_progress: OnProgress) -> Result:
    """Run the job.

    Raises NoFitJava without a Java, OSError where Spark cannot start, SparkFailed if it fails, and the job's
    exceptions.
    """
    _check_descriptors()
    if not is_local(where.master):
        return _submit(job, where, on_progress)
    try:
        on_progress("starting Spark", 0, 0)
        with local_context(where.cores, where.memory, quick=where.quick, master=where.master) as context:
            try:
                return job.run(context, on_progress)
            except (PySparkException, Py4JError) as fault:
                # Spark's exceptions get their texts from its JVM, while that exists.
                raise SparkFailed(first_line(fault)) from fault
    except (PySparkException, Py4JError) as fault:
        raise SparkFailed(first_line(fault)) from fault


def _check_descriptors() -> None:
    """Raise OSError if Spark's JVM, which raises its limit to the hard one, may open too few files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < _DESCRIPTORS_MIN:
        reason = f"Spark needs {_DESCRIPTORS_MIN} open files, and the limit is {hard}: raise it (ulimit -Hn)"
        raise OSError(errno.EMFILE, reason)


def first_line(fault: BaseException) -> str:
    """The error without tracebacks; for a failed task, its exception, or why it did not run."""
    lines = [line.strip() for line in str(fault).strip().splitlines()]
    if raised := [line for line in lines if line.startswith("bmqctl.") and "Error" in line.partition(":")[0]]:
        return raised[-1]
    if failed := [line for line in lines if _FAILED_TASK in line]:
        reason = failed[-1].rpartition(_FAILED_TASK)[2].partition("): ")[2] or failed[-1]
        is_python = "Cannot run program" in reason or "Python worker" in reason
        return f"{reason} (PYSPARK_PYTHON names the Python of the executors)" if is_python else reason
    if len(lines) > 1 and lines[0].startswith(_CALL):
        return lines[1].removeprefix(": ")
    return lines[0] if lines else type(fault).__name__


def _submit(job: Job[Result], where: Where, on_progress: OnProgress) -> Result:
    _check_master(where.master)
    with work_directory("bmqctl-submit-") as work:
        on_progress("packing dependencies for the executors", 0, 0)
        (work / "job").write_bytes(pickle.dumps(job))
        (work / _SUBMITTER).write_text(str(os.getpid()))
        command, environment = _command(where, work)
        on_progress("submitting to Spark", 0, 0)
        with _driver(command, environment, work / "log") as progress:
            for line in progress:
                _tell(line, on_progress)
        if not (work / "result").exists():
            raise SparkFailed(_reason((work / "log").read_text(errors="replace")))
        outcome: Result | BaseException = pickle.loads((work / "result").read_bytes())
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _check_master(master: str) -> None:
    """Raise SparkFailed if a standalone master does not listen: Spark would take a minute to report less."""
    if not master.startswith(STANDALONE):
        return
    reasons = []
    for address in master.removeprefix(STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        # `getaddrinfo` takes a larger number modulo 65536.
        if not host or not port.isdecimal() or not 1 <= int(port[:6]) <= 65535:
            raise SparkFailed(f"{master}: expected {STANDALONE}HOST:PORT")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S).close()
        except (OSError, UnicodeError) as fault:
            reasons.append(f"{address}: {getattr(fault, 'strerror', None) or fault}")
        else:
            return
    raise SparkFailed(f"no master there ({'; '.join(reasons)})")


def _command(where: Where, work: Path) -> tuple[list[str], dict[str, str]]:
    own_spark = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    environment = {**os.environ, "SPARK_HOME": str(own_spark)}
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # The driver must find the same bmqctl as this process, installed or not.
    paths = [str(_package(OUR_PACKAGES[0]).parent), os.environ.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if "SPARK_HOME" not in os.environ:
        environment["JAVA_HOME"] = str(write_java_home(find_java(), work / "java"))
    settings = ["spark.ui.showConsoleProgress=false", "spark.sql.session.timeZone=UTC", *where.conf]
    code = work / "bmqctl_code.zip"
    _zip_code(code)
    command = [str(own_spark / "bin" / "spark-submit"), "--master", where.master, "--name", "bmqctl"]
    command += ["--driver-memory", where.memory, "--py-files", str(code)]
    if where.ship:
        packages = work / f"{SHIPPED_AS}.tar.gz"
        _pack(packages)
        command += ["--archives", f"{packages}#{SHIPPED_AS}"]
        settings.insert(0, f"spark.executorEnv.PYTHONPATH={SHIPPED_AS}")
    for setting in settings:
        command += ["--conf", setting]
    # Python searches the script's folder first, and must not find our modules there.
    main = shutil.copy(_package(OUR_PACKAGES[0]) / "pipeline" / "spark" / "submitted.py", work)
    return [*command, str(main), str(work / "job"), str(work / "result")], environment


def _package(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _zip_code(target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in OUR_PACKAGES:
            root = _package(name)
            for path in sorted(root.rglob("*.py")):
                archive.write(path, path.relative_to(root.parent))


def _pack(target: Path) -> None:
    with tarfile.open(target, "w:gz", compresslevel=1) as archive:
        for name in SHIPPED:
            for file in files_of(name) or ():
                # Tests and headers are most of the files, and a script in bin is not a module.
                if ".." in file.parts or "tests" in file.parts or "include" in file.parts or file.suffix == ".pyc":
                    continue
                archive.add(str(file.locate()), str(file))


@contextmanager
def _driver(command: Sequence[str], environment: dict[str, str], log: Path) -> Iterator[IO[str]]:
    """Start the driver and yield its progress, line by line; it ends with this process."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
        try:
            assert process.stdout is not None
            yield process.stdout
            process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(_STOP_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _tell(line: str, on_progress: OnProgress) -> None:
    step, *numbers = line.rstrip("\n").split("\t")
    if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
        on_progress(step, int(numbers[0]), int(numbers[1]))


def _reason(log: str) -> str:
    lines = [line.strip() for line in log.splitlines()[-_REASON_LINES:] if line.strip()]
    said = [line for line in lines if "Exception" in line or "Error" in line or line.startswith("spark-submit")]
    # Lines such as "Exception thrown in awaitResult:" say nothing; the cause follows.
    said = [line for line in said if not line.endswith(":")] or said
    return said[0] if said else (lines[-1] if lines else "the driver gave no reason")


def _end_without(job: Path) -> None:
    submitter = int(job.with_name(_SUBMITTER).read_text())
    while True:
        time.sleep(_LOOK_EACH_S)
        try:
            os.kill(submitter, 0)
        except ProcessLookupError:
            shutil.rmtree(job.parent, ignore_errors=True)
            os._exit(1)


def run_submitted(job_path: str, result_path: str, say: Callable[[str], None]) -> None:
    # Nothing else would end this process if the submitting one is killed.
    threading.Thread(target=_end_without, args=(Path(job_path),), daemon=True).start()
    job: Job[object] = pickle.loads(Path(job_path).read_bytes())
    context = SparkContext.getOrCreate()
    outcome: object
    try:
        outcome = job.run(context, lambda step, done, total: say(f"{step}\t{done}\t{total}\n"))
    except (PySparkException, Py4JError) as fault:
        outcome = SparkFailed(first_line(fault))
    except Exception as fault:
        outcome = fault
    unfinished = Path(f"{result_path}.new")
    unfinished.write_bytes(pickle.dumps(outcome))
    unfinished.replace(result_path)
    context.stop()
