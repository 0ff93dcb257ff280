"""The options of `spark.readStream.format("bmq")`, `df.writeStream.format("bmq")` and `df.write.format("bmq")`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bmqctl.client.address import BadAddress, parse_address
from bmqctl.client.arguments import INT_MAX
from bmqctl.client.posting import PostingOptions
from bmqctl.client.protocol.authentication import Credentials
from bmqctl.client.protocol.events import PRIORITY_MAX
from bmqctl.client.session import SessionOptions
from bmqctl.pipeline.source.options import BadOption
from formats.bmq.uri import parse_uri
from formats.errors import FormatError

__all__ = ["Broker", "ConsumeOptions", "PostOptions", "check_uri"]

_BROKER = ("broker", "queue", "timeoutSeconds", "tlsAuthority", "authnMechanism", "authnData")
_CONSUME = (
    "maxUnconfirmed",
    "maxUnconfirmedBytes",
    "maxMessagesPerBatch",
    "partitions",
    "expression",
    "priority",
    "drainSeconds",
)
_POST = ("compression", "window", "patienceSeconds")


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker's address, and the options of its session."""

    host: str
    port: int
    session: SessionOptions


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """Options of consuming. `batch` limits the messages of a micro-batch, `partitions` its tasks.

    With the trigger `availableNow` a query ends when no message has come for `drain_s` seconds.
    """

    broker: Broker
    queue: str
    max_unconfirmed: int
    max_unconfirmed_bytes: int
    batch: int
    partitions: int
    expression: str | None
    priority: int
    drain_s: float

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ConsumeOptions:
        """Parse a reader's options, whose names are case-insensitive. Raises BadOption."""
        given = _given(options, (*_BROKER, *_CONSUME))
        if "queue" not in given:
            raise BadOption("queue: name the queue to consume, such as bmq://domain/queue, for fan-out with ?id=app")
        max_unconfirmed = _whole(given, "maxUnconfirmed", 10_000)
        return cls(
            _broker(given),
            check_uri(given["queue"]),
            max_unconfirmed,
            _whole(given, "maxUnconfirmedBytes", 64 << 20),
            # Half of them, so that the next batch arrives while one is processed.
            _whole(given, "maxMessagesPerBatch", max(1, max_unconfirmed // 2)),
            _whole(given, "partitions", 2),
            given.get("expression"),
            _whole(given, "priority", 0, 0, PRIORITY_MAX),
            _seconds(given, "drainSeconds", 1.0),
        )


@dataclass(frozen=True, slots=True)
class PostOptions:
    """Options of posting: to `queue` or, if None, to each row's `queue_uri`."""

    broker: Broker
    queue: str | None
    compress: bool
    posting: PostingOptions

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> PostOptions:
        """Parse a writer's options, whose names are case-insensitive. Raises BadOption."""
        # Spark adds these two to a stream's options.
        given = _given(options, (*_BROKER, *_POST), ignored=("checkpointlocation", "path"))
        queue = given.get("queue")
        if queue is not None and parse_uri(check_uri(queue)).app_id:
            raise BadOption(f"queue: {queue}: messages are posted to a queue, not to one of its apps")
        compression = given.get("compression", "none").lower()
        if compression not in ("none", "zlib"):
            raise BadOption(f"compression: {compression} is none of none, zlib")
        posting = PostingOptions(_whole(given, "window", 4096), _seconds(given, "patienceSeconds", 30.0))
        return cls(_broker(given), queue, compression == "zlib", posting)


def check_uri(uri: str) -> str:
    """Return `uri`. Raises BadOption if it is not a queue's URI."""
    try:
        parse_uri(uri)
    except FormatError as error:
        raise BadOption(f"queue: {uri}: {error.reason}") from None
    return uri


def _given(options: Mapping[str, str], names: tuple[str, ...], ignored: tuple[str, ...] = ()) -> dict[str, str]:
    known = {name.lower(): name for name in names}
    given = {name.lower(): value for name, value in options.items() if name.lower() not in ignored}
    unknown = sorted(given.keys() - known)
    if unknown:
        raise BadOption(f"{unknown[0]}: unknown option; the options of a queue are {', '.join(names)}")
    return {known[name].lower(): value for name, value in given.items()}


def _broker(given: Mapping[str, str]) -> Broker:
    address = given.get("broker", "tcp://localhost:30114")
    try:
        host, port = parse_address(address)
    except BadAddress:
        raise BadOption(f"broker: {address}: expected tcp://HOST:PORT") from None
    mechanism, authority = given.get("authnmechanism"), given.get("tlsauthority")
    session = SessionOptions(
        timeout_s=_seconds(given, "timeoutSeconds", 10.0),
        process_name="bmqctl spark",
        resume=True,
        credentials=Credentials(mechanism, given.get("authndata", "").encode()) if mechanism else None,
        tls_authority=Path(authority) if authority else None,
    )
    return Broker(host, port, session)


def _whole(given: Mapping[str, str], name: str, default: int, least: int = 1, most: int = INT_MAX) -> int:
    text = given.get(name.lower())
    if text is None:
        return default
    if not text.isdecimal() or not least <= int(text) <= most:
        raise BadOption(f"{name}: {text} is not a number of at least {least} and at most {most}")
    return int(text)


def _seconds(given: Mapping[str, str], name: str, default: float) -> float:
    text = given.get(name.lower())
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise BadOption(f"{name}: {text} is not a number of seconds")
    return value
