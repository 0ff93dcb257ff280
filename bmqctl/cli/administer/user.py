"""`bmqctl user`: the users of RocketMQ's brokers."""

from __future__ import annotations

import sys
from enum import Enum
from getpass import getpass
from typing import Annotated

import typer

from bmqctl.cli.administer.changing import Changing, Masters, OnlyList
from bmqctl.cli.administer.defining import Name, alter, create, delete, list_all
from bmqctl.cli.contexts.command import DialingCommand
from bmqctl.cli.families import expanded
from bmqctl.common.refusal import refuse
from bmqctl.common.render import Output

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True)

KIND = "users"


class UserType(Enum):
    """The types of users: a super user may do everything."""

    NORMAL = "Normal"
    SUPER = "Super"


Type = Annotated[
    UserType | None,
    typer.Option("--type", case_sensitive=False, help="A Super user may do everything.", show_default=False),
]
Password = Annotated[
    str,
    typer.Option(
        envvar="BMQCTL_USER_PASSWORD",
        help="The password. Without it the command asks for one at the terminal.",
        show_default=False,
    ),
]
NewPassword = Annotated[
    str | None,
    typer.Option(envvar="BMQCTL_USER_PASSWORD", help="Another password.", show_default=False),
]
Enabled = Annotated[
    bool | None, typer.Option("--enable/--disable", help="Whether the user may connect.", show_default=False)
]


@app.callback()
def root() -> None:
    """List, create, alter and delete the users of RocketMQ's brokers."""


@app.command("list", cls=DialingCommand)
@expanded
def list_users(*, masters: Masters, output: Output = None) -> None:
    """List the users of each broker. Passwords are not shown.

    Examples:

        bmqctl user list

        bmqctl user list --nameserver 10.0.0.1:9876 --output json

    Exit codes: 0; 2 a broker refuses, or does not answer.
    """
    list_all(KIND, masters, output, ("userType", "userStatus"))


@app.command("create", cls=DialingCommand)
@expanded
def create_user(
    name: Name,
    *,
    password: Password = "",
    kind: Type = None,
    only_list: OnlyList = False,
    output: Output = None,
    masters: Masters,
) -> None:
    """Create a user on all brokers. Unless it is a Super user it has the rights that `bmqctl acl create` gives it.

    Examples:

        bmqctl user create shop

        BMQCTL_USER_PASSWORD=secret bmqctl user create ops --type Super

    Exit codes: 0; 2 there is such a user, or a broker refuses or does not answer.
    """
    if not password and not only_list:
        password = _asked("user create", name)
    create(
        KIND,
        name,
        Changing(only_list, True, output),
        masters,
        {"password": password or None, "userType": None if kind is None else kind.value},
    )


@app.command("alter", cls=DialingCommand)
@expanded
def alter_user(
    name: Name,
    *,
    password: NewPassword = None,
    kind: Type = None,
    enabled: Enabled = None,
    only_list: OnlyList = False,
    output: Output = None,
    masters: Masters,
) -> None:
    """Change a user on all brokers that have it; what no option names stays as it is.

    Examples:

        bmqctl user alter shop --disable

        BMQCTL_USER_PASSWORD=secret bmqctl user alter shop

    Exit codes: 0; 2 there is no such user, or a broker refuses or does not answer.
    """
    status = None if enabled is None else "enable" if enabled else "disable"
    alter(
        KIND,
        name,
        Changing(only_list, True, output),
        masters,
        {"password": password, "userType": None if kind is None else kind.value, "userStatus": status},
    )


@app.command("delete", cls=DialingCommand)
@expanded
def delete_user(name: Name, *, changing: Changing, masters: Masters) -> None:
    """Delete a user with its rights, on all brokers.

    Examples:

        bmqctl user delete shop --dry-run

        bmqctl user delete shop --yes

    Exit codes: 0; 2 there is no such user, a broker refuses or does not answer, or you do not say yes.
    """
    delete(KIND, name, changing, masters)


def _asked(command: str, name: str) -> str:
    if not sys.stdin.isatty():
        refuse(command, "Standard input is not a terminal: give the password in BMQCTL_USER_PASSWORD, or --password")
    found = getpass(f"Password of {name}: ")
    if found != getpass("Once more: "):
        refuse(command, "the passwords differ")
    return found
