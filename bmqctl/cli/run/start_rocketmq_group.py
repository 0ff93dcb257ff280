"""`bmqctl start rocketmq -n 3`: a group of nodes on this host, a process each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import trio
import typer

from bmqctl.cli.run.console_beside import Beside, console_beside
from bmqctl.cli.run.start_rocketmq_options import refuse_config
from bmqctl.common.ending import announce
from bmqctl.common.installed import advising
from bmqctl.systems.cluster_run import Member, run_members
from bmqctl.systems.rocketmq.status.asker import Asker
from bmqctl.systems.rocketmq.status.asking import Places, hear
from bmqctl.systems.rocketmq.status.view import Name, View, view_of
from broker.rocketmq.assembly.local_group import (
    CONFIG_NAME,
    STORE_NAME,
    GroupNode,
    GroupOptions,
    PropertyError,
    lack_of_secret,
    open_local_group,
    os_error_line,
)

__all__ = ["GroupOptions", "start_group"]

# A node prints this once it listens.
LISTENS = "bmqctl: rocketmq ready on "
POLL_S = 0.2
ASK_S = 2.0
# The time after which the command reports a missing master, or a slave that is not in sync.
PATIENCE_S = 30.0


def start_group(directory: Path, options: GroupOptions, flush: str | None, log_level: str, beside: Beside) -> NoReturn:
    """Run a group until SIGINT or SIGTERM, and exit as it does. Exits with 2 if it cannot start."""
    try:
        nodes = open_local_group(directory, options)
        lack = lack_of_secret(directory)
    except PropertyError as fault:
        refuse_config(fault)
    except OSError as error:
        refuse_config(os_error_line(error, "--store"))
    if lack is not None:
        print(f"bmqctl: {lack}", file=sys.stderr, flush=True)
    more = ("--log-level", log_level, *(() if flush is None else ("--flush", flush)))
    members = [_member(node, folder, more) for node, folder in nodes]
    names = ";".join(str(node.nameserver) for node, _ in nodes)
    with console_beside("start rocketmq", beside, lambda: ("--nameserver", names)) as begin_console:
        ready = partial(_say_ready, [node for node, _ in nodes], directory, advising("start rocketmq", begin_console))
        code = run_members(members, LISTENS, ready)
    raise typer.Exit(code)


def _member(node: GroupNode, folder: Path, more: tuple[str, ...]) -> Member:
    words = ("start", "rocketmq", "--config", str(folder / CONFIG_NAME), "--store", str(folder / STORE_NAME))
    return Member(node.name, words + more, words)


def _say_ready(nodes: Sequence[GroupNode], directory: Path, then: Callable[[], None]) -> None:
    """Wait until there is a master and all are in sync, and print the addresses for clients."""
    masters = trio.run(_wait_ready, nodes)
    announce("\n".join(ready_lines(nodes, directory, masters)))
    then()


async def _wait_ready(nodes: Sequence[GroupNode]) -> list[str]:
    controllers = [str(node.controller) for node in nodes if node.controller is not None]
    places = Places(tuple(str(node.nameserver) for node in nodes), tuple(controllers))
    names = {node.broker_name for node in nodes}
    begun = trio.current_time()
    has_told = False
    while True:
        view = view_of(await hear(places, Asker(ASK_S)))
        found = [_ready_master(name, view, len(controllers)) for name in view.names if name.name in names]
        masters = [each for each in found if each is not None]
        if len(masters) == len(names):
            return masters
        if not has_told and trio.current_time() - begun > PATIENCE_S:
            has_told = True
            asked = f"bmqctl cluster explain --nameserver {nodes[0].nameserver}"
            print(f"bmqctl: the group is not complete yet; to see why: {asked}", file=sys.stderr, flush=True)
        await trio.sleep(POLL_S)


def _ready_master(name: Name, view: View, brokers: int) -> str | None:
    """Return the address of the master of a complete group that takes messages, as every nameserver says."""
    master = name.master
    if master is None or not master.acts_as_master or not master.is_registered:
        return None
    if any(each.masters.get(name.name) != master.address for each in view.nameservers):
        return None
    return master.address if sum(1 for each in name.brokers if each.is_in_sync) >= brokers else None


def ready_lines(nodes: Sequence[GroupNode], directory: Path, masters: Sequence[str]) -> list[str]:
    places: dict[str, list[Any]] = {
        "nameservers": [node.nameserver for node in nodes],
        "controllers": [node.controller for node in nodes if node.controller is not None],
        "brokers": [node.broker for node in nodes],
        "gRPC": [node.grpc for node in nodes],
        "remoting": [node.remoting for node in nodes],
    }
    size, number = len(nodes) // len(masters), len(masters)
    what = f"group of {size} ready [master" if number == 1 else f"{number} groups of {size} ready [masters"
    found = [f"bmqctl: rocketmq {what}: {';'.join(masters)}, data: {directory}]"]
    for what, where in places.items():
        if None not in where:
            found.append(f"  {what:<11}  {';'.join(map(str, where))}")
    return found
