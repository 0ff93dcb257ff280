"""`bmqctl cluster` for RocketMQ: what its options mean, and what is printed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import trio
import typer

from bmqctl.client.address import BadAddress, parse_address
from bmqctl.common.refusal import refuse
from bmqctl.common.render import EXIT_FAULTS, OutputFormat, print_lines, print_values, until_reader_leaves
from bmqctl.systems.rocketmq.status.asking import Places, Secret, hear
from bmqctl.systems.rocketmq.status.printing import (
    BROKER_KEYS,
    broker_rows,
    explanation_lines,
    json_value,
    status_lines,
)
from bmqctl.systems.rocketmq.status.problems import problems_of
from bmqctl.systems.rocketmq.status.view import Unheard, View, view_of

__all__ = ["BrokerName", "Controller", "IsRocketmq", "Nameserver", "explain_rocketmq", "places_of", "secret_of", "show"]

DEFAULT_NAMESERVER = "127.0.0.1:9876"

IsRocketmq = Annotated[
    bool,
    typer.Option("--rocketmq", help="The cluster is RocketMQ's; by default its nameserver is 127.0.0.1:9876."),
]
Nameserver = Annotated[
    list[str] | None,
    typer.Option(
        "--nameserver", metavar="HOST:PORT[;HOST:PORT]", help="Nameservers of a RocketMQ cluster.", show_default=False
    ),
]
Controller = Annotated[
    list[str] | None,
    typer.Option(
        "--controller", metavar="HOST:PORT[;HOST:PORT]", help="Controllers of a RocketMQ cluster.", show_default=False
    ),
]
BrokerName = Annotated[
    list[str] | None,
    typer.Option(
        "--broker-name",
        help="A name of RocketMQ brokers about which the controllers are asked, if no nameserver knows it.",
        show_default=False,
    ),
]


def places_of(
    broker: str | None,
    nameservers: list[str] | None,
    controllers: list[str] | None,
    names: list[str] | None,
) -> Places:
    """Return who is to be asked; exit with code 2 and one line on stderr for what is no address."""
    found = Places(
        _addresses("--nameserver", nameservers or ()),
        _addresses("--controller", controllers or ()),
        _addresses("--broker", () if broker is None else (broker,)),
        tuple(names or ()),
    )
    is_empty = not (found.nameservers or found.controllers or found.brokers)
    return found._replace(nameservers=(DEFAULT_NAMESERVER,)) if is_empty else found


def _addresses(option: str, texts: Iterable[str]) -> tuple[str, ...]:
    found = []
    for text in (part.strip() for each in texts for part in each.split(";") if part.strip()):
        try:
            host, port = parse_address(text)
        except BadAddress:
            refuse("cluster", f"{option} {text}: expected HOST:PORT")
        found.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return tuple(found)


def secret_of(data: str, authority: Path | None, mechanism: str | None) -> Secret | None:
    """Return the user as whom requests are signed, if there is one; exit with code 2 for what RocketMQ has not."""
    if authority is not None or mechanism is not None:
        refuse("cluster", "RocketMQ has no --tls-authority and no --authn-mechanism; sign with --authn-data")
    if not data:
        return None
    user, colon, password = data.partition(":")
    if not user or not colon:
        refuse("cluster", "--authn-data: expected USER:PASSWORD")
    return Secret(user, password)


def ask(places: Places, timeout_s: float, secret: Secret | None) -> View:
    """Ask for the state of a cluster; exit with code 2 and one line on stderr if nobody answers."""
    heard = trio.run(hear, places, timeout_s, secret)
    answers = [*heard.nameservers.items(), *heard.controllers.items(), *heard.brokers.items()]
    if all(isinstance(answer, Unheard) for _, answer in answers):
        reasons = [f"{address}: {answer.reason}" for address, answer in answers if isinstance(answer, Unheard)]
        refuse("cluster", f"nobody answers at {'; '.join(reasons)}")
    return view_of(heard)


def show(places: Places, timeout_s: float, secret: Secret | None, wanted: OutputFormat) -> None:
    """Print the state of a cluster; exit with code 1 if it has problems."""
    view = ask(places, timeout_s, secret)
    problems = problems_of(view)
    with until_reader_leaves():
        match wanted:
            case OutputFormat.TABLE:
                print_lines(status_lines(view, problems, time.time_ns() // 1_000_000))
            case OutputFormat.JSON:
                print(json.dumps(json_value(view, problems), indent=4))
            case _:
                print_values(broker_rows(view), BROKER_KEYS, wanted)
    if problems:
        raise typer.Exit(EXIT_FAULTS)


def explain_rocketmq(places: Places, timeout_s: float, secret: Secret | None, wanted: OutputFormat) -> None:
    """Print the problems of a cluster; exit with code 1 if there are any."""
    view = ask(places, timeout_s, secret)
    problems = problems_of(view)
    with until_reader_leaves():
        if wanted is OutputFormat.TABLE:
            print_lines(explanation_lines(view, problems))
        else:
            rows = ({"problem": each.text, "remedy": each.remedy} for each in problems)
            print_values(rows, ("problem", "remedy"), wanted)
    if problems:
        raise typer.Exit(EXIT_FAULTS)
