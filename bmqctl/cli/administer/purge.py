"""`bmqctl queue purge`: the messages of a queue, removed, or only counted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bmqctl.cli.administer.asking import ask
from bmqctl.cli.securing import AuthnData, AuthnMechanism, TlsAuthority
from bmqctl.common.render import Output, OutputFormat, print_values, refuse, until_reader_leaves
from formats.bmq.uri import QueueUri, parse_uri
from formats.errors import FormatError

if TYPE_CHECKING:
    from bmqctl.systems.blazingmq.status.contents import QueueContents

__all__ = ["purge_queue"]

COMMAND = "queue purge"


def purge_queue(
    uri: Annotated[
        str,
        typer.Argument(
            metavar="QUEUE", help="bmq://DOMAIN/QUEUE, with ?id=APP for one app of a fan-out.", show_default=False
        ),
    ],
    # Not called dry_run: commands with an option of that name connect to nobody, and take no broker from a context.
    only_list: Annotated[bool, typer.Option("--dry-run", help="Only report what would be removed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    broker: Annotated[
        str, typer.Option("--broker", "-b", help="A node of the cluster, as tcp://HOST:PORT.")
    ] = "tcp://localhost:30114",
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for each answer.")] = 30,
    output: Output = None,
    tls_authority: TlsAuthority = None,
    authn_mechanism: AuthnMechanism = None,
    authn_data: AuthnData = "",
) -> None:
    """Remove all messages of a queue of BlazingMQ, or the ones that an app has yet to confirm. This cannot be undone.

    The queue's primary does it, whichever node --broker names. Messages that consumers hold are removed, too, as are
    messages that arrive while the command asks. First the command reports the number and size of the messages, and the
    age of the oldest; with --dry-run it does nothing else.

    Examples:

        bmqctl queue purge bmq://my.domain/orders --dry-run

        bmqctl queue purge bmq://my.domain/orders

        bmqctl queue purge 'bmq://my.domain/orders?id=audit' --yes --output json

    Exit codes: 0; 2 nobody answers, there is no such queue, a broker refuses, or you do not say yes.
    """
    from bmqctl.cli.administer.admin import credentials_of, endpoint_of
    from bmqctl.client.admin import AdminLost
    from bmqctl.systems.blazingmq.status.asking import Asking, Refused
    from bmqctl.systems.blazingmq.status.contents import QueueContents, contents_of, purge

    queue = _queue(uri)
    asking = Asking(timeout, tls_authority, credentials_of(authn_mechanism, authn_data))
    host, port = endpoint_of(COMMAND, broker)
    try:
        found = contents_of(host, port, asking, queue)
        if only_list:
            _show(queue, found, output, is_dry=True)
            return
        if not yes:
            ask(COMMAND, f"Remove {_text(found)}, from {queue}?", "nothing is removed")
        removed = purge(host, port, asking, queue)
    except (AdminLost, Refused) as fault:
        refuse(COMMAND, str(fault))
    _show(queue, QueueContents(removed.messages, removed.size_bytes, found.oldest_at), output, is_dry=False)


def _queue(uri: str) -> QueueUri:
    try:
        return parse_uri(uri)
    except FormatError as fault:
        refuse(COMMAND, f"{uri}: {fault.reason}")


def _text(found: QueueContents) -> str:
    count = "1 message" if found.messages == 1 else f"{found.messages:,} messages"
    oldest = f", the oldest of {found.oldest_at}" if found.oldest_at else ""
    return f"{count}, {found.size_bytes:,} bytes{oldest}"


def _show(queue: QueueUri, found: QueueContents, output: OutputFormat | None, *, is_dry: bool) -> None:
    facts: dict[str, Any] = {
        "queue": str(queue),
        "dry_run": is_dry,
        "messages": found.messages,
        "bytes": found.size_bytes,
        "oldest_at": found.oldest_at,
    }
    with until_reader_leaves():
        if output in (None, OutputFormat.TABLE):
            print(f"{_text(found)}, {'would be' if is_dry else 'were'} removed from {queue}")
        elif output is OutputFormat.JSON:
            print(json.dumps(facts, indent=2))
        else:
            print_values([facts], list(facts), output)
