"""`bmqctl queue`: why a queue, or a group, does not proceed, and the purge of a queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from bmqctl.carrying.messages.ends import CannotBegin, Reach
from bmqctl.cli.administer.listing import list_queues
from bmqctl.cli.administer.purge import purge_queue
from bmqctl.cli.contexts.command import DialingCommand
from bmqctl.cli.securing import AuthnData, AuthnMechanism, TlsAuthority
from bmqctl.common.harmless import one_line
from bmqctl.common.render import EXIT_FAULTS, Output, OutputFormat, print_values, refuse, until_reader_leaves
from bmqctl.systems.explaining.cause import Cause
from bmqctl.systems.opening import open_end

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True)

COMMAND = "queue explain"


@app.callback()
def root() -> None:
    """List queues of BlazingMQ, purge one, explain why one, or a group of RocketMQ, does not proceed."""


app.command("list", cls=DialingCommand)(list_queues)
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
    from bmqctl.common.tables import ResultConsole

    try:
        end = open_end(uri, broker, group="")
        causes = end.causes(Reach(COMMAND, tls_authority, authn_mechanism, authn_data, timeout))
    except CannotBegin as fault:
        refuse(COMMAND, str(fault))
    except (LookupError, TypeError, ValueError, AttributeError) as fault:
        refuse(COMMAND, f"a broker's answer cannot be read: {type(fault).__name__}: {fault}")
    with until_reader_leaves():
        if output in (None, OutputFormat.TABLE):
            console = ResultConsole(soft_wrap=True)
            for line in _lines(uri, causes):
                console.print(one_line(line))
        else:
            print_values((each._asdict() for each in causes), Cause._fields, output)
    if causes:
        raise typer.Exit(EXIT_FAULTS)


def _lines(uri: str, causes: Sequence[Cause]) -> Iterator[str]:
    if not causes:
        yield f"{uri}: nothing waits."
    for each in causes:
        yield f"{each.cause}: {each.text}"
        yield f"    {each.remedy}"
