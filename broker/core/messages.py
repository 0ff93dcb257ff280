"""What a queue holds and what it asks of the world: messages, the log that keeps them, the sinks that take them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from formats.disk.journal import ConfirmReason, DeletionRecordFlag
from formats.disk.keys import NULL_KEY

__all__ = [
    "DUPLICATE",
    "KEPT",
    "PENDING",
    "Buffer",
    "Content",
    "Full",
    "Held",
    "Log",
    "Message",
    "Posted",
    "Poster",
    "Sink",
]

Buffer = bytes | memoryview


class Content(NamedTuple):
    """What a producer posted: `data` is properties and payload as they came, maybe compressed.

    `schema_id` is the wire form (see `SchemaMultiplexer`); `data` may be a view that is only valid now.
    """

    data: Buffer
    crc32c: int
    compression: int
    has_properties: bool
    schema_id: int
    options: Buffer = b""


class Message:
    """One stored message. `offset` is where its log has it: it grows from message to message, so it sorts them.

    `arrived_ms` is of the monotonic clock (`Now.ms`), also for a message that an earlier process took.
    """

    __slots__ = (
        "arrived_ms",
        "checksum",
        "compression",
        "guid",
        "has_properties",
        "offset",
        "outstanding",
        "payload",
        "schema_id",
        "sent_ms",
        "size",
    )

    def __init__(self, guid: bytes, size: int, content: Content, outstanding: int, arrived_ms: int = 0) -> None:
        self.guid = guid
        self.size = size
        self.checksum = content.crc32c
        self.compression = content.compression
        self.has_properties = content.has_properties
        self.schema_id = content.schema_id
        self.outstanding = outstanding  # bits of the apps that have yet to confirm
        self.arrived_ms = arrived_ms
        self.sent_ms = arrived_ms  # when it last went to a consumer
        self.offset = 0
        self.payload: bytes | None = None  # only where the log keeps no bytes itself


class Full(Exception):
    """A limit stands against a message: `status` is the name of the NACK, the text is for the log."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Held(Exception):
    """The log takes no messages for now, and will again: see `Log.when_open`."""


class Posted(Enum):
    """What became of a post that was not refused."""

    KEPT = "kept"
    DUPLICATE = "kept before"
    PENDING = "kept here, not yet by enough others"


# Looking up a member of an enumeration costs more than comparing it.
KEPT, DUPLICATE, PENDING = Posted.KEPT, Posted.DUPLICATE, Posted.PENDING


class Poster(Protocol):
    """Who posted a message, and is told later what became of it."""

    def acknowledge(self, queue_id: int, correlation_id: int, guid: bytes, status: int) -> None:
        """`status` is an `AckStatus`, 0 when the message is kept."""
        ...

    def acknowledge_kept(self, queue_id: int, correlation_id: int, guids: Sequence[bytes]) -> None:
        """Several messages are kept."""
        ...

    def fail(self, error: Exception) -> None:
        """Telling it has failed: its session is to end, once the step that told it is over."""
        ...


class Log(Protocol):
    """Where a queue's messages are kept.

    `append` raises `Full`, having written nothing, when it cannot keep one more, and `Held` when it cannot now; room
    for what becomes of a message is set aside with it, so that the others cannot fail.
    """

    @property
    def has_copies(self) -> bool:
        """Return whether other nodes keep what is appended, too, so that a message can wait for them."""
        ...

    @property
    def is_cut_off(self) -> bool:
        """Return whether too few nodes can be reached: messages wait for copies, lest only this one has them."""
        ...

    @property
    def is_replicated(self) -> bool:
        """Return whether the other members of a cluster have the messages in their own stores."""
        ...

    def when_copied(self, message: Message, action: Callable[[Message], None]) -> None:
        """Call `action` once enough nodes have the message, which was appended just now; in the order of the calls."""
        ...

    def append(self, message: Message, content: Content, ref_count: int, auto_confirms: Sequence[bytes] = ()) -> None:
        """Keep a message that `ref_count` apps want; `auto_confirms` are the keys of those that never will."""
        ...

    def confirm(self, message: Message, app_key: bytes, reason: ConfirmReason = ConfirmReason.CONFIRMED) -> None:
        """One app is done with it, others are not."""
        ...

    def remove(self, message: Message, flag: DeletionRecordFlag = DeletionRecordFlag.NONE) -> None:
        """Nobody wants it any longer."""
        ...

    def purge(self, app_key: bytes = NULL_KEY, first: Message | None = None, awaiting: Container[bytes] = ()) -> None:
        """All messages, or all of one app from its `first` on, are removed; raises `Full`, having written nothing.

        Those that are `awaiting` copies nobody has had. Of a purge of all, `first` is the first of them, if there are
        any: all behind it wait as well, were never acknowledged, and may be posted again.
        """
        ...

    def holds(self, messages: Mapping[bytes, Message]) -> None:
        """These are the queue's messages from now on: they are others, not some more or less."""
        ...

    def when_open(self, post: Callable[[], None], size: int) -> None:
        """Call `post` once messages are taken again, in the order of the calls. `Full` if too many bytes wait."""
        ...

    @property
    def is_copying(self) -> bool:
        """Return whether messages that a purge has removed are still being copied, as a rollover began before."""
        ...

    def begin_purge(self, task: Iterator[None]) -> None:
        """Messages have yet to be removed that a purge has recorded: `task` removes them, slice by slice."""
        ...

    def release(self, records: int) -> None:
        """A purge has made so many confirms and removals superfluous: the room set aside for them is free."""
        ...

    def read(self, message: Message) -> Buffer:
        """Its data; the view is valid until the next step."""
        ...

    def read_sound(self, message: Message) -> Buffer | None:
        """Its data, as `read`; None, and it is looked for elsewhere, if it is not what its checksum says."""
        ...

    def awaits_payload(self, message: Message) -> bool:
        """Return whether data that is not sound may soon be."""
        ...


class Sink(Protocol):
    """A consumer's side of a link. `ready` is False while more than enough waits to be sent."""

    ready: bool

    @property
    def takes_all(self) -> bool:
        """Return whether it is a broker, which hands broadcast messages to its own consumers."""
        ...

    @property
    def description(self) -> str:
        """Who it is, for people."""
        ...

    def push(self, queue_id: int, message: Message, data: Buffer, subscription_id: int, schema_id: int) -> None: ...

    def fail(self, error: Exception) -> None:
        """A push has failed: its session is to end, once the step that pushed is over. What it has goes to others."""
        ...
