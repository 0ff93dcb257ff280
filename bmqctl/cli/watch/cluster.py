"""`bmqctl cluster`: the state of a cluster, as seen by its nodes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated

import typer

from bmqctl.carrying.bridge.ends import CannotBegin
from bmqctl.cli.contexts.command import DialingCommand
from bmqctl.cli.families import expanded
from bmqctl.cli.securing import Security
from bmqctl.cli.watch.cluster_options import BrokerName, Nodes, open_nodes, options_of
from bmqctl.common.render import (
    EXIT_FAULTS,
    Output,
    OutputFormat,
    print_lines,
    print_values,
    refuse,
    until_reader_leaves,
    wanted_format,
)
from bmqctl.systems.opening import open_administration
from bmqctl.systems.system import Unanswered, Views

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True)

DEFAULT_BROKER = "tcp://localhost:30114"

Broker = Annotated[
    str | None,
    typer.Option(
        "--broker",
        "-b",
        help=f"Any node of the cluster, as tcp://HOST:PORT, by default {DEFAULT_BROKER}; with --rocketmq a broker.",
        show_default=False,
    ),
]
Timeout = Annotated[float, typer.Option(min=0.1, help="Seconds to wait for each node.")]
AsJson = Annotated[bool, typer.Option("--json", help="The same as --output json.")]


@app.callback()
def root() -> None:
    """Show the state and the problems of a running cluster, and have another master elected."""


@app.command(cls=DialingCommand)
@expanded
def status(
    broker: Broker = None,
    *,
    nodes: Nodes,
    broker_name: BrokerName = None,
    timeout: Timeout = 5,
    output: Output = None,
    as_json: AsJson = False,
    security: Security,
) -> None:
    """Show the leader, the nodes, and each partition with its primary, lease and replicas.

    The command asks one node, and then all other nodes that it names.

    With --rocketmq, --nameserver or --controller: show RocketMQ's controllers and their leader, and each name of
    brokers with its master, its in-sync set, and the lag of each slave. Nodes that are asked name others, which are
    asked, too.

    With --output json, the whole report of each node is printed; the rows of jsonl and csv are the partitions at each
    node, and for RocketMQ the brokers.

    Examples:

        bmqctl cluster status

        bmqctl cluster status --nameserver "10.0.0.5:9876;10.0.0.6:9876"

        bmqctl cluster status --broker tcp://10.0.0.5:30114 --json | jq '.nodes[].problems'

    Exit codes: 0 if there are no problems; 1 if there are; 2 if there is no broker.
    """
    cluster = open_nodes("cluster", options_of(broker, nodes, security.reach("cluster", timeout), broker_name))
    _print(cluster.status, wanted_format(output, as_json))


@app.command(cls=DialingCommand)
@expanded
def explain(
    broker: Broker = None,
    *,
    nodes: Nodes,
    broker_name: BrokerName = None,
    timeout: Timeout = 5,
    output: Output = None,
    security: Security,
) -> None:
    """List the problems of a cluster, with the nodes that report them; those of RocketMQ with what to do.

    Examples:

        bmqctl cluster explain

        bmqctl cluster explain --rocketmq

    Exit codes: 0 if there are no problems; 1 if there are; 2 if there is no broker.
    """
    cluster = open_nodes("cluster", options_of(broker, nodes, security.reach("cluster", timeout), broker_name))
    _print(cluster.problems, output or OutputFormat.TABLE)


@app.command("step-down", cls=DialingCommand)
@expanded
def step_down(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the brokers.", show_default=False)],
    broker: Broker = None,
    *,
    nodes: Nodes,
    to: Annotated[
        int | None,
        typer.Option(
            "--to",
            min=1,
            metavar="ID",
            help="The id of the slave that becomes the master; by default the one that lacks least.",
            show_default=False,
        ),
    ] = None,
    timeout: Timeout = 5,
    security: Security,
) -> None:
    """Have the controllers of RocketMQ elect another master, such as before the master's host is maintained.

    Only a slave that is in sync becomes the master, so that no acknowledged message is lost. BlazingMQ's nodes hand
    over when they are stopped.

    Examples:

        bmqctl cluster step-down broker-a --controller 10.0.0.1:9878

        bmqctl cluster step-down broker-a --to 2 --nameserver 10.0.0.1:9876

    Exit codes: 0; 2 there is no such broker, or a controller refuses or does not answer.
    """
    try:
        found = open_administration(options_of(broker, nodes, security.reach("cluster", timeout))).step_down(name, to)
    except (CannotBegin, Unanswered) as fault:
        refuse("cluster step-down", str(fault))
    typer.echo(f"{name}: {found} is the master")


def _print(question: Callable[[], Views], wanted: OutputFormat) -> None:
    """Ask a cluster and print its answer; exit with code 1 if it has problems."""
    try:
        views = question()
    except Unanswered as fault:
        refuse("cluster", str(fault))
    with until_reader_leaves():
        match wanted:
            case OutputFormat.TABLE:
                print_lines(views.lines)
            case OutputFormat.JSON if views.value is not None:
                print(json.dumps(views.value, indent=4))
            case _:
                print_values(views.rows, views.keys, wanted)
    if views.problems:
        raise typer.Exit(EXIT_FAULTS)
