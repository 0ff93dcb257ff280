"""The options of `bmqctl replay`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from formats.bmq.stores.outcomes import MessageOutcome

__all__ = [
    "BLAZINGMQ_OPTIONS",
    "ROCKETMQ_OPTIONS",
    "Apps",
    "AuthnData",
    "AuthnMechanism",
    "Broker",
    "CreateTopics",
    "Delayed",
    "DryRun",
    "Groups",
    "Guids",
    "Ids",
    "Json",
    "Keys",
    "OutcomeOption",
    "Pace",
    "Partition",
    "Patience",
    "QueueIds",
    "Queues",
    "Renames",
    "Since",
    "State",
    "Statuses",
    "Store",
    "Tags",
    "TlsAuthority",
    "To",
    "Topics",
    "Until",
    "Where",
    "Window",
]

# Parameters that select messages of stores of one of the systems.
BLAZINGMQ_OPTIONS: Final = frozenset({"queues", "apps", "guids", "statuses", "partition"})
ROCKETMQ_OPTIONS: Final = frozenset({"topics", "queue_ids", "ids", "keys", "tags", "groups", "delayed"})

_SELECTION: Final = "Selection of messages"
_OF_BLAZINGMQ: Final = "Selection of messages of a BlazingMQ store"
_OF_ROCKETMQ: Final = "Selection of messages of a RocketMQ store"
_BROKER: Final = "Broker of BlazingMQ"


class OutcomeOption(StrEnum):
    """The outcomes, as `--status` spells them."""

    _ignore_ = ["each"]
    for each in MessageOutcome:
        vars()[each.name] = each.word


Store = Annotated[
    Path,
    typer.Argument(help="A store's directory, or one JOURNAL file of BlazingMQ.", show_default=False),
]
To = Annotated[
    str | None,
    typer.Option(
        help="Where messages go: bmq://DOMAIN/QUEUE, all to this queue; rocketmq://HOST:PORT of a nameserver, each to "
        "the topic of its name; or rocketmq://HOST:PORT/TOPIC, all to this topic. After ? there may be queue=NUMBER, "
        "or key=PROPERTY by whose value one is chosen. By default the queues of their names, at --broker.",
        show_default=False,
    ),
]
CreateTopics = Annotated[
    bool,
    typer.Option(
        "--create-topics", help="Make a topic that the nameserver does not know, with as many queues as it had."
    ),
]
Renames = Annotated[
    list[str] | None,
    typer.Option(
        "--rename",
        help="FROM=TO: post what was in queue or topic FROM to queue or topic TO. FROM may end with * to match a "
        "prefix, TO with * for the text that FROM's * matched. The first match applies.",
        show_default=False,
    ),
]
Pace = Annotated[
    str, typer.Option(help="max; original; or a factor of the original pace, such as 10 or 0.5.", metavar="PACE")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Read all messages and report what would be posted, without a broker.")
]
State = Annotated[
    Path | None,
    typer.Option(
        help="File that records the progress of the replay: a further run with it continues where the last ended.",
        show_default=False,
    ),
]
Window = Annotated[int, typer.Option(min=1, help="Maximum number of unacknowledged messages.")]
Patience = Annotated[float, typer.Option(min=0.1, help="Give up after this many seconds without progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

Since = Annotated[
    str | None,
    typer.Option(
        help="Select messages stored from this time on: ISO 8601 (UTC), or seconds.",
        rich_help_panel=_SELECTION,
        show_default=False,
    ),
]
Until = Annotated[
    str | None,
    typer.Option(help="Select messages stored before this time.", rich_help_panel=_SELECTION, show_default=False),
]
Where = Annotated[
    str | None,
    typer.Option(
        help="Select messages whose properties match this subscription expression of BlazingMQ.",
        rich_help_panel=_SELECTION,
        show_default=False,
    ),
]

Queues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        help="Select messages of this queue, by URI or key.",
        rich_help_panel=_OF_BLAZINGMQ,
        show_default=False,
    ),
]
Apps = Annotated[
    list[str] | None,
    typer.Option(
        "--app",
        help="Select messages addressed to this app, by id or key; --status is then what became of them there.",
        rich_help_panel=_OF_BLAZINGMQ,
        show_default=False,
    ),
]
Guids = Annotated[
    list[str] | None,
    typer.Option(
        "--guid", help="Select the message with this GUID.", rich_help_panel=_OF_BLAZINGMQ, show_default=False
    ),
]
Statuses = Annotated[
    list[OutcomeOption] | None,
    typer.Option(
        "--status", help="Select messages with this outcome.", rich_help_panel=_OF_BLAZINGMQ, show_default=False
    ),
]
Partition = Annotated[
    int | None,
    typer.Option(min=0, help="Select messages of this partition.", rich_help_panel=_OF_BLAZINGMQ, show_default=False),
]

Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        help="Select messages of this topic; by default those of all that are neither the brokers' own nor for "
        "retries and dead letters.",
        rich_help_panel=_OF_ROCKETMQ,
        show_default=False,
    ),
]
QueueIds = Annotated[
    list[int] | None,
    typer.Option(
        "--queue-id",
        min=0,
        help="Select messages of the queues with this number.",
        rich_help_panel=_OF_ROCKETMQ,
        show_default=False,
    ),
]
Ids = Annotated[
    list[str] | None,
    typer.Option(
        "--id",
        help="Select the message with this unique id or offset id.",
        rich_help_panel=_OF_ROCKETMQ,
        show_default=False,
    ),
]
Keys = Annotated[
    list[str] | None,
    typer.Option("--key", help="Select messages with this key.", rich_help_panel=_OF_ROCKETMQ, show_default=False),
]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", help="Select messages with this tag.", rich_help_panel=_OF_ROCKETMQ, show_default=False),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        help="Select messages that this group has not consumed.",
        rich_help_panel=_OF_ROCKETMQ,
        show_default=False,
    ),
]
Delayed = Annotated[
    bool,
    typer.Option(
        "--delayed",
        help="Select also messages with a delay level whose time had not come. They are delayed anew, in full.",
        rich_help_panel=_OF_ROCKETMQ,
    ),
]

Broker = Annotated[str, typer.Option("--broker", "-b", help="The broker, as tcp://HOST:PORT.", rich_help_panel=_BROKER)]
TlsAuthority = Annotated[
    Path | None,
    typer.Option(
        help="Connect with TLS; trust the CA certificates in this PEM file.",
        rich_help_panel=_BROKER,
        show_default=False,
    ),
]
AuthnMechanism = Annotated[
    str | None,
    typer.Option(
        help="Authentication mechanism, such as BASIC; by default none.",
        rich_help_panel=_BROKER,
        show_default=False,
    ),
]
AuthnData = Annotated[
    str,
    typer.Option(
        help="Credentials, such as user:password.",
        rich_help_panel=_BROKER,
        envvar="BMQCTL_AUTHN_DATA",
        show_default=False,
    ),
]
