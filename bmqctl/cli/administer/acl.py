"""`bmqctl acl`: the rights of the users of RocketMQ's brokers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

import typer

from bmqctl.cli.administer.changing import Changing, Masters, OnlyList
from bmqctl.cli.administer.defining import alter, create, delete, list_all
from bmqctl.cli.contexts.command import DialingCommand
from bmqctl.cli.families import expanded
from bmqctl.common.render import Output

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True)

KIND = "acls"


class Act(Enum):
    """The acts that a right is about."""

    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"
    ALL = "All"


User = Annotated[str, typer.Argument(metavar="USER", help="The name of the user.", show_default=False)]
Resource = Annotated[
    str,
    typer.Argument(
        metavar="RESOURCE",
        help="Topic:NAME, Group:NAME or Cluster:NAME, where NAME may be * or end with it; or * for all.",
        show_default=False,
    ),
]
Default = Annotated[bool, typer.Option("--default", help="The right counts only where no other is about the resource.")]


@dataclass(frozen=True, slots=True)
class Right:
    """The options that say what a right allows or denies."""

    acts: Annotated[
        list[Act] | None,
        typer.Option("--act", "-a", case_sensitive=False, help="An act; repeatable.", show_default=False),
    ] = None
    denied: Annotated[
        bool | None, typer.Option("--deny/--allow", help="Whether the acts are denied.", show_default=False)
    ] = None
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="ADDRESS",
            help="Only for connections from this address or network, such as 10.0.0.0/8; repeatable.",
            show_default=False,
        ),
    ] = None

    def fields(self) -> dict[str, object]:
        """Return the fields of the right; None for what is not given."""
        return {
            "actions": [each.value for each in self.acts] if self.acts else None,
            "decision": None if self.denied is None else "Deny" if self.denied else "Allow",
            "sourceIps": self.sources or None,
        }


@app.callback()
def root() -> None:
    """List, create, alter and delete the rights of the users of RocketMQ's brokers."""


@app.command("list", cls=DialingCommand)
@expanded
def list_rights(*, masters: Masters, output: Output = None) -> None:
    """List the rights of all users on each broker.

    Examples:

        bmqctl acl list

        bmqctl acl list --nameserver 10.0.0.1:9876 --output json

    Exit codes: 0; 2 a broker refuses, or does not answer.
    """
    list_all(KIND, masters, output, ("decision", "actions", "sourceIps"))


@app.command("create", cls=DialingCommand)
@expanded
def create_right(
    user: User,
    resource: Resource,
    *,
    right: Right,
    is_default: Default = False,
    only_list: OnlyList = False,
    output: Output = None,
    masters: Masters,
) -> None:
    """Allow or deny a user acts on a resource, on all brokers. The narrowest right about a resource decides.

    Examples:

        bmqctl acl create shop Topic:orders --act Pub

        bmqctl acl create billing 'Group:billing*' --act Sub --from 10.0.0.0/8

        bmqctl acl create shop Topic:audit --act All --deny

    Exit codes: 0; 2 there is such a right or no such user, or a broker refuses or does not answer.
    """
    create(
        KIND,
        _name(user, resource, is_default),
        Changing(only_list, True, output),
        masters,
        {**right.fields(), "decision": "Deny" if right.denied else "Allow"},
    )


@app.command("alter", cls=DialingCommand)
@expanded
def alter_right(
    user: User,
    resource: Resource,
    *,
    right: Right,
    is_default: Default = False,
    only_list: OnlyList = False,
    output: Output = None,
    masters: Masters,
) -> None:
    """Change a user's right on a resource, on all brokers that have it; what no option names stays as it is.

    Examples:

        bmqctl acl alter shop Topic:orders --act Pub --act Sub

        bmqctl acl alter shop Topic:orders --deny

    Exit codes: 0; 2 there is no such right, or a broker refuses or does not answer.
    """
    alter(
        KIND,
        _name(user, resource, is_default),
        Changing(only_list, True, output),
        masters,
        right.fields(),
    )


@app.command("delete", cls=DialingCommand)
@expanded
def delete_right(
    user: User, resource: Resource, *, is_default: Default = False, changing: Changing, masters: Masters
) -> None:
    """Take from a user its right on a resource, on all brokers.

    Examples:

        bmqctl acl delete shop Topic:orders --dry-run

        bmqctl acl delete shop Topic:orders --yes

    Exit codes: 0; 2 there is no such right, a broker refuses or does not answer, or you do not say yes.
    """
    delete(KIND, _name(user, resource, is_default), changing, masters)


def _name(user: str, resource: str, is_default: bool) -> str:
    return f"User:{user} {resource} {'Default' if is_default else 'Custom'}"
