"""`bmqctl topic`: the topics of RocketMQ."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from bmqctl.cli.administer.changing import Changing, FieldSetting, Masters
from bmqctl.cli.administer.defining import Name, alter, create, delete, show
from bmqctl.cli.administer.listing import list_topics
from bmqctl.cli.contexts.command import DialingCommand
from bmqctl.cli.families import expanded
from bmqctl.common.render import Output

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True)

KIND = "topics"


class TopicType(Enum):
    """The types of messages that a topic takes from clients of gRPC."""

    NORMAL = "normal"
    FIFO = "fifo"
    DELAY = "delay"
    TRANSACTION = "transaction"
    MIXED = "mixed"
    LITE = "lite"
    PRIORITY = "priority"


Queues = Annotated[
    int | None, typer.Option(min=1, help="Queues on each broker, for posts and consumers alike.", show_default=False)
]
Type = Annotated[TopicType | None, typer.Option("--type", help="The messages that it is for.", show_default=False)]


@app.callback()
def root() -> None:
    """List, show, create, alter and delete the topics of RocketMQ."""


app.command("list", cls=DialingCommand)(list_topics)


@app.command("show", cls=DialingCommand)
@expanded
def show_topic(name: Name, *, masters: Masters, output: Output = None) -> None:
    """Show a topic as each broker has it.

    Examples:

        bmqctl topic show orders

        bmqctl topic show orders --nameserver 10.0.0.1:9876 --output json

    Exit codes: 0; 2 there is no such topic, or a broker does not answer.
    """
    show(KIND, name, masters, output)


@app.command("create", cls=DialingCommand)
@expanded
def create_topic(
    name: Name,
    *,
    queues: Queues = None,
    kind: Type = None,
    setting: FieldSetting,
    masters: Masters,
) -> None:
    """Create a topic on all brokers.

    Examples:

        bmqctl topic create orders

        bmqctl topic create payments --queues 4 --type fifo

        bmqctl topic create audit --set perm=4 --broker-name broker-a --dry-run

    Exit codes: 0; 2 there is such a topic, or a broker refuses or does not answer.
    """
    fields = {"readQueueNums": queues, "writeQueueNums": queues, "attributes": _attributes(kind)}
    create(KIND, name, setting.changing(), masters, setting.fields("topic create", fields))


@app.command("alter", cls=DialingCommand)
@expanded
def alter_topic(
    name: Name,
    *,
    queues: Queues = None,
    kind: Type = None,
    setting: FieldSetting,
    masters: Masters,
) -> None:
    """Change a topic on all brokers that have it; what no option names stays as it is.

    Queues that are taken away keep their messages, and have them again when they are added.

    Examples:

        bmqctl topic alter orders --queues 16

        bmqctl topic alter orders --set perm=4

    Exit codes: 0; 2 there is no such topic, or a broker refuses or does not answer.
    """
    fields = {"readQueueNums": queues, "writeQueueNums": queues, "attributes": _attributes(kind)}
    alter(KIND, name, setting.changing(), masters, setting.fields("topic alter", fields))


@app.command("delete", cls=DialingCommand)
@expanded
def delete_topic(name: Name, *, changing: Changing, masters: Masters) -> None:
    """Delete a topic with its messages, on all brokers and nameservers. This cannot be undone.

    Examples:

        bmqctl topic delete orders --dry-run

        bmqctl topic delete orders --yes

    Exit codes: 0; 2 there is no such topic, a broker refuses or does not answer, or you do not say yes.
    """
    delete(KIND, name, changing, masters)


def _attributes(kind: TopicType | None) -> dict[str, str] | None:
    return None if kind is None else {"message.type": kind.name}
