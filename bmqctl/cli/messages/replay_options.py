"""The options of `bmqctl replay`."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from formats.bmq.stores.outcomes import MessageOutcome

__all__ = [
    "BLAZINGMQ_OPTIONS",
    "COMMAND",
    "ROCKETMQ_OPTIONS",
    "Apps",
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
    "To",
    "Topics",
    "Until",
    "Where",
    "Window",
]

COMMAND: Final = "replay"

# Parameters that select messages of stores of one of the systems.
BLAZINGMQ_OPTIONS: Final = frozenset({"queues", "apps", "guids", "statuses", "partition"})
ROCKETMQ_OPTIONS: Final = frozenset({"topics", "queue_ids", "ids", "keys", "tags", "groups", "delayed"})

_option: Final = partial(typer.Option, show_default=False)
_select: Final = partial(_option, rich_help_panel="Selection of messages")
_select_blazingmq: Final = partial(_option, rich_help_panel="Selection of messages of a BlazingMQ store")
_select_rocketmq: Final = partial(_option, rich_help_panel="Selection of messages of a RocketMQ store")
_reach: Final = partial(_option, rich_help_panel="Connection")


class OutcomeOption(StrEnum):
    """The outcomes, as `--status` spells them."""

    _ignore_ = ["each"]
    for each in MessageOutcome:
        vars()[each.name] = each.word


Store = Annotated[
    Path, typer.Argument(help="A store's directory, or one JOURNAL file of BlazingMQ.", show_default=False)
]
To = Annotated[
    str | None,
    _option(
        help="Where messages go: bmq://DOMAIN/QUEUE, all to this queue; rocketmq://HOST:PORT of a nameserver, each to "
        "the topic of its name; or rocketmq://HOST:PORT/TOPIC, all to this topic. After ? there may be queue=NUMBER, "
        "or key=PROPERTY by whose value one is chosen. By default the queues of their names, at --broker."
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
    _option(
        "--rename",
        help="FROM=TO: post what was in queue or topic FROM to queue or topic TO. FROM may end with * to match a "
        "prefix, TO with * for the text that FROM's * matched. The first match applies.",
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
    _option(help="File that records the progress of the replay: a further run with it continues where the last ended."),
]
Window = Annotated[int, typer.Option(min=1, help="Maximum number of unacknowledged messages.")]
Patience = Annotated[float, typer.Option(min=0.1, help="Give up after this many seconds without progress.")]
Json = Annotated[bool, typer.Option("--json", help="The same as --output json: the account.")]

Since = Annotated[str | None, _select(help="Select messages stored from this time on: ISO 8601 (UTC), or seconds.")]
Until = Annotated[str | None, _select(help="Select messages stored before this time.")]
Where = Annotated[
    str | None, _select(help="Select messages whose properties match this subscription expression of BlazingMQ.")
]

Queues = Annotated[list[str] | None, _select_blazingmq("--queue", help="Select messages of this queue, by URI or key.")]
Apps = Annotated[
    list[str] | None,
    _select_blazingmq(
        "--app", help="Select messages addressed to this app, by id or key; --status is then what became of them there."
    ),
]
Guids = Annotated[list[str] | None, _select_blazingmq("--guid", help="Select the message with this GUID.")]
Statuses = Annotated[
    list[OutcomeOption] | None, _select_blazingmq("--status", help="Select messages with this outcome.")
]
Partition = Annotated[int | None, _select_blazingmq(min=0, help="Select messages of this partition.")]

Topics = Annotated[
    list[str] | None,
    _select_rocketmq(
        "--topic",
        help="Select messages of this topic; by default those of all that are neither the brokers' own nor for "
        "retries and dead letters.",
    ),
]
QueueIds = Annotated[
    list[int] | None, _select_rocketmq("--queue-id", min=0, help="Select messages of the queues with this number.")
]
Ids = Annotated[list[str] | None, _select_rocketmq("--id", help="Select the message with this unique id or offset id.")]
Keys = Annotated[list[str] | None, _select_rocketmq("--key", help="Select messages with this key.")]
Tags = Annotated[list[str] | None, _select_rocketmq("--tag", help="Select messages with this tag.")]
Groups = Annotated[
    list[str] | None, _select_rocketmq("--group", help="Select messages that this group has not consumed.")
]
Delayed = Annotated[
    bool,
    _select_rocketmq(
        "--delayed",
        help="Select also messages with a delay level whose time had not come. Their delays begin again.",
    ),
]

Broker = Annotated[
    str, _reach("--broker", "-b", help="The broker of BlazingMQ, as tcp://HOST:PORT.", show_default=True)
]
