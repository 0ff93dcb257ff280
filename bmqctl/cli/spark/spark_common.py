"""Common parts of the Spark commands: options, progress, and exit on errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from bmqctl.common.installed import installing
from bmqctl.common.render import EXIT_FAULTS, refuse

if TYPE_CHECKING:
    from bmqctl.pipeline.spark.launch import Job, Where
    from bmqctl.stores.blazingmq.read.account import Account

__all__ = [
    "AsJson",
    "Spark",
    "end_with_account",
    "refusing",
    "run",
]

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
Result = TypeVar("Result")

Master = Annotated[
    str,
    typer.Option(
        help="Spark master: local[N] in this process; other masters (spark://…, yarn, k8s://…) by `spark-submit`."
    ),
]
Cores = Annotated[
    int | None, typer.Option(min=1, help="Cores of this machine to use; by default all.", show_default=False)
]
Memory = Annotated[str, typer.Option(help="Memory for Spark's driver: 512m, 4g.")]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", help="A setting for `spark-submit`: KEY=VALUE.", show_default=False)
]
Ship = Annotated[
    bool,
    typer.Option(
        "--ship/--no-ship",
        help="With other masters: send numpy, pyarrow and what else executors need along, not bmqctl's code alone.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="The same as --output json.")]


@dataclass(frozen=True, slots=True)
class Spark:
    """The options for the place of a job."""

    master: Master = "local[*]"
    cores: Cores = None
    memory: Memory = "2g"
    conf: Conf = None
    ship: Ship = True

    def check(self, command: str) -> None:
        """Reject options at which Spark would fail later."""
        if find_spec("pyspark") is None or find_spec("pyarrow") is None:
            refuse(command, f"needs PySpark and PyArrow: {installing('spark')}")
        if not re.fullmatch(r"[1-9]\d*[kmgtKMGT]", self.memory):
            refuse(command, f"--memory {self.memory}: expected a number and k, m, g or t")
        for setting in self.conf or ():
            if not re.fullmatch(r"[\w.-]+=.*", setting):
                refuse(command, f"--conf {setting}: expected KEY=VALUE")
        masters = r"local(\[(\d+|\*)\])?|local-cluster\[\d+,\d+,\d+\]|spark://.+|k8s://.+|yarn|mesos://.+"
        if not re.fullmatch(masters, self.master):
            known = "local[N], spark://HOST:PORT, yarn, k8s://URL"
            refuse(command, f"--master {self.master}: no master that Spark knows ({known})")

    def where(self, *, quick: bool) -> Where:
        """Build the `Where` of a job; `quick` asks for a JVM that suits jobs with little work of their own."""
        from bmqctl.pipeline.spark.launch import Where

        return Where(self.master, self.cores, self.memory, quick, self.ship, tuple(self.conf or ()))


@contextmanager
def refusing(command: str) -> Iterator[None]:
    """Exit with code 2 and one line for errors that the user can correct, and quietly on an interrupt."""
    from bmqctl.pipeline.export.output import OutputError
    from bmqctl.pipeline.source.options import BadOption
    from bmqctl.pipeline.source.stores import StoreError
    from bmqctl.pipeline.spark.java import NoFitJava
    from bmqctl.pipeline.spark.launch import SparkFailed

    try:
        yield
    except (StoreError, NoFitJava, OutputError, BadOption) as fault:
        refuse(command, str(fault))
    except SparkFailed as fault:
        typer.echo(f"bmqctl {command}: Spark failed: {fault}", err=True)
        raise typer.Exit(EXIT_FAILED) from None
    except OSError as fault:
        refuse(command, f"{fault.filename}: {fault.strerror}" if fault.filename else fault.strerror or str(fault))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def end_with_account(command: str, store: str, account: Account) -> None:
    """Report the damaged and missing parts of a store, and exit with 1; return if there are none."""
    if not account.is_sound:
        text = f"{store}: {account.words()}; `bmqctl journal validate {store}` shows all"
        typer.echo(f"bmqctl {command}: {text}", err=True)
        raise typer.Exit(EXIT_FAULTS)


def run(job: Job[Result], place: Where) -> Result:
    """Run the job and return its result, with progress shown on a terminal."""
    from rich.console import Console

    from bmqctl.pipeline.spark.launch import run_job

    console = Console(stderr=True)
    if not console.is_terminal:
        return run_job(job, place, lambda step, done, total: None)
    with console.status("starting Spark") as status:

        def show(step: str, done: int, total: int, /) -> None:
            status.update(f"{step}: {done} of {total} tasks, {100 * done // total} %" if total else step)

        return run_job(job, place, show)
