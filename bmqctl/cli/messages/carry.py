"""`bmqctl copy` and `bmqctl move`: messages of a queue or a topic to another queue or topic."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from bmqctl.carrying.messages.ends import CannotBegin, Reach
from bmqctl.carrying.options import CarryOptions
from bmqctl.cli.administer.asking import ask
from bmqctl.cli.families import expanded
from bmqctl.cli.messages.message_options import EXIT_INTERRUPTED, run
from bmqctl.cli.securing import Security
from bmqctl.common.refusal import say
from bmqctl.common.render import (
    EXIT_FAULTS,
    LateProgress,
    Output,
    OutputFormat,
    print_values,
    refuse,
    until_reader_leaves,
    wanted_format,
)
from bmqctl.systems.opening import open_end

if TYPE_CHECKING:
    from bmqctl.carrying.moving.run import At, Carried, SourceContents

__all__ = ["copy", "move"]

PRODUCERS: Final = "bmqctl-copy"
_USUAL: Final = CarryOptions(False)

Source = Annotated[
    str,
    typer.Argument(
        metavar="FROM",
        help="A queue, bmq://DOMAIN/QUEUE[?id=APP], or a topic, rocketmq://NAMESERVER:PORT/TOPIC.",
        show_default=False,
    ),
]
Destination = Annotated[
    str, typer.Argument(metavar="TO", help="The queue or topic that messages go to.", show_default=False)
]
Expression = Annotated[
    str | None,
    typer.Option(
        "--expression",
        "-e",
        help="Messages whose properties match this: a subscription expression of BlazingMQ, SQL of RocketMQ.",
        show_default=False,
    ),
]
Count = Annotated[
    int | None, typer.Option("--count", "-n", min=1, help="Maximum number of messages.", show_default=False)
]
UntilIdle = Annotated[
    float,
    typer.Option(
        min=0.1, metavar="SECONDS", help="End when no message of a queue, or for a group, has come for this time."
    ),
]
OnlyList = Annotated[bool, typer.Option("--dry-run", help="Only report what would be done.")]
Window = Annotated[
    int, typer.Option(min=1, help="Maximum number of messages taken and not acknowledged, for each queue.")
]
Patience = Annotated[
    float, typer.Option(min=0.5, metavar="SECONDS", help="Give up when nothing has been acknowledged for this time.")
]
Broker = Annotated[str, typer.Option("--broker", "-b", help="The broker of BlazingMQ's queues, as tcp://HOST:PORT.")]
ToBroker = Annotated[
    str | None,
    typer.Option(help="The broker of the queue TO, if it is not that of --broker.", show_default=False),
]
ToTlsAuthority = Annotated[
    Path | None, typer.Option(help="As --tls-authority, for the brokers of TO.", show_default=False)
]
ToAuthnMechanism = Annotated[
    str | None, typer.Option(help="As --authn-mechanism, for the broker of TO.", show_default=False)
]
ToAuthnData = Annotated[
    str,
    typer.Option(help="As --authn-data, for the brokers of TO.", envvar="BMQCTL_TO_AUTHN_DATA", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="The same as --output json.")]


@dataclass(frozen=True, slots=True)
class ToSecurity:
    """The options by which connections to TO are secured."""

    to_tls_authority: ToTlsAuthority = None
    to_authn_mechanism: ToAuthnMechanism = None
    to_authn_data: ToAuthnData = ""

    def reach(self, command: str) -> Reach:
        return Security(self.to_tls_authority, self.to_authn_mechanism, self.to_authn_data).reach(command)


class _Places(NamedTuple):
    """The two ends, in the words of the command line."""

    source: str
    destination: str
    broker: str
    to_broker: str | None
    reach: Reach
    to_reach: Reach


@expanded
def copy(
    source: Source,
    destination: Destination,
    expression: Expression = None,
    tags: Annotated[
        str | None, typer.Option(help="Messages with these tags, such as 'A || B', of a topic.", show_default=False)
    ] = None,
    count: Count = None,
    until_idle: UntilIdle = _USUAL.idle_s,
    skip_refused: Annotated[
        bool,
        typer.Option(
            "--skip-refused", help="Leave out messages that TO cannot hold. By default the copy ends at the first."
        ),
    ] = False,
    # Not called dry_run: commands with an option of that name connect to nobody, and take no broker from a context.
    only_list: OnlyList = False,
    window: Window = _USUAL.window,
    patience: Patience = _USUAL.patience_s,
    broker: Broker = "tcp://localhost:30114",
    to_broker: ToBroker = None,
    output: Output = None,
    as_json: AsJson = False,
    *,
    security: Security,
    to_security: ToSecurity,
) -> None:
    """Copy messages of a queue or a topic to another. FROM keeps them all: nothing is confirmed or committed.

    A topic is read from its oldest message to the end that it had at the beginning; with `?queue=NUMBER` only the
    queues with this number. A queue of BlazingMQ gives messages to consumers only: the copy is one, holds what it
    gets unconfirmed until it ends, and then leaves it to the others. Messages that other consumers hold are not copied.

    Each queue is copied in its order: of a topic to the same queue of the other topic, of BlazingMQ to the first
    queue of a topic, to `?queue=NUMBER`, or by the value of a property, `?key=PROPERTY`.

    Examples:

        bmqctl copy bmq://my.domain/orders bmq://my.domain/orders-test --count 100

        bmqctl copy 'bmq://my.domain/orders?id=audit' bmq://my.domain/orders --to-broker tcp://10.0.0.5:30114

        bmqctl copy rocketmq://127.0.0.1:9876/orders rocketmq://10.0.0.5:9876/orders --tags 'paid || free'

        bmqctl copy rocketmq://127.0.0.1:9876/orders bmq://my.domain/orders --dry-run

    A copy that is interrupted leaves those messages at TO that it has copied; a second run copies them once more.

    Exit codes: 0 all messages were copied; 1 some were not: refused, damaged or missing at FROM, or a broker did not
    answer; 2 it cannot begin; 130 it was interrupted.
    """
    options = CarryOptions(False, expression, tags, count, until_idle, patience, window, skip_refused=skip_refused)
    reach = security.reach("copy")
    to_reach = to_security.reach("copy")
    places = _Places(source, destination, broker, to_broker, reach, to_reach)
    _carry("copy", places, options, only_list, True, wanted_format(output, as_json))


@expanded
def move(
    source: Source,
    destination: Destination,
    expression: Expression = None,
    count: Count = None,
    until_idle: UntilIdle = _USUAL.idle_s,
    only_list: OnlyList = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    window: Window = _USUAL.window,
    patience: Patience = _USUAL.patience_s,
    broker: Broker = "tcp://localhost:30114",
    to_broker: ToBroker = None,
    output: Output = None,
    as_json: AsJson = False,
    *,
    security: Security,
    to_security: ToSecurity,
) -> None:
    """Move messages of a queue or a topic to another. FROM is rid of each message once TO has acknowledged it.

    Messages of a queue are confirmed; the move is a consumer, and has the part of the messages that a consumer of
    priority 0 has. A topic keeps its messages: they are moved for a group, `?group=GROUP`, whose offsets are committed.
    The order is that of `bmqctl copy`.

    Examples:

        bmqctl move bmq://my.domain/orders bmq://my.domain/orders-again --dry-run

        bmqctl move bmq://my.domain/orders bmq://my.domain/large -e 'amount > 100' --yes

        bmqctl move 'bmq://my.domain/orders?id=audit' 'rocketmq://127.0.0.1:9876/orders?key=customer' --yes

        bmqctl move 'rocketmq://127.0.0.1:9876/orders?group=billing' bmq://my.domain/orders --count 1000 --yes

    Nothing is lost if the command or a broker is killed. Messages that TO had acknowledged, and FROM had not yet
    forgotten, are moved again by the next run: at most those of --window. A queue of BlazingMQ leaves them out for its
    domain's deduplicationTimeMs; a topic has them twice, with the same unique id, or from a queue with the same
    property bmq_guid.

    Exit codes: 0 all messages were moved; 1 some were not: refused, or a broker did not answer; 2 it cannot begin, or
    you do not say yes; 130 it was interrupted.
    """
    options = CarryOptions(True, expression, None, count, until_idle, patience, window)
    reach = security.reach("move")
    to_reach = to_security.reach("move")
    places = _Places(source, destination, broker, to_broker, reach, to_reach)
    _carry("move", places, options, only_list, yes, wanted_format(output, as_json))


def _carry(
    command: str, places: _Places, options: CarryOptions, only_list: bool, is_sure: bool, wanted: OutputFormat
) -> None:
    """Carry messages, or say what there is, and exit with the code that the end deserves."""
    from bmqctl.carrying.moving.run import carry, check, rehearse, waiting

    started = time.monotonic()
    try:
        source, destination = _ends(places)
        check(source, destination, options)
    except CannotBegin as fault:
        refuse(command, str(fault))
    names = {"from": str(source.end), "to": str(destination.end)}
    if only_list:
        _show_contents(command, run(command, partial(rehearse, source, destination, options)), options, names, wanted)
        return
    total = run(command, partial(waiting, source, options))
    if total is not None and options.count_max is not None:
        total = min(total, options.count_max)
    if not is_sure:
        _ask(command, total, options.expression, names)
    with LateProgress(f"{command} of messages") as progress:
        shown = (lambda done: progress(done, max(done, total))) if total else (lambda done: None)
        carried = run(command, partial(carry, source, destination, options, partial(say, command), shown))
    _show_carried(command, carried, names, time.monotonic() - started, wanted)


def _ends(places: _Places) -> tuple[At, At]:
    """Parse both ends. Raises `CannotBegin`.

    TO is reached as FROM is, if its broker or nameserver is the same.
    """
    from bmqctl.carrying.moving.run import At

    source = open_end(places.source, places.broker, "")
    destination = open_end(places.destination, places.to_broker or places.broker, PRODUCERS)
    if places.to_broker is not None and destination.names_broker:
        raise CannotBegin(f"--to-broker is for a queue of BlazingMQ, and TO is {destination}")
    is_same = (type(source), source.host, source.port) == (type(destination), destination.host, destination.port)
    own = (places.to_reach.authority, places.to_reach.mechanism, places.to_reach.data)
    return At(source, places.reach), At(destination, places.reach if is_same and not any(own) else places.to_reach)


def _ask(command: str, total: int | None, expression: str | None, names: Mapping[str, str]) -> None:
    what = "the messages" if total is None else _counted(total)
    if expression is not None:
        what = f"those that match {expression!r} of {what}"
    question = f"{command.capitalize()} {what} from {names['from']} to {names['to']}?"
    ask(command, question, "nothing is changed")


def _counted(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"


def _show_contents(
    command: str, found: SourceContents, options: CarryOptions, names: Mapping[str, str], wanted: OutputFormat
) -> None:
    is_selected = options.expression is not None and names["from"].startswith("bmq://")
    count = found.messages if options.count_max is None else min(found.messages, options.count_max)
    facts: dict[str, Any] = {
        **names,
        "dry_run": True,
        "messages": count,
        "bytes": found.size_bytes if count == found.messages else None,
        "oldest_at": found.oldest_at,
        "unfit": sum(found.unfit.values()),
        "unfit_by_reason": found.unfit,
        "expression_applied": not is_selected,
    }
    if wanted is not OutputFormat.TABLE:
        _print_facts(facts, wanted)
        return
    size = "" if facts["bytes"] is None else f", {found.size_bytes:,} bytes"
    oldest = f", the oldest of {found.oldest_at}" if found.oldest_at else ""
    done = {"copy": "copied", "move": "moved"}[command]
    with until_reader_leaves():
        print(f"{_counted(count)}{size}{oldest}, would be {done} from {names['from']} to {names['to']}")
        if is_selected:
            print(f"    of them those that match {options.expression!r}: a broker lists messages without properties")
        for reason, number in sorted(found.unfit.items()):
            print(f"    {number:,} more cannot be: {reason}")


def _show_carried(
    command: str, carried: Carried, names: Mapping[str, str], elapsed_s: float, wanted: OutputFormat
) -> None:
    account = carried.account
    if carried.ended_by:
        say(command, carried.ended_by)
    facts = {
        **names,
        "dry_run": False,
        "messages": account.delivered,
        "bytes": account.size_bytes,
        "refused": account.refused.total(),
        "refused_by_reason": dict(account.refused),
        "repeated": account.repeated,
        "missing": account.missing,
        "ended_by": carried.ended_by or None,
        "interrupted": carried.is_interrupted,
        "elapsed_s": round(elapsed_s, 3),
    }
    if wanted is not OutputFormat.TABLE:
        _print_facts(facts, wanted)
    else:
        done = {"copy": "copied", "move": "moved"}[command]
        with until_reader_leaves():
            print(f"{_counted(account.delivered)} {done}, {account.size_bytes:,} bytes, in {elapsed_s:.1f} s")
            if account.repeated:
                print(f"    {account.repeated:,} times one was sent again: {names['to']} may have it twice")
            for reason, number in sorted(account.refused.items()):
                print(f"    {number:,} refused, and still at {names['from']}: {reason}")
    if account.missing:
        say(command, f"{_counted(account.missing)} of {names['from']} missing: its broker passes over these offsets")
    if carried.ended_by or account.refused or account.missing:
        raise typer.Exit(EXIT_FAULTS)
    if carried.is_interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


def _print_facts(facts: Mapping[str, Any], wanted: OutputFormat) -> None:
    with until_reader_leaves():
        if wanted is OutputFormat.JSON:
            print(json.dumps(facts, indent=2))
        else:
            print_values([facts], list(facts), wanted)
