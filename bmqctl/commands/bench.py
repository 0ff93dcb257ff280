"""`bmqctl bench`: load on a broker, and what it did with it."""

from __future__ import annotations

import json
import re
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NoReturn
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.status import Status

from bmqctl.bench.coordinator import Outcome, Progress, run_bench
from bmqctl.bench.engine_official import installed_version
from bmqctl.bench.plan import CannotStart, Engine, Plan
from bmqctl.bench.report import as_json, as_row, as_tables
from bmqctl.bench.stamp import STAMP_SIZE
from bmqctl.client.address import parse_address
from bmqctl.node_process import NodeFailed, NodeProcess, RocketProcess
from bmqctl.render import Output, OutputFormat, print_values, wanted_format
from formats.bmq.uri import parse_uri
from formats.errors import FormatError

__all__ = ["bench"]

EXIT_UNCLEAN = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
DEFAULT_DURATION_S = 10.0
DEFAULT_PORT = 30114
NAMESERVER_PORT = 9876
# What Apache RocketMQ takes in a topic's name.
TOPIC = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")


def _refuse(reason: str) -> NoReturn:
    typer.echo(f"bmqctl bench: {reason}", err=True)
    raise typer.Exit(EXIT_USAGE)


def _endpoint(option: str, given: str, default_port: int) -> tuple[str, int]:
    address = given if "://" in given else f"tcp://{given}"
    try:
        has_port = urlsplit(address).port is not None
        return parse_address(address if has_port else f"{address.rstrip('/')}:{default_port}")
    except ValueError:
        _refuse(f"{option} {given}: expected {'tcp://' if option == '--broker' else ''}HOST:PORT")


def _queue(given: str | None) -> str:
    queue = given or f"bmq://bmq.test.persistent.priority/bench-{secrets.token_hex(4)}"
    try:
        parse_uri(queue)
    except FormatError as fault:
        _refuse(f"--queue {queue}: {fault.reason}")
    return queue


def _topic(given: str | None) -> str:
    topic = given or f"bench-{secrets.token_hex(4)}"
    if not TOPIC.fullmatch(topic):
        _refuse(f"--topic {topic}: a topic's name is 1 to 127 of a-z, A-Z, 0-9, %, |, _ and -")
    return topic


def _engine(client: str) -> Engine:
    if client == "own":
        return "own"
    if client != "official":
        _refuse(f"--client {client}: expected own or official")
    if installed_version() is None:
        _refuse("--client official: the package is not installed; pip install 'bmqctl[official]'")
    return "official"


def bench(
    broker: Annotated[
        str | None,
        typer.Option(help="The broker, as tcp://HOST:PORT; by default tcp://127.0.0.1:30114.", show_default=False),
    ] = None,
    rocketmq: Annotated[
        bool, typer.Option("--rocketmq", help="Measure a RocketMQ cluster, through its remoting protocol.")
    ] = False,
    nameserver: Annotated[
        str | None,
        typer.Option(help="RocketMQ's nameserver, as HOST:PORT; by default 127.0.0.1:9876.", show_default=False),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="RocketMQ topic, created if it does not exist; by default a new one.")
    ] = None,
    own_node: Annotated[
        bool,
        typer.Option("--own-node", help="Start a node for the run, with its store in a temporary directory."),
    ] = False,
    queue: Annotated[
        str | None, typer.Option(help="Queue URI; by default a new queue of bmq.test.persistent.priority.")
    ] = None,
    client: Annotated[
        str,
        typer.Option(help="`own`, or `official`: the PyPI package blazingmq, for comparison.", metavar="own|official"),
    ] = "own",
    producers: Annotated[int, typer.Option(min=1, help="Producer processes.")] = 1,
    consumers: Annotated[int, typer.Option(min=0, help="Consumer processes.")] = 1,
    size: Annotated[int, typer.Option(min=STAMP_SIZE, help="Payload size in bytes.")] = 1024,
    count: Annotated[int | None, typer.Option(min=1, help="Total number of messages.")] = None,
    duration: Annotated[
        float | None, typer.Option(min=0.001, help="Seconds to post for; by default 10, unless --count is given.")
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, help="Messages per event or request (own client), or posted in one go (official).")
    ] = 1,
    rate: Annotated[
        float, typer.Option(min=0, help="Messages per second in total, open loop; 0: as fast as possible.")
    ] = 0,
    window: Annotated[
        int, typer.Option(min=1, help="Maximum unanswered or undelivered messages when posting as fast as possible.")
    ] = 4096,
    max_unconfirmed: Annotated[int, typer.Option(min=1, help="Maximum unconfirmed messages per consumer.")] = 1024,
    max_unconfirmed_bytes: Annotated[
        int, typer.Option(min=1, help="Maximum unconfirmed bytes per consumer.")
    ] = 33554432,
    timeout: Annotated[float, typer.Option(min=0.1, help="Timeout of each request to the broker, in seconds.")] = 10.0,
    quiet: Annotated[
        float, typer.Option(min=0.1, help="Seconds without progress after which missing messages count as lost.")
    ] = 10.0,
    output: Output = None,
    as_json_: Annotated[bool, typer.Option("--json", help="The same as --output json.")] = False,
) -> None:
    """Measure a broker: throughput, latency, and whether every message came, once and in order.

    Latency is measured from the time at which a message was due, so that the backlog of a slow broker counts. Exits
    with 1 if a message was nacked, left unanswered or lost, or if the connection was lost; with 2 if the run could not
    begin.

    With --output csv or jsonl the report is one row, whose columns are the paths of the JSON report, such as
    `latency_us.ack.p99`.

    Examples:

        bmqctl bench --count 2000 --rate 500

        bmqctl bench --broker tcp://10.0.0.5:30114 --producers 2 --consumers 2 --batch 64 --json

        bmqctl bench --rocketmq --own-node --count 20000

        bmqctl bench --rocketmq --nameserver 10.0.0.5:9876 --topic load --rate 5000 --duration 60
    """
    _check_options(rocketmq, broker, queue, client, nameserver, topic, own_node)
    host, port = (
        _endpoint("--nameserver", nameserver or "127.0.0.1", NAMESERVER_PORT)
        if rocketmq
        else _endpoint("--broker", broker or "127.0.0.1", DEFAULT_PORT)
    )
    plan = Plan(
        run=secrets.randbits(32),
        host=host,
        port=port,
        queue=_topic(topic) if rocketmq else _queue(queue),
        client="rocketmq" if rocketmq else _engine(client),
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
    with _node_for(plan, own_node) as measured:
        outcome = _run(measured)
    match wanted := wanted_format(output, as_json_):
        case OutputFormat.TABLE:
            Console().print(as_tables(outcome))
        case OutputFormat.JSON:
            print(json.dumps(as_json(outcome), indent=2))
        case _:
            row = as_row(outcome)
            print_values([row], row, wanted)
    if outcome.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if not outcome.clean:
        raise typer.Exit(EXIT_UNCLEAN)


def _check_options(
    rocketmq: bool,
    broker: str | None,
    queue: str | None,
    client: str,
    nameserver: str | None,
    topic: str | None,
    own_node: bool,
) -> None:
    """Refuse options that say nothing about the system that is measured, or two addresses."""
    of_blazingmq = {"--broker": broker, "--queue": queue, "--client": None if client == "own" else client}
    of_rocketmq = {"--nameserver": nameserver, "--topic": topic}
    for option, value in (of_blazingmq if rocketmq else of_rocketmq).items():
        if value is not None:
            _refuse(f"{option} cannot be given {'with' if rocketmq else 'without'} --rocketmq")
    if own_node and (broker or nameserver):
        _refuse("--own-node cannot be given with an address")


@contextmanager
def _node_for(plan: Plan, own_node: bool) -> Iterator[Plan]:
    """Start a node if one is wanted, and stop it afterwards; the plan with its address."""
    if not own_node:
        yield plan
        return
    with tempfile.TemporaryDirectory(prefix="bmqctl-bench-") as folder:
        kind = RocketProcess if plan.client == "rocketmq" else NodeProcess
        node = kind(Path(folder) / "store")
        try:
            node.start()
        except NodeFailed as fault:
            _refuse(f"no node: {fault}")
        with closing(node):
            port = node.nameserver_port if isinstance(node, RocketProcess) else node.port
            yield replace(plan, host="127.0.0.1", port=port)


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
        peer = "nameserver" if plan.client == "rocketmq" else "broker"
        _refuse(f"no {peer} at {plan.host}:{plan.port}: {fault.strerror or fault}")
    except CannotStart as fault:
        _refuse(str(fault))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _line(progress: Progress) -> str:
    return (
        f"{progress.elapsed_s:6.1f} s   posted {progress.posted:,}   answered {progress.answered:,}   "
        f"delivered {progress.delivered:,}   confirmed {progress.confirmed:,}"
    )
