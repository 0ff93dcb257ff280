"""`bmqctl cluster`: the state of a cluster, as seen by its nodes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from bmqctl.cli.administer.admin import AuthnData, AuthnMechanism, TlsAuthority, credentials_of, endpoint_of
from bmqctl.cli.contexts.command import DialingCommand
from bmqctl.cli.watch.cluster_rocketmq import (
    BrokerName,
    Controller,
    IsRocketmq,
    Nameserver,
    explain_rocketmq,
    places_of,
    secret_of,
    show,
)
from bmqctl.client.admin import AdminLost
from bmqctl.common.render import (
    EXIT_FAULTS,
    Output,
    OutputFormat,
    aligned,
    print_lines,
    print_values,
    refuse,
    until_reader_leaves,
    wanted_format,
)
from bmqctl.systems.blazingmq.status.asking import Asking, ask_all, problems_of, records_behind
from bmqctl.systems.blazingmq.status.rows import ROW_KEYS, best_view, cluster_rows, newest_view

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="markdown")

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
    """Show the state and the problems of a running cluster."""


@app.command(cls=DialingCommand)
def status(
    broker: Broker = None,
    rocketmq: IsRocketmq = False,
    nameserver: Nameserver = None,
    controller: Controller = None,
    broker_name: BrokerName = None,
    timeout: Timeout = 5,
    output: Output = None,
    as_json: AsJson = False,
    tls_authority: TlsAuthority = None,
    authn_mechanism: AuthnMechanism = None,
    authn_data: AuthnData = "",
) -> None:
    """Show the leader, the nodes, and each partition with its primary, lease and replicas.

    The command asks one node, and then all other nodes that it names.

    With --rocketmq, --nameserver or --controller: show RocketMQ's controllers and who leads them, and each name of
    brokers with its master, who is in sync, and how far behind each slave is. Those that are asked name others, who are
    asked, too.

    With --output json, the whole report of each node is printed; the rows of jsonl and csv are the partitions at each
    node, and for RocketMQ the brokers.

    Examples:

        bmqctl cluster status

        bmqctl cluster status --nameserver "10.0.0.5:9876;10.0.0.6:9876"

        bmqctl cluster status --broker tcp://10.0.0.5:30114 --json | jq '.nodes[].problems'

    Exit codes: 0 if there are no problems; 1 if there are; 2 if there is no broker.
    """
    if rocketmq or nameserver or controller or broker_name:
        places = places_of(broker, nameserver, controller, broker_name)
        secret = secret_of(authn_data, tls_authority, authn_mechanism)
        show(places, timeout, secret, wanted_format(output, as_json))
        return
    views = _views(broker, Asking(timeout, tls_authority, credentials_of(authn_mechanism, authn_data)))
    with until_reader_leaves():
        match wanted := wanted_format(output, as_json):
            case OutputFormat.TABLE:
                print_lines(_status(views))
            case OutputFormat.JSON:
                print(json.dumps({"nodes": views}, indent=4))
            case _:
                print_values(cluster_rows(views), ROW_KEYS, wanted)
    if problems_of(views):
        raise typer.Exit(EXIT_FAULTS)


@app.command(cls=DialingCommand)
def explain(
    broker: Broker = None,
    rocketmq: IsRocketmq = False,
    nameserver: Nameserver = None,
    controller: Controller = None,
    broker_name: BrokerName = None,
    timeout: Timeout = 5,
    output: Output = None,
    tls_authority: TlsAuthority = None,
    authn_mechanism: AuthnMechanism = None,
    authn_data: AuthnData = "",
) -> None:
    """List the problems of a cluster, with the nodes that report them; those of RocketMQ with what to do.

    Examples:

        bmqctl cluster explain

        bmqctl cluster explain --rocketmq

    Exit codes: 0 if there are no problems; 1 if there are; 2 if there is no broker.
    """
    if rocketmq or nameserver or controller or broker_name:
        places = places_of(broker, nameserver, controller, broker_name)
        secret = secret_of(authn_data, tls_authority, authn_mechanism)
        explain_rocketmq(places, timeout, secret, output or OutputFormat.TABLE)
        return
    views = _views(broker, Asking(timeout, tls_authority, credentials_of(authn_mechanism, authn_data)))
    problems = problems_of(views)
    asked = len([view for view in views if "view" in view])
    with until_reader_leaves():
        if output not in (None, OutputFormat.TABLE):
            rows = ({"problem": problem, "seen_by": witnesses} for problem, witnesses in problems.items())
            print_values(rows, ("problem", "seen_by"), output)
        elif not problems:
            print(f"No problems, according to {asked} of {len(views)} nodes.")
        else:
            print_lines(f"{problem} [seen by {_listed(witnesses)}]" for problem, witnesses in problems.items())
    if problems:
        raise typer.Exit(EXIT_FAULTS)


def _views(broker: str | None, asking: Asking) -> list[dict[str, Any]]:
    host, port = endpoint_of("cluster", broker or DEFAULT_BROKER)
    try:
        return ask_all(host, port, asking)
    except AdminLost as lost:
        refuse("cluster", str(lost))


# -- output


def _status(views: list[dict[str, Any]]) -> Iterable[str]:
    known = [each["view"] for each in views if "view" in each]
    newest = newest_view(known)
    leader = newest.get("leaderNodeId")
    yield f"Cluster   {newest['name']}"
    yield f"Leader    {'none' if leader is None else f'node {leader}'}, term {newest['term']}"
    yield f"Healthy   {'no: see `bmqctl cluster explain`' if problems_of(views) else 'yes'}"
    yield ""
    yield from aligned(("NODE", "AT", "STATUS", "ROLE", "LEDGER"), _nodes(views, newest))
    yield ""
    yield from aligned(
        ("PARTITION", "PRIMARY", "LEASE", "ACTIVE", "AT", "REPLICAS (RECORDS BEHIND)"), _partitions(known)
    )


def _nodes(views: list[dict[str, Any]], newest: dict[str, Any]) -> Iterable[tuple[str, ...]]:
    places = {node["nodeId"]: node["endpoint"] for node in newest["nodes"]}
    for each in views:
        place, view = places[each["nodeId"]], each.get("view")
        if view is None:
            yield (str(each["nodeId"]), place, "UNREACHABLE", "", "")
        else:
            ledger = f"({view['ledgerTerm']}, {view['ledgerSequenceNumber']})"
            yield (str(each["nodeId"]), place, view["status"], view["role"], ledger)


def _partitions(known: list[dict[str, Any]]) -> Iterable[tuple[str, ...]]:
    for number in range(len(known[0]["partitions"])):
        seen = {view["nodeId"]: view["partitions"][number] for view in known}
        best = best_view(known, known[0]["partitions"][number]["partitionId"])
        primary = best.get("primaryNodeId")
        others = sorted({node["nodeId"] for view in known for node in view["nodes"]} - {primary})
        replicas = ", ".join(f"node {number} ({_behind(best, seen.get(number))})" for number in others)
        yield (
            str(best["partitionId"]),
            "none" if primary is None else f"node {primary}",
            str(best["primaryLeaseId"]),
            "yes" if best["isActive"] else "no",
            f"({best['leaseId']}, {best['sequenceNumber']})",
            replicas,
        )


def _behind(primary: dict[str, Any], own: dict[str, Any] | None) -> str:
    """Return the number of records that a replica lacks, by its own answer: the primary is not told of each."""
    if own is None:
        return "unreachable"
    records = records_behind(primary, own)
    return f"at lease {own['leaseId']}" if records is None else str(records)


def _listed(witnesses: list[int]) -> str:
    return ", ".join(f"node {number}" for number in witnesses) if witnesses else "this command"
