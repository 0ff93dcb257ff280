"""`bmqctl queue list`, `topic list` and `group list`: the names in a cluster, each with the messages that wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from bmqctl.cli.families import expanded
from bmqctl.cli.securing import Security
from bmqctl.cli.watch.cluster_options import Nameserver, open_nodes
from bmqctl.cli.watch.samples import print_sample, take
from bmqctl.common.render import Output, OutputFormat
from bmqctl.systems.system import ClusterOptions
from bmqctl.systems.watching.model import Selection

__all__ = ["list_groups", "list_queues", "list_topics"]

BROKER = "tcp://localhost:30114"
WHOLES = ("name", "node", "backlog", "oldest_s", "consumers")
PARTS = ("part", *WHOLES)

Broker = Annotated[str, typer.Option("--broker", "-b", help="A node of the cluster, as tcp://HOST:PORT.")]
Filter = Annotated[str, typer.Option("--filter", help="Only names that have this text in them.", show_default=False)]
Timeout = Annotated[float, typer.Option(min=0.1, help="Seconds to wait for each node.")]


@expanded
def list_queues(
    broker: Broker = BROKER,
    *,
    apps: Annotated[bool, typer.Option("--apps", help="List the apps of fan-out queues instead.")] = False,
    text: Filter = "",
    timeout: Timeout = 5,
    output: Output = None,
    security: Security,
) -> None:
    """List the queues of a cluster of BlazingMQ, with the messages that wait in each.

    Examples:

        bmqctl queue list

        bmqctl queue list --apps --filter my.domain --output json

    Exit codes: 0; 1 if a node does not answer; 2 if no node does.
    """
    options = ClusterOptions(broker, reach=security.reach("queue list", timeout))
    _list("queue list", options, Selection("name", False, text), PARTS if apps else WHOLES, output)


@expanded
def list_topics(
    nameserver: Nameserver = None,
    *,
    text: Filter = "",
    timeout: Timeout = 5,
    output: Output = None,
    security: Security,
) -> None:
    """List the topics of a cluster of RocketMQ, with the messages that wait for the group that is furthest behind.

    Examples:

        bmqctl topic list

        bmqctl topic list --nameserver '10.0.0.1:9876;10.0.0.2:9876' --output json

    Exit codes: 0; 1 if a node does not answer; 2 if no node does.
    """
    options = ClusterOptions(None, True, nameserver, reach=security.reach("topic list", timeout))
    _list("topic list", options, Selection("name", False, text), WHOLES, output)


@expanded
def list_groups(
    nameserver: Nameserver = None,
    *,
    text: Filter = "",
    timeout: Timeout = 5,
    output: Output = None,
    security: Security,
) -> None:
    """List the groups that consume the topics of a cluster of RocketMQ, with the messages that wait for each.

    Examples:

        bmqctl group list

        bmqctl group list --filter billing --output json

    Exit codes: 0; 1 if a node does not answer; 2 if no node does.
    """
    options = ClusterOptions(None, True, nameserver, reach=security.reach("group list", timeout))
    _list("group list", options, Selection("name", False, text), PARTS, output)


def _list(
    command: str, options: ClusterOptions, selection: Selection, columns: Sequence[str], wanted: OutputFormat | None
) -> None:
    selection = replace(selection, all_parts="part" in columns)
    shown = take(command, open_nodes(command, options).watcher())
    print_sample(command, shown, selection, columns, columns, wanted)
