"""`bmqctl queue`: why a queue, or a group, does not proceed, and the purge of a queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import trio
import typer

from bmqctl.carrying.bridge.ends import BadBridge, RocketEnd, parse_end
from bmqctl.cli.administer.admin import AuthnData, AuthnMechanism, TlsAuthority, credentials_of, endpoint_of
from bmqctl.cli.administer.purge import purge_queue
from bmqctl.cli.contexts.command import DialingCommand
from bmqctl.cli.watch.cluster_rocketmq import secret_of
from bmqctl.client.admin import AdminLost
from bmqctl.clients.rocketmq.link import AccessKeys
from bmqctl.common.harmless import one_line
from bmqctl.common.render import (
    EXIT_FAULTS,
    Output,
    OutputFormat,
    ResultConsole,
    print_values,
    refuse,
    until_reader_leaves,
)
from bmqctl.systems.blazingmq.status.asking import Asking, Refused
from bmqctl.systems.blazingmq.status.queues import ask_about_queue
from bmqctl.systems.explaining.blazingmq import UnknownApp, causes_of_queue, causes_of_unopened
from bmqctl.systems.explaining.cause import Cause
from bmqctl.systems.explaining.rocketmq import causes_of_group
from bmqctl.systems.rocketmq.status.group import GroupUnknown, NobodyAnswers, group_state
from formats.bmq.uri import parse_uri

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="markdown")

COMMAND = "queue explain"


@app.callback()
def root() -> None:
    """Explain why a queue of BlazingMQ, or a group of RocketMQ, does not proceed; purge a queue."""


app.command("purge", cls=DialingCommand)(purge_queue)


@app.command(cls=DialingCommand)
def explain(
    uri: Annotated[
        str,
        typer.Argument(
            metavar="QUEUE",
            help="bmq://DOMAIN/QUEUE, with ?id=APP one app of it; or rocketmq://HOST:PORT/TOPIC?group=GROUP.",
            show_default=False,
        ),
    ],
    broker: Annotated[
        str, typer.Option("--broker", "-b", help="A node of BlazingMQ's cluster, as tcp://HOST:PORT.")
    ] = "tcp://localhost:30114",
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for each answer.")] = 5,
    output: Output = None,
    tls_authority: TlsAuthority = None,
    authn_mechanism: AuthnMechanism = None,
    authn_data: AuthnData = "",
) -> None:
    """List the causes for which messages wait, or are not taken, each with what to do.

    For a queue of BlazingMQ, whose primary is asked: no consumer; flow control, when each consumer has as many
    unconfirmed messages as it allows; messages that are with consumers and unconfirmed; messages put aside, which no
    expression matches; poison, on which consumers fail again and again; a quota; and messages without enough replicas.
    For a group of RocketMQ: its lag in a topic, and whether consumers are connected.

    Examples:

        bmqctl queue explain bmq://my.domain/orders

        bmqctl queue explain 'bmq://my.domain/orders?id=billing' --output json

        bmqctl queue explain 'rocketmq://127.0.0.1:9876/orders?group=billing'

    Exit codes: 0 nothing waits; 1 there are causes; 2 nobody answers, or there is no such queue.
    """
    try:
        end = parse_end(uri, broker, group="")
    except BadBridge as fault:
        refuse(COMMAND, str(fault))
    try:
        if isinstance(end, RocketEnd):
            causes = _of_group(end, timeout, authn_data)
        else:
            asking = Asking(timeout, tls_authority, credentials_of(authn_mechanism, authn_data))
            causes = _of_queue(uri, endpoint_of(COMMAND, broker), asking)
    except (AdminLost, Refused, UnknownApp, NobodyAnswers, GroupUnknown) as fault:
        refuse(COMMAND, str(fault))
    except (LookupError, TypeError, ValueError, AttributeError) as fault:
        refuse(COMMAND, f"the answer of a broker is not understood: {type(fault).__name__}: {fault}")
    with until_reader_leaves():
        if output in (None, OutputFormat.TABLE):
            console = ResultConsole(soft_wrap=True)
            for line in _lines(uri, causes):
                console.print(one_line(line))
        else:
            print_values((each._asdict() for each in causes), Cause._fields, output)
    if causes:
        raise typer.Exit(EXIT_FAULTS)


def _of_queue(uri: str, place: tuple[str, int], asking: Asking) -> list[Cause]:
    queue = parse_uri(uri)
    answers = ask_about_queue(*place, asking, queue)
    if answers.internals is None:
        return causes_of_unopened(answers.messages)
    return causes_of_queue(answers.internals, answers.view, queue.app_id)


def _of_group(end: RocketEnd, timeout_s: float, authn_data: str) -> list[Cause]:
    if not end.group:
        refuse(COMMAND, f"{end}: name the group, as in {end}?group=GROUP")
    secret = secret_of(authn_data, None, None)
    keys = None if secret is None else AccessKeys(*secret)
    nameserver = f"[{end.host}]:{end.port}" if ":" in end.host else f"{end.host}:{end.port}"
    state = trio.run(group_state, [nameserver], end.topic, end.group, timeout_s, keys)
    return causes_of_group(end.group, end.topic, state)


def _lines(uri: str, causes: Sequence[Cause]) -> Iterator[str]:
    if not causes:
        yield f"{uri}: nothing waits."
    for each in causes:
        yield f"{each.cause}: {each.text}"
        yield f"    {each.remedy}"
