"""`bmqctl top`: the queues or topics of a cluster, as they are at work."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from bmqctl.cli.families import expanded
from bmqctl.cli.securing import Security
from bmqctl.cli.watch.cluster_options import Nodes, open_nodes, options_of
from bmqctl.cli.watch.samples import print_sample, take
from bmqctl.common.installed import installing
from bmqctl.common.render import Output, OutputFormat, refuse
from bmqctl.systems.watching.model import COLUMNS, Selection
from bmqctl.systems.watching.watcher import Watcher

__all__ = ["top"]

DEFAULT_BROKER = "tcp://localhost:30114"


@expanded
def top(
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker",
            "-b",
            help=f"A node of BlazingMQ's cluster, as tcp://HOST:PORT; by default {DEFAULT_BROKER}.",
            show_default=False,
        ),
    ] = None,
    *,
    nodes: Nodes,
    interval: Annotated[float, typer.Option(min=0.5, max=3600, help="Seconds between samples.")] = 2,
    sort: Annotated[str, typer.Option(help=f"The column to sort by: {', '.join(COLUMNS)}.")] = "backlog",
    ascending: Annotated[bool, typer.Option("--ascending", help="Sort from the least to the greatest.")] = False,
    text: Annotated[
        str, typer.Option("--filter", help="Only names that have this text in them.", show_default=False)
    ] = "",
    within: Annotated[
        str | None,
        typer.Option(help="The apps of this queue, or the groups of this topic, instead.", show_default=False),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Take two samples, print one table, and end.")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for each node.")] = 5,
    output: Output = None,
    security: Security,
) -> None:
    """Watch the queues of BlazingMQ, or the topics of RocketMQ, of a whole cluster.

    The columns are messages in and out per second, the backlog, the age of the oldest unconfirmed message, consumers,
    and the lag of the last replica: in records, or for RocketMQ in bytes. All nodes are asked at each sample; a dash is
    a value that a node does not report.

    Keys: `s` sorts by the next column and `r` reverses the order; `/` filters by a part of the name; Enter shows the
    apps of a queue or the groups of a topic, and Escape leads back; `n` shows the nodes, and Enter there the rows of
    one; `p` purges a queue or an app of BlazingMQ, after a confirmation; the space bar pauses; `q` ends.

    The screen needs the extra `top`; `--once`, and `--output`, which means it, do not.

    Examples:

        bmqctl top

        bmqctl top --rocketmq --sort lag

        bmqctl top --once --output json --interval 10 | jq '.[] | select(.backlog > 1000)'

    Exit codes: 0; 1 if a node does not answer `--once`; 2 if nobody does, or the extra is not installed.
    """
    if sort not in COLUMNS:
        refuse("top", f"--sort {sort}: expected one of {', '.join(COLUMNS)}")
    selection = Selection(sort, not ascending, text, within)
    cluster = open_nodes("top", options_of(broker, nodes, security.reach("top", timeout)))
    watcher = cluster.watcher()
    if once or output is not None:
        _print_once(watcher, interval, selection, output or OutputFormat.TABLE)
        return
    if not _is_terminal():
        refuse("top", "the output is no terminal; use --once")
    try:
        from bmqctl.systems.watching.screen import Top
    except ImportError:
        refuse("top", f"the screen needs textual, of the extra `top`: {installing('top')}; or use --once")
    Top(watcher, interval, cluster.place, selection).run()


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def _print_once(watcher: Watcher, interval_s: float, selection: Selection, wanted: OutputFormat) -> None:
    take("top", watcher)
    time.sleep(interval_s)
    columns = [name for name in COLUMNS if name != "part" or selection.within is not None]
    print_sample("top", take("top", watcher), selection, columns, COLUMNS, wanted)
