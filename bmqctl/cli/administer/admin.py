"""`bmqctl admin`: commands to a running broker."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from bmqctl.cli.securing import AuthnData, AuthnMechanism, TlsAuthority
from bmqctl.client.address import BadAddress, parse_address
from bmqctl.common.render import EXIT_FAULTS, refuse, until_reader_leaves

if TYPE_CHECKING:
    from bmqctl.client.admin import AdminClient
    from bmqctl.client.protocol.authentication import Credentials

__all__ = ["admin", "credentials_of", "endpoint_of"]

NOT_A_COMMAND = "Unable to decode command"


def credentials_of(mechanism: str | None, data: str) -> Credentials | None:
    """Make credentials from the options."""
    from bmqctl.client.protocol.authentication import Credentials

    return None if mechanism is None else Credentials(mechanism, data.encode())


def endpoint_of(command: str, broker: str) -> tuple[str, int]:
    """Parse a `--broker` into host and port; exit with code 2 if it is invalid."""
    try:
        return parse_address(broker)
    except BadAddress:
        refuse(command, f"--broker {broker}: expected tcp://HOST:PORT")


def admin(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="The command, as one argument or several. Without it, each line of standard input is a command.",
            show_default=False,
        ),
    ] = None,
    broker: Annotated[
        str, typer.Option("--broker", "-b", help="The broker, as tcp://HOST:PORT.")
    ] = "tcp://localhost:30114",
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer.")] = 30,
    tls_authority: TlsAuthority = None,
    authn_mechanism: AuthnMechanism = None,
    authn_data: AuthnData = "",
) -> None:
    """Administer a broker: send it commands and print its answers.

    `bmqctl admin HELP` lists the commands that the broker knows. Put `ENCODING JSON_COMPACT` or `ENCODING JSON_PRETTY`
    before a command to have its answer as JSON; a command that starts with a brace is itself JSON.

    Examples:

        bmqctl admin CLUSTERS LIST

        bmqctl admin "DOMAINS DOMAIN my.domain QUEUE orders PURGE *"

        bmqctl admin ENCODING JSON_COMPACT STAT SHOW | jq -r .stats

        bmqctl admin --broker tcp://10.0.0.5:30114 < commands.txt

        BMQCTL_AUTHN_DATA=ops:secret bmqctl admin --authn-mechanism BASIC STAT SHOW

    Exit codes: 0 if all commands were answered; 1 if a command is unknown, its JSON answer reports a failure, or the
    connection was lost; 2 if there is no broker.
    """
    from bmqctl.client.admin import AdminClient, AdminLost

    host, port = endpoint_of("admin", broker)
    try:
        client = AdminClient(host, port, timeout, tls_authority, credentials_of(authn_mechanism, authn_data))
    except AdminLost as lost:
        refuse("admin", str(lost))
    lines = [" ".join(command)] if command else (line.strip() for line in sys.stdin)
    with client, until_reader_leaves():
        failed = _run(client, (line for line in lines if line))
    if failed:
        raise typer.Exit(EXIT_FAULTS)


def _run(client: AdminClient, lines: Iterable[str]) -> bool:
    """Send each command and print its answer; return True if one failed."""
    from bmqctl.client.admin import AdminLost

    failed = False
    for line in lines:
        try:
            answer = client.send(line)
        except AdminLost as lost:
            typer.echo(f"bmqctl admin: {lost}", err=True)
            return True
        print(answer.rstrip("\n"), flush=True)
        failed |= _has_failed(answer)
    return failed


def _has_failed(answer: str) -> bool:
    """Return True if the answer reports a failure; a text does so only for an unknown command."""
    if answer.startswith(NOT_A_COMMAND):
        return True
    if not answer.startswith("{"):
        return False
    try:
        return "error" in json.loads(answer)
    except ValueError:
        return False
