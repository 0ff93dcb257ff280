"""`bmqctl bench`: load on a broker, and what it did with it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

import typer

from bmqctl.bench.brokers import CLUSTER_NAME, TARGETS, RunAddress, Target, write_domains
from bmqctl.bench.plan import Engine, Plan
from bmqctl.bench.scenarios import SCENARIOS, Scenario, UnknownScenario, matching
from bmqctl.bench.stamp import STAMP_SIZE
from bmqctl.carrying.messages.ends import CannotBegin, check_authority
from bmqctl.cli.run.bench_report import Files, check_files, print_report, print_scenarios, refuse_bench
from bmqctl.cli.securing import TlsAuthority
from bmqctl.client.address import parse_address
from bmqctl.common.installed import advise_compiling, installing
from bmqctl.common.render import Output, wanted_format
from formats.bmq.uri import parse_uri
from formats.errors import FormatError

__all__ = ["bench"]

EXIT_UNCLEAN = 1
DEFAULT_DURATION_S = 10.0
ROUNDS_VERSUS = 3
# The characters that Apache RocketMQ takes in a topic's name.
TOPIC = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")


def _endpoint(option: str, given: str, default_port: int) -> RunAddress:
    address = given if "://" in given else f"tcp://{given}"
    try:
        has_port = urlsplit(address).port is not None
        return RunAddress(*parse_address(address if has_port else f"{address.rstrip('/')}:{default_port}"))
    except ValueError:
        refuse_bench(f"{option} {given}: expected {'' if option == '--nameserver' else 'tcp://'}HOST:PORT")


def _queue(given: str | None) -> str:
    queue = given or f"bmq://bmq.test.persistent.priority/bench-{secrets.token_hex(4)}"
    try:
        parse_uri(queue)
    except FormatError as fault:
        refuse_bench(f"--queue {queue}: {fault.reason}")
    return queue


def _topic(given: str | None) -> str:
    topic = given or f"bench-{secrets.token_hex(4)}"
    if not TOPIC.fullmatch(topic):
        refuse_bench(f"--topic {topic}: a topic's name is 1 to 127 of a-z, A-Z, 0-9, %, |, _ and -")
    return topic


_PLACES: dict[str, Callable[[str | None], str]] = {"broker": _queue, "nameserver": _topic}


def _engine(client: str) -> Engine:
    from bmqctl.bench.engines.official import installed_version

    if client == "own":
        return "own"
    if client != "official":
        refuse_bench(f"--client {client}: expected own or official")
    if installed_version() is None:
        refuse_bench(f"--client official: the package is not installed; {installing('official')}")
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
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            help="Run a scenario: its name, the beginning of the name, or a pattern with *. May be given several times."
        ),
    ] = None,
    list_scenarios: Annotated[bool, typer.Option("--list-scenarios", help="List the scenarios, and end.")] = False,
    published_rate: Annotated[
        bool, typer.Option("--published-rate", help="Post at the rate of the published run of the scenario.")
    ] = False,
    nodes: Annotated[
        int, typer.Option(min=3, max=7, help="Nodes of the cluster that is started for a scenario without --broker.")
    ] = 3,
    write_domains_to: Annotated[
        Path | None,
        typer.Option(
            "--write-domains", metavar="FOLDER", help="Write the definitions of the scenarios' domains, and end."
        ),
    ] = None,
    cluster_name: Annotated[
        str, typer.Option("--cluster", help="Name of the cluster in the definitions of --write-domains.")
    ] = CLUSTER_NAME,
    versus: Annotated[
        str | None,
        typer.Option(help="Measure this broker alternately with the other one, as tcp://HOST:PORT, and compare."),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1, help="Runs of each scenario and broker; by default 1, and 3 with --versus.", show_default=False
        ),
    ] = None,
    histograms: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write each run's latencies as files of HdrHistogram: interval log and percentiles.",
        ),
    ] = None,
    plot: Annotated[
        bool, typer.Option("--plot", help="Plot latency by percentile in the terminal; needs the extra `plots`.")
    ] = False,
    plot_out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Save plots of latency by percentile and over time as PNG or SVG; needs the extra `plots`.",
        ),
    ] = None,
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
    tls_authority: TlsAuthority = None,
    output: Output = None,
    as_json_: Annotated[bool, typer.Option("--json", help="The same as --output json.")] = False,
) -> None:
    """Measure a broker: throughput, latency, and whether every message came, once and in order.

    Latency is measured from the time at which a message was due, so that the backlog of a slow broker counts. Exits
    with 1 if a message was nacked, left unanswered or lost, or if the connection was lost; with 2 if the run could not
    begin.

    With --output csv or jsonl the report is one row for each run, whose columns are the paths of the JSON report, such
    as `latency_us.ack.p99`.

    A scenario has queues, producers and consumers as BlazingMQ's published benchmarks have them. Without --broker a
    cluster is started for each, and stopped afterwards; a given broker must have the domains of --write-domains. If the
    name ends in `proxy`, the clients use a proxy that is started for the run.

    Examples:

        bmqctl bench --count 2000 --rate 500

        bmqctl bench --broker tcp://10.0.0.5:30114 --producers 2 --consumers 2 --batch 64 --json

        bmqctl bench --scenario fanout-5c --scenario 'priority-*q-strong-direct' --count 100000

        bmqctl bench --broker tcp://10.0.0.5:30114 --versus tcp://10.0.0.6:30114 --rounds 5 --plot-out both.png

        bmqctl bench --rocketmq --own-node --count 20000

        bmqctl bench --rocketmq --nameserver 10.0.0.5:9876 --topic load --rate 5000 --duration 60
    """
    from bmqctl.cli.run.bench_series import EXIT_INTERRUPTED, Bench, run_series

    if list_scenarios:
        print_scenarios(SCENARIOS.values(), wanted_format(output, as_json_))
        return
    if write_domains_to is not None:
        _write_domains(write_domains_to, cluster_name)
        return
    given = _Given(broker, queue, client, nameserver, topic, scenario, published_rate, versus, own_node)
    engine: Engine = "rocketmq" if rocketmq else _engine(client)
    target = TARGETS[engine]
    _check_options(target, given)
    address = _endpoint(f"--{target.peer}", broker or nameserver or "127.0.0.1", target.port)
    other = _endpoint("--versus", versus, target.port) if versus else None
    files = Files(histograms, plot, plot_out)
    check_files(files)
    if tls_authority is not None and engine not in ("own", "rocketmq"):
        refuse_bench("--tls-authority is for bmqctl's own clients")
    try:
        authority = check_authority(tls_authority)
    except CannotBegin as fault:
        refuse_bench(str(fault))
    plan = Plan(
        run=secrets.randbits(32),
        host=address.host,
        port=address.port,
        queue=_PLACES[target.peer](queue or topic),
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
        tls_authority=None if authority is None else str(authority),
    )
    bench_ = Bench(
        scenarios=_scenarios(scenario),
        broker=address if broker else None,
        own_node=own_node,
        versus=other,
        rounds=rounds or (ROUNDS_VERSUS if versus else 1),
        nodes=nodes,
        published_rate=published_rate,
    )
    runs = run_series(bench_, plan)
    advise_compiling("bench")
    print_report(runs, wanted_format(output, as_json_), files, is_series=bool(scenario or versus or bench_.rounds > 1))
    if any(run.outcome.interrupted for run in runs):
        raise typer.Exit(EXIT_INTERRUPTED)
    if not all(run.outcome.clean for run in runs):
        raise typer.Exit(EXIT_UNCLEAN)


class _Given(NamedTuple):
    """The options that exclude others."""

    broker: str | None
    queue: str | None
    client: str
    nameserver: str | None
    topic: str | None
    scenarios: Sequence[str] | None
    published_rate: bool
    versus: str | None
    own_node: bool


def _check_options(target: Target, given: _Given) -> None:
    """Refuse options without an effect on the measurement, or two addresses."""
    values: dict[str, object] = {
        "--broker": given.broker,
        "--queue": given.queue,
        "--client": None if given.client == "own" else given.client,
        "--scenario": given.scenarios,
        "--versus": given.versus,
        "--nameserver": given.nameserver,
        "--topic": given.topic,
    }
    for option, value in values.items():
        if value and option not in target.options:
            refuse_bench(f"{option} cannot be given {target.word} --rocketmq")
    if given.own_node and (given.broker or given.nameserver):
        refuse_bench("--own-node cannot be given with an address")
    if given.published_rate and not given.scenarios:
        refuse_bench("--published-rate needs --scenario")
    for option, value in {
        "--own-node": given.own_node,
        "--queue": given.queue,
        "--client": given.client != "own",
    }.items():
        if value and given.scenarios:
            refuse_bench(f"{option} cannot be given with --scenario")


def _scenarios(patterns: Sequence[str] | None) -> list[Scenario]:
    try:
        return matching(patterns or ())
    except UnknownScenario as fault:
        refuse_bench(f"--scenario {fault}: there is none; bmqctl bench --list-scenarios lists them")


def _write_domains(folder: Path, cluster: str) -> None:
    try:
        files = write_domains(folder, cluster)
    except OSError as fault:
        refuse_bench(f"--write-domains {folder}: {fault.strerror or fault}")
    for file in files:
        typer.echo(str(file))
