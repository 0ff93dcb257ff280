"""The commands of the interactive mode and their arguments (source: `bmqtoolcmd.xsd`)."""

from __future__ import annotations

from dataclasses import dataclass

from bmqctl.cli.tool.grammar import CommandError
from bmqctl.client.protocol.events import StreamOptions, StreamSubscription
from formats.bmq.wire.properties import Property, PropertyType

__all__ = [
    "COMMANDS",
    "HELP",
    "BatchPost",
    "CloseQueue",
    "Command",
    "ConfigureQueue",
    "Confirm",
    "ListMessages",
    "LoadPost",
    "MessageProperty",
    "OpenQueue",
    "Post",
    "Start",
    "Stop",
    "Subscription",
    "parse_flags",
    "properties_of",
    "stream_options",
    "subscription_faults",
    "subscriptions_of",
]

MAX_UNCONFIRMED_MESSAGES = 1024
MAX_UNCONFIRMED_BYTES = 33554432
_INT32 = 1 << 31
_FLAGS = ("admin", "read", "write", "ack")


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription; fields that are None are as in the enclosing command."""

    correlation_id: int | None = None
    expression: str | None = None
    max_unconfirmed_messages: int | None = None
    max_unconfirmed_bytes: int | None = None
    consumer_priority: int | None = None


@dataclass(frozen=True, slots=True)
class MessageProperty:
    """A message property; `type` is E_STRING or E_INT, and the value is a string in either case."""

    name: str = ""
    value: str = ""
    type: str = "E_STRING"


@dataclass(frozen=True, slots=True)
class Start:
    async_: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    async_: bool = False


@dataclass(frozen=True, slots=True)
class OpenQueue:
    uri: str = ""
    flags: str = ""
    async_: bool = False
    max_unconfirmed_messages: int = MAX_UNCONFIRMED_MESSAGES
    max_unconfirmed_bytes: int = MAX_UNCONFIRMED_BYTES
    consumer_priority: int = 0
    subscriptions: tuple[Subscription, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigureQueue:
    uri: str = ""
    async_: bool = False
    max_unconfirmed_messages: int = MAX_UNCONFIRMED_MESSAGES
    max_unconfirmed_bytes: int = MAX_UNCONFIRMED_BYTES
    consumer_priority: int = 0
    subscriptions: tuple[Subscription, ...] = ()


@dataclass(frozen=True, slots=True)
class CloseQueue:
    uri: str = ""
    async_: bool = False


@dataclass(frozen=True, slots=True)
class Post:
    uri: str = ""
    payload: tuple[str, ...] = ()
    async_: bool = False
    compression_algorithm_type: str = "none"
    message_properties: tuple[MessageProperty, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadPost:
    uri: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True)
class ListMessages:
    uri: str | None = None


@dataclass(frozen=True, slots=True)
class Confirm:
    uri: str = ""
    guid: str = ""


@dataclass(frozen=True, slots=True)
class BatchPost:
    """The command `batch-post`; `post_interval` is in milliseconds, `events_count` 0 is unlimited."""

    uri: str = ""
    payload: tuple[str, ...] = ()
    msg_size: int = 1024
    event_size: int = 1
    events_count: int = 0
    post_interval: int = 1000
    post_rate: int = 1
    auto_incremented: str = ""


Command = Start | Stop | OpenQueue | ConfigureQueue | CloseQueue | Post | LoadPost | ListMessages | Confirm | BatchPost

COMMANDS: dict[str, type[Command]] = {
    "start": Start,
    "stop": Stop,
    "open": OpenQueue,
    "configure": ConfigureQueue,
    "close": CloseQueue,
    "post": Post,
    "load-post": LoadPost,
    "list": ListMessages,
    "confirm": Confirm,
    "batch-post": BatchPost,
}

_SUBSCRIPTIONS = (
    '(subscriptions=[{"expression": "", ("correlationId": u), ("maxUnconfirmedMessages": v), '
    '("maxUnconfirmedBytes": w), ("consumerPriority": p)}])'
)
_LIMITS = "(maxUnconfirmedMessages=x) (maxUnconfirmedBytes=y) (consumerPriority=z)"

HELP = f"""
Commands:
  start (async=true)
  stop (async=true)
  open uri="" flags="" (async=true) {_LIMITS}
    {_SUBSCRIPTIONS}
  configure uri="" (async=true) {_LIMITS}
    {_SUBSCRIPTIONS}
  close uri="" (async=true)
  post uri="" payload=["",""] (async=true) (compressionAlgorithmType=[NONE|ZLIB])
    (messageProperties=[{{"name": "", "value": "", "type": ""}}])
  batch-post uri="" (payload=["",""]) (msgSize=u) (eventSize=v) (eventsCount=w) (postInterval=x) (postRate=y) \
(autoIncremented="field")
  load-post uri="" file=""
  list (uri="")
  confirm uri="" guid="" ('*' for all, '+/-n' for oldest/latest 'n')
  help
  bye

Examples:
  open uri="bmq://bmq.test.persistent.priority/orders" flags="read,write,ack"
  open uri="bmq://bmq.test.persistent.priority/orders" flags="read" subscriptions=[{{"expression": "x > 0"}}]
  post uri="bmq://bmq.test.persistent.priority/orders" payload=["one", "two"] \
messageProperties=[{{"name": "x", "value": "10", "type": "E_INT"}}]
  batch-post uri="bmq://bmq.test.persistent.priority/orders" eventsCount=300 postInterval=5000 postRate=10
  confirm uri="bmq://bmq.test.persistent.priority/orders" guid="*"
"""


def parse_flags(text: str) -> frozenset[str]:
    """Parse a queue's flags, separated by commas. Raises `CommandError`, which names unknown ones."""
    flags = [flag.lower() for flag in text.split(",") if flag]
    wrong = [f"'{flag}'" for flag in flags if flag not in _FLAGS]
    if wrong:
        raise CommandError(f"Invalid flag(s) {','.join(wrong)}")
    return frozenset(flags)


def properties_of(wanted: tuple[MessageProperty, ...]) -> list[Property]:
    """Convert the properties to post. Raises `CommandError` if a value is not of its type."""
    made = {}
    for each in wanted:
        if each.type == "E_STRING":
            made[each.name] = Property(each.name, PropertyType.STRING, each.value)
        elif each.type == "E_INT":
            made[each.name] = Property(each.name, PropertyType.INT32, _int32(each.value))
        else:
            raise CommandError(f"'{each.type}' is no type of a property: E_STRING or E_INT")
    return list(made.values())


def _int32(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise CommandError(f"'{text}' is no integer") from None
    if not -_INT32 <= value < _INT32:
        raise CommandError(f"{value} does not fit 32 bits")
    return value


def stream_options(command: OpenQueue | ConfigureQueue) -> StreamOptions:
    return StreamOptions(
        max_unconfirmed_messages=command.max_unconfirmed_messages,
        max_unconfirmed_bytes=command.max_unconfirmed_bytes,
        priority=command.consumer_priority,
        subscriptions=subscriptions_of(command.subscriptions),
    )


def subscriptions_of(wanted: tuple[Subscription, ...]) -> tuple[StreamSubscription, ...]:
    return tuple(
        StreamSubscription(
            expression=each.expression,
            max_unconfirmed_messages=each.max_unconfirmed_messages,
            max_unconfirmed_bytes=each.max_unconfirmed_bytes,
            priority=each.consumer_priority,
            correlation=each.correlation_id,
        )
        for each in wanted
    )


def subscription_faults(wanted: tuple[Subscription, ...]) -> list[str]:
    """Check expressions locally; return the errors of those that no broker could compile."""
    # Few sessions have expressions, and their grammar is slow to load.
    from formats.bmq.expressions import ExpressionError, compile_expression

    faults = []
    for expression in (each.expression for each in wanted if each.expression is not None):
        try:
            compile_expression(expression)
        except ExpressionError as error:
            faults.append(f'Expression validation failed: [ expression: "{expression}", reason: "{error}" ]')
    return faults
