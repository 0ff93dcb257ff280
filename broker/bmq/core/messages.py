# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Messages of queues, and the interfaces of their storage and their recipients."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

from formats.bmq.disk.journal import ConfirmReason, DeletionRecordFlag
from formats.bmq.disk.keys import NULL_KEY

__all__ = [
    "DUPLICATE",
    "KEPT",
    "NO_PLACE",
    "PENDING",
    "Buffer",
    "Content",
    "Full",
    "Held",
    "Log",
    "Message",
    "MessagePoster",
    "Posted",
    "Sink",
    "Unrecorded",
    "content_of",
    "message_of",
]

Buffer = bytes | memoryview


class Content(NamedTuple):
    """The content of a post: `data` is properties and payload as received, possibly compressed.

    `schema_id` is the wire form (see `SchemaMultiplexer`); `data` may be a view that is only valid now.
    """

    data: Buffer
    crc32c: int
    compression: int
    has_properties: bool
    schema_id: int
    options: Buffer = b""


# The `Message.offset` of a message that came out of order from a relay's upstream.
NO_PLACE: Final = -1


class Message:
    """One stored message. `offset` is its place in its log, and sorts messages by age.

    At a relay, `offset` is the order of arrival, or `NO_PLACE`. `arrived_ms` is by the monotonic clock (`Now.ms`), even
    for a message that an earlier process took.
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

    def __init__(
        self,
        guid: bytes,
        size: int,
        checksum: int,
        compression: int,
        has_properties: bool,
        schema_id: int,
        outstanding: int,
        arrived_ms: int = 0,
    ) -> None:
        self.guid = guid
        self.size = size
        self.checksum = checksum
        self.compression = compression
        self.has_properties = has_properties
        self.schema_id = schema_id
        self.outstanding = outstanding  # bits of the apps that have yet to confirm
        self.arrived_ms = arrived_ms
        self.sent_ms = arrived_ms  # time of its last delivery to a consumer
        self.offset = 0
        self.payload: bytes | None = None  # only if the log keeps no bytes itself


def message_of(guid: bytes, size: int, content: Content, outstanding: int, arrived_ms: int = 0) -> Message:
    """Return the message of a post's content; `size` is that of its data, which `content` may lack."""
    return Message(
        guid,
        size,
        content.crc32c,
        content.compression,
        content.has_properties,
        content.schema_id,
        outstanding,
        arrived_ms,
    )


def content_of(message: Message, data: Buffer, options: Buffer) -> Content:
    return Content(data, message.checksum, message.compression, message.has_properties, message.schema_id, options)


class Full(Exception):
    """Rejection of a message by a limit: `status` is the name of the NACK, the text is for the log."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Held(Exception):
    """Notice that the log takes no messages at present; see `Log.when_open`."""


class Posted(Enum):
    """The result of a post that was not refused."""

    KEPT = "kept"
    DUPLICATE = "stored before"
    PENDING = "stored here, not yet by enough replicas"


# A lookup of an enumeration's member costs more than comparing it.
KEPT, DUPLICATE, PENDING = Posted.KEPT, Posted.DUPLICATE, Posted.PENDING


class MessagePoster(Protocol):
    """The poster of a message, which gets the result later."""

    def acknowledge(self, queue_id: int, correlation_id: int, guid: bytes, status: int) -> None:
        """Report the result of a post; `status` is an `AckStatus`, 0 when the message is kept."""
        ...

    def acknowledge_kept(self, queue_id: int, correlation_id: int, guids: Sequence[bytes]) -> None: ...

    def fail(self, error: Exception) -> None:
        """Report a failure to acknowledge: the poster's session ends after the current step."""
        ...


class Log(Protocol):
    """The storage of a queue's messages.

    `append` raises `Full`, having written nothing, when no more fits, and `Held` when it cannot write now. It reserves
    room for the later records of the message, so the other methods cannot fail.
    """

    @property
    def wants_copies(self) -> bool:
        """True if a message can wait until other nodes have replicated it, too."""
        ...

    @property
    def is_cut_off(self) -> bool:
        """True if too few nodes can be reached: messages wait for replicas, lest only this node has them."""
        ...

    @property
    def is_replicated(self) -> bool:
        """True if the other members of a cluster have the messages in their own stores."""
        ...

    def when_copied(self, messages: Sequence[Message], action: Callable[[Sequence[Message]], None]) -> None:
        """Call `action` once enough nodes have the messages of the last `append`; in the order of the calls.

        Consecutive messages with the same action, the very same object, may be given to it together.
        """
        ...

    def append(
        self,
        messages: Sequence[Message],
        payloads: Sequence[Buffer],
        options: Buffer,
        ref_count: int,
        auto_confirms: Sequence[bytes] = (),
    ) -> bool:
        """Store messages that `ref_count` apps want; `auto_confirms` has the keys of apps that never will.

        Only a single message may have options. Return False, without effect, if several have to be stored one by one.
        """
        ...

    def settle(
        self, messages: Sequence[Message], app_key: bytes, reason: ConfirmReason = ConfirmReason.CONFIRMED
    ) -> None:
        """Record that an app is done with messages: a confirm, or the removal of one that no app wants any more."""
        ...

    def remove(self, message: Message, flag: DeletionRecordFlag = DeletionRecordFlag.NONE) -> None: ...

    def purge(self, app_key: bytes = NULL_KEY, first: Message | None = None, awaiting: Container[bytes] = ()) -> None:
        """Record a purge of all messages, or of one app's messages from its `first` on. Raises `Full`, without effect.

        Messages `awaiting` replicas were never delivered. For a purge of all, `first` is the first of them, if any:
        later messages wait as well, were never acknowledged, and may be posted again.
        """
        ...

    def holds(self, messages: Mapping[bytes, Message]) -> None: ...

    def when_open(self, post: Callable[[], None], size: int) -> None:
        """Call `post` once messages are taken again, in the order of the calls. Raises `Full` if too many wait."""
        ...

    @property
    def is_copying(self) -> bool:
        """Return True if purged messages are still being copied by a rollover that began before."""
        ...

    @property
    def is_rolling_over(self) -> bool:
        """Return True during a rollover, which asks for every message, and changes its offset."""
        ...

    def begin_purge(self, task: Iterator[None]) -> None: ...

    def release(self, records: int) -> None:
        """Release the room of `records` confirms and removals, which a purge has made superfluous."""
        ...

    def read(self, message: Message) -> Buffer:
        """Return a message's data; the view is valid until the next step."""
        ...

    def read_sound(self, message: Message) -> Buffer | None:
        """Return a message's data like `read`; None, while it is sought elsewhere, if its checksum is wrong."""
        ...

    def awaits_payload(self, message: Message) -> bool:
        """Return True if unsound data may soon be restored."""
        ...


class Unrecorded:
    """The part of a `Log` that logs without files share: nothing is recorded, and nothing waits."""

    wants_copies = False
    is_cut_off = False
    is_replicated = False
    is_copying = False
    is_rolling_over = False

    def when_copied(self, messages: Sequence[Message], action: Callable[[Sequence[Message]], None]) -> None:
        raise AssertionError("messages without files have no copies")

    def settle(
        self, messages: Sequence[Message], app_key: bytes, reason: ConfirmReason = ConfirmReason.CONFIRMED
    ) -> None:
        """Record nothing."""

    def remove(self, message: Message, flag: DeletionRecordFlag = DeletionRecordFlag.NONE) -> None:
        """Record nothing."""

    def purge(self, app_key: bytes = NULL_KEY, first: Message | None = None, awaiting: Container[bytes] = ()) -> None:
        """Record nothing."""

    def holds(self, messages: Mapping[bytes, Message]) -> None:
        """Note nothing."""

    def when_open(self, post: Callable[[], None], size: int) -> None:
        raise AssertionError("messages without files never wait")

    def begin_purge(self, task: Iterator[None]) -> None:
        """Leave the task alone: there are no files."""

    def release(self, records: int) -> None:
        """Release nothing: nothing was reserved."""

    def awaits_payload(self, message: Message) -> bool:
        return False


class Sink(Protocol):
    """The consumer's side of a link.

    `has_room` is False while too much waits to be sent. `ready` is then False too, and when this node is about to stop:
    the consumer gets no messages that need confirms.
    """

    ready: bool
    has_room: bool

    @property
    def takes_all(self) -> bool:
        """True if it is a broker, which passes broadcast messages to its own consumers."""
        ...

    @property
    def description(self) -> str: ...

    def push(self, queue_id: int, message: Message, data: Buffer, subscription_id: int, schema_id: int) -> None: ...

    def takes_run(self, size: int) -> bool:
        """Return True if `push_run` may be used now for messages of `size` bytes together."""
        ...

    def push_run(
        self, queue_id: int, messages: Sequence[Message], payloads: Sequence[Buffer], subscription_id: int
    ) -> None:
        """Push several messages like `push`, all of them without schemas of properties."""
        ...

    def fail(self, error: Exception) -> None:
        """Report a failed push: its session ends after the current step, and its messages go to others."""
        ...
