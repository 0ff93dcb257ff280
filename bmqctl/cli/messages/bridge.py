"""`bmqctl bridge`: messages of a queue of BlazingMQ to a topic of RocketMQ, or the other way."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bmqctl.carrying.bridge.account import Account
from bmqctl.carrying.bridge.ends import BadBridge
from bmqctl.carrying.bridge.flow import FlowOptions
from bmqctl.carrying.bridge.metrics import metrics_text
from bmqctl.cli.administer.admin import credentials_of
from bmqctl.cli.securing import AuthnData, AuthnMechanism, TlsAuthority
from bmqctl.common.refusal import say
from bmqctl.common.render import (
    EXIT_FAULTS,
    Output,
    OutputFormat,
    print_values,
    refuse,
    until_reader_leaves,
    wanted_format,
)
from bmqctl.systems.opening import open_end

if TYPE_CHECKING:
    from bmqctl.carrying.bridge.making import BridgeOptions
    from bmqctl.carrying.bridge.run import Outcome, Running

__all__ = ["bridge"]

COMMAND = "bridge"
METRICS_S = 5.0
_USUAL = FlowOptions()
_REMEDY = "it stays at the source; to drop such messages and go on, give --skip-refused or skip_refused = true"


def _seconds(text: str, minimum: float) -> Any:
    return typer.Option(min=minimum, metavar="SECONDS", help=text, show_default=False)


def bridge(
    source: Annotated[
        str | None,
        typer.Argument(metavar="FROM", help="The queue or the topic that messages come from.", show_default=False),
    ] = None,
    destination: Annotated[
        str | None,
        typer.Argument(metavar="TO", help="The topic or the queue that they go to.", show_default=False),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="Run the bridges of this file, in TOML, instead of one from FROM to TO.", show_default=False),
    ] = None,
    broker: Annotated[
        str, typer.Option("--broker", "-b", help="The broker of BlazingMQ's queue, as tcp://HOST:PORT.")
    ] = "tcp://localhost:30114",
    window: Annotated[
        int, typer.Option(min=1, help="Maximum number of messages taken and not acknowledged, for each queue.")
    ] = _USUAL.window,
    batch: Annotated[
        int, typer.Option(min=1, help="Maximum number of messages sent together.")
    ] = _USUAL.batch_messages,
    skip_refused: Annotated[
        bool,
        typer.Option(
            "--skip-refused",
            help="Drop messages that cannot be carried, and count them. By default the bridge ends at the first.",
        ),
    ] = False,
    until_idle: Annotated[
        float | None,
        _seconds("End when no message has come for this time; by default never.", 0.1),
    ] = None,
    wait: Annotated[
        float | None,
        _seconds("At the start, wait at most this time for unavailable ends; by default without a limit.", 0.0),
    ] = None,
    patience: Annotated[
        float, typer.Option(min=0.0, help="When stopped, wait at most this many seconds for acknowledgments.")
    ] = 10.0,
    report: Annotated[
        float | None,
        _seconds(
            "Print the counts on stderr this often: a line for each bridge, as JSON if the account is not a table.", 0.1
        ),
    ] = None,
    metrics: Annotated[
        Path | None,
        typer.Option(
            help="Keep this file with the counts in Prometheus' text format, for a textfile collector: rewritten "
            "with each --report, or every 5 seconds.",
            show_default=False,
        ),
    ] = None,
    output: Output = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output json.")] = False,
    tls_authority: TlsAuthority = None,
    authn_mechanism: AuthnMechanism = None,
    authn_data: AuthnData = "",
) -> None:
    """Carry messages from FROM to TO, at least once and in their order, until SIGINT or SIGTERM.

    One end is a queue of BlazingMQ, `bmq://DOMAIN/QUEUE`, with `?id=APP` for an app of a fan-out; the other is a topic
    of RocketMQ, `rocketmq://NAMESERVER:PORT/TOPIC`, with `?group=GROUP` for the group that consumes it or produces to
    it, `&queue=NUMBER` for the queue that messages go to (0), or `&key=PROPERTY` to choose one by a property's value.

    Examples:

        bmqctl bridge bmq://my.domain/orders rocketmq://127.0.0.1:9876/orders

        bmqctl bridge --broker tcp://10.0.0.5:30114 'bmq://my.domain/orders?id=bridge' 'rocketmq://mq:9876/orders?key=customer'

        bmqctl bridge 'rocketmq://127.0.0.1:9876/orders?group=to-blazingmq' bmq://my.domain/orders

        bmqctl bridge --config bridges.toml --report 10

    A message is confirmed, or its offset committed, only after the destination has acknowledged it. So a bridge, or
    either node, may be killed at any time; what was in flight then is carried again. Nothing but the two ends keeps
    the position.

    Bridges from a topic share its queues with the other consumers of their group. An end that is away at the start is
    awaited, as it is later.

    Exit codes: 0 the bridge was stopped, or idle; 1 a message could not be carried; 2 the bridge cannot begin: an
    invalid option, no such domain or queue of a topic, or an end that is still away after --wait.
    """
    import trio

    from bmqctl.carrying.bridge.making import Means
    from bmqctl.carrying.bridge.run import CannotBegin, run_bridges
    from bmqctl.client.session import SessionOptions

    session = SessionOptions(
        process_name="bmqctl bridge",
        credentials=credentials_of(authn_mechanism, authn_data),
        tls_authority=tls_authority,
    )
    given = {"means": Means(session, wait_s=wait), "patience_s": patience, "idle_s": until_idle}
    flow = replace(_USUAL, window=window, batch_messages=batch, skip_refused=skip_refused)
    bridges = _bridges(config, source, destination, broker, flow, given)
    started = time.monotonic()
    wanted = wanted_format(output, as_json)
    reporter = _Reporter(started, wanted is not OutputFormat.TABLE, report is not None, metrics)
    interval_s = report or (None if metrics is None else METRICS_S)
    try:
        running = trio.run(run_bridges, bridges, _tell, interval_s, reporter.report)
    except CannotBegin as fault:
        refuse(COMMAND, str(fault))
    reporter.write_metrics(running)
    with until_reader_leaves():
        _print_accounts(running, time.monotonic() - started, wanted)
    faults = [each for each in running.outcomes if each.ended_by or each.account.refused]
    for outcome in faults:
        if outcome.ended_by:
            remedy = f"; {_REMEDY}" if outcome.account.refused else ""
            _tell(outcome.options.name, f"{outcome.ended_by}{remedy}")
    if faults:
        raise typer.Exit(EXIT_FAULTS)


def _bridges(
    config: Path | None,
    source: str | None,
    destination: str | None,
    broker: str,
    flow: FlowOptions,
    given: dict[str, Any],
) -> list[BridgeOptions]:
    from bmqctl.carrying.bridge.making import make_bridge, read_bridges

    try:
        if config is not None:
            if source is not None:
                refuse(COMMAND, "FROM and TO are in the file of --config, or on the command line, not both")
            return read_bridges(config.read_text(encoding="utf-8"), open_end, broker, **given)
        if source is None or destination is None:
            refuse(COMMAND, "expected FROM and TO, or --config FILE")
        return [make_bridge(open_end(source, broker), open_end(destination, broker), flow=flow, **given)]
    except BadBridge as fault:
        refuse(COMMAND, str(fault) if config is None else f"{config}: {fault}")
    except (OSError, UnicodeDecodeError) as fault:
        refuse(COMMAND, f"{config}: {fault.strerror if isinstance(fault, OSError) else 'is not UTF-8'}")


def _tell(name: str, text: str) -> None:
    say(COMMAND, f"{name}: {text}")


class _Reporter:
    """Lines about running bridges, with the rate since the previous one; and the file of metrics."""

    def __init__(self, started: float, as_json: bool, prints: bool, metrics: Path | None) -> None:
        self._as_json = as_json
        self._prints = prints
        self._metrics = metrics
        self._fault = ""
        self._before: dict[str, tuple[float, int]] = {}
        self._started = started

    def report(self, running: Running) -> None:
        """Write the metrics, and print a line for each bridge on standard error if wanted."""
        self.write_metrics(running)
        if self._prints:
            self._print(running)

    def write_metrics(self, running: Running) -> None:
        """Replace the file of metrics, if any; a fault is reported once."""
        if self._metrics is None:
            return
        text = metrics_text([(each.options.name, each.account) for each in running.outcomes])
        made = self._metrics.with_name(f".{self._metrics.name}.{os.getpid()}")
        fault = ""
        try:
            made.write_text(text, encoding="utf-8")
            made.replace(self._metrics)
        except OSError as error:
            fault = f"cannot write the metrics: {error.strerror}"
        if fault and fault != self._fault:
            _tell(str(self._metrics), fault)
        self._fault = fault

    def _print(self, running: Running) -> None:
        now = time.monotonic()
        for outcome in running.outcomes:
            name, account = outcome.options.name, outcome.account
            since, before = self._before.get(name, (self._started, 0))
            rate = (account.delivered - before) / max(now - since, 1e-9)
            self._before[name] = now, account.delivered
            if self._as_json:
                facts = {"bridge": name, "elapsed_s": round(now - self._started, 3), **account.as_json()}
                print(json.dumps({**facts, "per_second": round(rate, 1)}), file=sys.stderr, flush=True)
            else:
                _tell(name, f"{_counts(account)}, {rate:,.0f}/s")


def _counts(account: Account) -> str:
    facts = account.as_json()
    names = ("taken", "delivered", "refused", "returned", "in_flight", "repeated")
    return ", ".join(f"{facts[name]:,} {name.replace('_', ' ')}" for name in names)


def _print_accounts(running: Running, elapsed_s: float, wanted: OutputFormat) -> None:
    from bmqctl.common.tables import ResultConsole, ResultTable

    if wanted in (OutputFormat.JSONL, OutputFormat.CSV):
        rows = list(map(_facts, running.outcomes))
        print_values(rows, list(rows[0]) if rows else [], wanted)
        return
    if wanted is OutputFormat.JSON:
        facts = {
            "interrupted": running.is_interrupted,
            "elapsed_s": round(elapsed_s, 3),
            "bridges": [_facts(each) for each in running.outcomes],
        }
        print(json.dumps(facts, indent=2))
        return
    table = ResultTable(box=None, pad_edge=False)
    table.add_column("bridge", overflow="fold")
    names = ("taken", "delivered", "refused", "returned", "in_flight", "repeated", "bytes")
    for name in names:
        table.add_column(name.replace("_", " "), justify="right")
    for outcome in running.outcomes:
        counts = outcome.account.as_json()
        table.add_row(outcome.options.name, *(f"{counts[name]:,}" for name in names))
    console = ResultConsole()
    # Names are for copying: lines may be longer than the terminal is wide.
    console.width = max(console.width, 80 + max(len(each.options.name) for each in running.outcomes))
    console.print(table)
    for outcome in running.outcomes:
        for reason, count in sorted(outcome.account.refused.items()):
            console.print(f"{outcome.options.name}: refused {count:,}: {reason}")


def _facts(outcome: Outcome) -> dict[str, Any]:
    options = outcome.options
    return {
        "name": options.name,
        "from": str(options.source),
        "to": str(options.destination),
        "ended_by": outcome.ended_by or None,
        **outcome.account.as_json(),
    }
