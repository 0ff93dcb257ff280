"""Spark on this machine, as a context for tasks or a session for tables; it prints nothing and leaves no files."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from bmqctl.pipeline import register
from bmqctl.pipeline.spark.java import find_java, is_user_known, write_java_home
from bmqctl.pipeline.spark.work_directory import work_directory

__all__ = ["QUICK", "local_context", "local_session", "open_session"]

STOP_TIMEOUT_S = 10

# For jobs of seconds the optimizing compiler and the parallel collector cost more time than they save. Without that
# compiler the code cache defaults to 48 MB, which the code of some hundred plans fills: the JVM stops compiling, and
# tasks end with UnknownReason.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"

# Errors are raised as exceptions, so logging would repeat them. The gateway to Python is named because Spark otherwise
# changes its level, and says so on stderr.
LOG4J = """\
rootLogger.level = fatal
rootLogger.appenderRef.stderr.ref = stderr
logger.python.name = org.apache.spark.api.python.PythonGatewayServer
logger.python.level = fatal
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %m%n
"""


@contextmanager
def local_session(
    cores: int | None = None, memory: str = "2g", *, quick: bool = False, master: str = "local[*]"
) -> Iterator[SparkSession]:
    with local_context(cores, memory, quick=quick, master=master) as context:
        yield open_session(context)


def open_session(context: SparkContext) -> SparkSession:
    """Open a session in a context, with the data source registered; it ends with the context.

    This takes a few seconds, which jobs that only run tasks save.
    """
    with _interrupts_later():
        session = SparkSession(context)
        register(session)
    return session


@contextmanager
def local_context(
    cores: int | None = None, memory: str = "2g", *, quick: bool = False, master: str = "local[*]"
) -> Iterator[SparkContext]:
    """Start Spark on this machine. Raises NoFitJava if Java is missing.

    `cores` None uses those of `master`; `memory` is the JVM's heap, as Spark writes sizes; `quick` suits small stores,
    and jobs whose work is done by Python's workers.

    SPARK_HOME, SPARK_CONF_DIR and JAVA_HOME in the environment are ignored: this is the installed pyspark, listening on
    the loopback address only. Its files are in a temporary directory, removed at the end, or by the next session if
    this one is killed. Spark spills to SPARK_LOCAL_DIRS if that is set. Raises OSError, with the variable in its text,
    if one of these folders cannot be written to.
    """
    java = find_java()
    _check_local_dirs()
    with work_directory("bmqctl-spark-") as work:
        try:
            conf = work / "conf"
            conf.mkdir()
            (conf / "log4j2.properties").write_text(LOG4J)
            java_home = write_java_home(java, work / "java")
            spark_home = _write_spark_home(work / "spark")
        except OSError as fault:
            raise OSError(fault.errno, f"{fault.strerror}; TMPDIR names another folder", str(work)) from None
        environment = {
            "JAVA_HOME": str(java_home),
            "SPARK_HOME": str(spark_home),
            "SPARK_CONF_DIR": str(conf),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        context = None
        with _environment(environment), _no_logging():
            try:
                with _interrupts_later():
                    context = _start(f"local[{cores}]" if cores else master, memory, work, QUICK if quick else "")
                yield context
            finally:
                if context is not None:
                    _stop(context)
                _end_jvm()


def _write_spark_home(directory: Path) -> Path:
    """Make `directory` a SPARK_HOME with the programs and jars of the installed pyspark, and return it.

    It omits the archive of pyspark's sources, which would precede the installed package on each Python worker's path:
    nothing in it is compiled, and imports from it take three times as long.
    """
    directory.mkdir()
    for name in ("bin", "jars"):
        (directory / name).symlink_to(Path(pyspark.__file__).parent / name)
    return directory


def _check_local_dirs() -> None:
    """Raise OSError for a folder of SPARK_LOCAL_DIRS that cannot be written to."""
    for each in filter(None, os.environ.get("SPARK_LOCAL_DIRS", "").split(",")):
        try:
            Path(each).mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=each).close()
        except OSError as fault:
            reason = f"{fault.strerror}; SPARK_LOCAL_DIRS names this folder"
            raise OSError(fault.errno, reason, each) from None


def _start(master: str, memory: str, work: Path, java_options: str) -> SparkContext:
    settings = {
        "spark.driver.memory": memory,
        # Spark's own temporary files: the JVM ends before it would remove them.
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={work} {java_options}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(work),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
    }
    _log_in()
    return SparkContext(conf=SparkConf().setMaster(master).setAppName("bmqctl").setAll(list(settings.items())))


def _log_in() -> None:
    """Log in an unknown user to Hadoop by its id, since Hadoop would ask Java for its name, and fail."""
    if is_user_known():
        return
    SparkContext._ensure_initialized()
    users = SparkContext._jvm.org.apache.hadoop.security.UserGroupInformation  # type: ignore[union-attr]
    users.setLoginUser(users.createRemoteUser(str(os.getuid())))


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Defer SIGINT to the end of the start, since an interrupted start leaves an orphaned JVM.

    Also restores the handler that Spark replaces with its own, which asks the JVM to cancel its jobs over the
    connection whose answer it may be interrupting.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed = threading.Event()
    handler = signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if pressed.is_set():
        raise KeyboardInterrupt


def _stop(context: SparkContext) -> None:
    """Stop the context from another thread, whose connection nothing has interrupted.

    Errors are ignored: the JVM ends next.
    """

    def stop() -> None:
        with suppress(Py4JError, OSError):
            # A session stops its context, and is forgotten.
            (SparkSession._instantiatedSession or context).stop()

    stopping = threading.Thread(target=stop, daemon=True)
    stopping.start()
    stopping.join(STOP_TIMEOUT_S)


def _end_jvm() -> None:
    """End the JVM, which `stop` leaves running until Python ends."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    gateway.shutdown()
    if process is not None:
        process.kill()
        process.wait()
        process.stdin.close()
    SparkContext._gateway = None
    SparkContext._jvm = None


@contextmanager
def _no_logging() -> Iterator[None]:
    """Disable logging by Spark's Python side, which also raises its errors; other loggers are untouched."""
    loggers: list[logging.Logger] = [
        *(PySparkLogger.getLogger(name) for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger")),
        *(logging.getLogger(name) for name in ("py4j.java_gateway", "py4j.clientserver")),
    ]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
