"""`bmqctl bench`: load on a broker, and what it did with it."""

from __future__ import annotations

import json
import secrets
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, NoReturn
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.status import Status

from bmqctl.bench.coordinator import Outcome, Progress, run_bench
from bmqctl.bench.engine_official import installed_version
from bmqctl.bench.plan import CannotStart, Engine, Plan
from bmqctl.bench.report import as_json, as_tables
from bmqctl.bench.stamp import STAMP_SIZE
from bmqctl.client.address import parse_address
from formats.errors import FormatError
from formats.uri import parse_uri

__all__ = ["bench"]

EXIT_UNCLEAN = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
DEFAULT_DURATION_S = 10.0
DEFAULT_PORT = 30114


def _refuse(reason: str) -> NoReturn:
    typer.echo(f"bmqctl bench: {reason}", err=True)
    raise typer.Exit(EXIT_USAGE)


def _endpoint(broker: str) -> tuple[str, int]:
    address = broker if "://" in broker else f"tcp://{broker}"
    try:
        has_port = urlsplit(address).port is not None
        return parse_address(address if has_port else f"{address.rstrip('/')}:{DEFAULT_PORT}")
    except ValueError:
        _refuse(f"--broker {broker}: expected tcp://HOST:PORT")


def bench(
    broker: Annotated[str, typer.Option(help="The broker, as tcp://HOST:PORT.")] = "tcp://127.0.0.1:30114",
    queue: Annotated[
        str | None, typer.Option(help="Queue URI; a new queue of bmq.test.persistent.priority if not given.")
    ] = None,
    client: Annotated[
        str, typer.Option(help="`own`, or `official`: the PyPI package blazingmq, as judge.", metavar="own|official")
    ] = "own",
    producers: Annotated[int, typer.Option(min=1, help="Producer processes.")] = 1,
    consumers: Annotated[int, typer.Option(min=0, help="Consumer processes.")] = 1,
    size: Annotated[int, typer.Option(min=STAMP_SIZE, help="Payload size in bytes.")] = 1024,
    count: Annotated[int | None, typer.Option(min=1, help="Messages in all.")] = None,
    duration: Annotated[
        float | None, typer.Option(min=0.001, help="Seconds to post for; 10 if there is no --count.")
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, help="Messages per event (own client), or posted in one go (official client).")
    ] = 1,
    rate: Annotated[
        float, typer.Option(min=0, help="Messages per second in all, open loop; 0 is as fast as possible.")
    ] = 0,
    window: Annotated[
        int, typer.Option(min=1, help="Messages unanswered, or undelivered, at most, when as fast as possible.")
    ] = 4096,
    max_unconfirmed: Annotated[int, typer.Option(min=1, help="Unconfirmed messages per consumer.")] = 1024,
    max_unconfirmed_bytes: Annotated[int, typer.Option(min=1, help="Unconfirmed bytes per consumer.")] = 33554432,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for each request to the broker.")] = 10.0,
    quiet: Annotated[
        float, typer.Option(min=0.1, help="Seconds without progress after which missing messages count as lost.")
    ] = 10.0,
    as_json_: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Measure a broker: throughput, latency, and whether every message came, once and in order.

    Latency counts from the time a message was due, so that a slow broker cannot hide behind its own backlog.
    Exits with 1 if a message was nacked, left unanswered or lost, or if the broker went away; with 2 if the run
    could not begin.
    """
    host, port = _endpoint(broker)
    queue = queue or f"bmq://bmq.test.persistent.priority/bench-{secrets.token_hex(4)}"
    try:
        parse_uri(queue)
    except FormatError as fault:
        _refuse(f"--queue {queue}: {fault.reason}")
    engine: Engine
    if client == "own":
        engine = "own"
    elif client == "official":
        engine = "official"
        if installed_version() is None:
            _refuse("--client official: the package is not installed; pip install 'bmqctl[official]'")
    else:
        _refuse(f"--client {client}: expected own or official")
    plan = Plan(
        run=secrets.randbits(32),
        host=host,
        port=port,
        queue=queue,
        client=engine,
        producers=producers,
        consumers=consumers,
        size=size,
        batch=batch,
        count=count,
        duration_s=duration if duration is not None or count is not None else DEFAULT_DURATION_S,
        rate=rate,
        window=window,
        max_unconfirmed_messages=max_unconfirmed,
        max_unconfirmed_bytes=max_unconfirmed_bytes,
        connect_timeout_s=timeout,
        quiet_s=quiet,
    )
    outcome = _run(plan)
    if as_json_:
        print(json.dumps(as_json(outcome), indent=2))
    else:
        Console().print(as_tables(outcome))
    if outcome.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if not outcome.clean:
        raise typer.Exit(EXIT_UNCLEAN)


def _run(plan: Plan) -> Outcome:
    console = Console(stderr=True)
    live: AbstractContextManager[Status | None] = (
        console.status("starting the workers") if sys.stderr.isatty() else nullcontext()
    )
    try:
        with live as status:

            def show(progress: Progress) -> None:
                if status is not None:
                    status.update(_line(progress))

            return run_bench(plan, show)
    except OSError as fault:
        _refuse(f"no broker at {plan.host}:{plan.port}: {fault.strerror or fault}")
    except CannotStart as fault:
        _refuse(str(fault))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _line(progress: Progress) -> str:
    return (
        f"{progress.elapsed_s:6.1f} s   posted {progress.posted:,}   answered {progress.answered:,}   "
        f"delivered {progress.delivered:,}   confirmed {progress.confirmed:,}"
    )
