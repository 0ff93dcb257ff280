"""Queues of BlazingMQ, as sources and destinations of messages."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from bmqctl.carrying.bridge.blazingmq_ends import (
    BlazingDestination,
    BlazingSource,
    Confirming,
    Keeping,
    Make,
)
from bmqctl.carrying.bridge.carrying import CannotBegin
from bmqctl.carrying.bridge.ends import BadBridge, BlazingEnd
from bmqctl.carrying.bridge.making import BridgeEnd, Carriage, Means
from bmqctl.carrying.bridge.rocketmq_source import MakeOfRecord, for_queue
from bmqctl.carrying.messages.browsing import Browsed, BrowseOptions, FindOptions, Shown
from bmqctl.carrying.messages.content import BadInput, Outgoing
from bmqctl.carrying.messages.ends import Reach, check_authority
from bmqctl.carrying.messages.listing import Listed, Listing, contents_command, list_messages, read_contents
from bmqctl.carrying.messages.received import QUEUE_PLACE, Received, of_queue
from bmqctl.carrying.messages.tailing import TailOptions
from bmqctl.carrying.moving.forms import for_other_queue, for_queue_of_run
from bmqctl.carrying.moving.holding import Holding
from bmqctl.carrying.moving.run import SourceContents
from bmqctl.carrying.options import CarryOptions, PostOptions
from bmqctl.client import (
    Change,
    Credentials,
    Message,
    PostFailed,
    PostUncertain,
    Queue,
    Session,
    Subscription,
    connect,
)
from bmqctl.client.address import BadAddress, parse_address
from bmqctl.client.admin import AdminClient, AdminLost
from bmqctl.client.protocol.events import StreamOptions, StreamSubscription
from bmqctl.client.queue import check_subscriptions
from bmqctl.client.session import SessionOptions
from bmqctl.systems.blazingmq.status.asking import Asking, Refused, ask_for, endpoint_parts
from bmqctl.systems.blazingmq.status.contents import contents_of, waiting_of
from bmqctl.systems.blazingmq.status.queues import UnknownApp, check_app, primary_of
from formats.addresses import shown_place
from formats.bmq.uri import QueueUri, parse_uri
from formats.errors import FormatError

if TYPE_CHECKING:
    from bmqctl.carrying.replay.post import QueueReplay
    from bmqctl.systems.explaining.cause import Cause
    from formats.bmq.expressions import Values

__all__ = ["QueueEnd"]

T = TypeVar("T")

log = logging.getLogger("bmqctl.carrying.messages")


class QueueEnd(BlazingEnd):
    """A queue of BlazingMQ, or one of its apps, and its broker."""

    __slots__ = ()

    # A queue has one order, its URI does not name its broker, and no property spreads it.
    has_queues: Final = False
    names_broker: Final = False
    key: Final = ""
    columns: Final = QUEUE_PLACE

    @classmethod
    def parse(cls, text: str, broker: str) -> QueueEnd:
        """Parse `bmq://DOMAIN/QUEUE[?id=APP]`, of a broker. Raises `BadBridge`."""
        try:
            host, port = parse_address(broker)
            return cls(host, port, str(parse_uri(text)))
        except FormatError as fault:
            raise BadBridge(f"{text}: {fault.reason}") from None
        except BadAddress as fault:
            raise BadBridge(str(fault)) from None

    # As an end of a bridge, a copy or a move

    @property
    def place(self) -> tuple[object, ...]:
        return self.host, self.port, parse_uri(self.uri)._replace(app_id="").canonical

    def check_posted_to(self) -> None:
        if parse_uri(self.uri).app_id:
            raise BadBridge(f"{self}: messages are posted to a queue, not to an app of it")

    def check_source(self, options: CarryOptions) -> None:
        if options.tags is not None:
            raise CannotBegin("--tags is for topics of RocketMQ: give --expression")
        try:
            check_subscriptions(_subscriptions(options))
        except ValueError as fault:
            raise CannotBegin(f"--expression: {fault}") from None

    def check_destination(self, has_queues: bool) -> None:
        self.check_posted_to()

    def is_consumed(self, options: CarryOptions) -> bool:
        return True

    def means(self, reach: Reach) -> Means:
        session = SessionOptions(
            timeout_s=reach.timeout_s,
            process_name=reach.name,
            credentials=_credentials(reach),
            tls_authority=check_authority(reach.authority),
        )
        return Means(session, timeout_s=reach.timeout_s, wait_s=0.0)

    def maker_of_messages(self, uri: str, salt: bytes) -> Make:
        return for_other_queue(uri, salt)

    def maker_of_records(self, salt: bytes) -> MakeOfRecord:
        return for_queue_of_run(salt) if salt else for_queue

    def source(self, to: BridgeEnd, lanes: int, carriage: Carriage) -> BlazingSource:
        make = to.maker_of_messages(self.uri, carriage.salt)
        return BlazingSource(
            self, carriage.means.session, _keeping(carriage), make, lanes, to.key, carriage.trying(self)
        )

    async def destination(self, has_queues: bool, carriage: Carriage) -> tuple[BlazingDestination, int]:
        return BlazingDestination(self, carriage.means.session, carriage.trying(self), carriage.tell), 1

    async def waiting(self, means: Means, options: CarryOptions) -> int | None:
        try:
            return await self._ask(waiting_of, means)
        except (AdminLost, Refused):
            return None

    async def contents(self, to: BridgeEnd, means: Means, options: CarryOptions) -> SourceContents:
        try:
            return SourceContents(*(await self._ask(contents_of, means)), {})
        except (AdminLost, Refused) as fault:
            raise CannotBegin(f"{self}: {fault}") from None

    async def _ask(self, question: Callable[[str, int, Asking, QueueUri], T], means: Means) -> T:
        """Ask the broker in a thread; `question` takes its host and port, the options, and the queue."""
        work = partial(question, self.host, self.port, _asking(means), parse_uri(self.uri))
        return await trio.to_thread.run_sync(work)

    # For the commands for messages

    @asynccontextmanager
    async def open_sink(self, reach: Reach, options: PostOptions) -> AsyncIterator[_QueueSink]:
        self.check_posted_to()
        async with self._session(reach, window=options.window) as session:
            yield _QueueSink(await session.open(self.uri, write=True), options.compress)

    @asynccontextmanager
    async def open_feed(self, reach: Reach, options: TailOptions) -> AsyncIterator[_QueueFeed]:
        if options.tags is not None or options.from_start or options.since is not None:
            raise CannotBegin(
                "--tags, --from-start and --since are for topics of RocketMQ: a queue hands out what it holds, the "
                "oldest first; `bmqctl find` looks at times"
            )
        wanted = [] if options.expression is None else [Subscription(options.expression)]
        async with self._session(reach) as session:
            queue = await session.open(
                self.uri, read=True, max_unconfirmed_messages=options.unconfirmed_max, subscriptions=wanted
            )
            if parse_uri(self.uri).app_id:
                # A broker opens a queue for an unknown app, and delivers nothing.
                try:
                    await self._ask(check_app, self.means(reach))
                except UnknownApp as fault:
                    raise CannotBegin(str(fault)) from None
            yield _QueueFeed(queue)

    async def browse(self, reach: Reach, options: BrowseOptions, shown: Shown) -> Browsed:
        means = self.means(reach)
        if not options.whole:
            connect = partial(_asking(means).client, self.host, self.port)
            listing = list_messages(connect, self.uri, options.offset or 0, options.count)
            shown.show_list(listing)
            return Browsed(len(listing.messages), 0, listing.total)
        try:
            listing, messages = await self._ask(partial(self._read, options), means)
        except (AdminLost, Refused) as fault:
            raise CannotBegin(f"{self.uri}: {fault}") from None
        for each in messages:
            if isinstance(each, str):
                shown.tell(each)
        found = [each for each in messages if not isinstance(each, str)]
        await shown.show(found)
        await shown.end(is_cut=False)
        return Browsed(len(found), len(messages) - len(found), listing.total)

    def _read(
        self, options: BrowseOptions, host: str, port: int, asking: Asking, queue: QueueUri
    ) -> tuple[Listing, list[Received | str]]:
        """Read messages at the queue's primary, or reasons for unreadable ones. Raises `AdminLost` or `Refused`."""
        place = _primary_place(host, port, asking, queue)
        listing = list_messages(partial(asking.client, *place), self.uri, options.offset or 0, options.count)
        with asking.client(*place) as client:
            return listing, [self._contents(client, each.guid) for each in listing.messages]

    async def find(self, reach: Reach, options: FindOptions, shown: Shown) -> Browsed:
        if options.key is not None or options.tags is not None:
            raise CannotBegin(
                "--key and --tags are for topics of RocketMQ: look for a property, such as --expression 'customer == "
                '"Ada"\''
            )
        # The grammar is a tenth of a second of imports.
        from formats.bmq.expressions import ExpressionError, compile_expression

        try:
            matches = None if options.expression is None else compile_expression(options.expression).matches
        except ExpressionError as fault:
            raise CannotBegin(f"--expression: {fault}") from None
        try:
            messages = await self._ask(partial(self._search, options, matches), self.means(reach))
        except (AdminLost, Refused) as fault:
            raise CannotBegin(f"{self.uri}: {fault}") from None
        found = [each for each in messages if not isinstance(each, str)]
        for each in messages:
            if isinstance(each, str):
                shown.tell(each)
        await shown.show(found)
        await shown.end(is_cut=False)
        return Browsed(len(found), len(messages) - len(found), 0)

    def _search(
        self,
        options: FindOptions,
        matches: Callable[[Values], bool] | None,
        host: str,
        port: int,
        asking: Asking,
        queue: QueueUri,
    ) -> list[Received | str]:
        """Search for messages at the queue's primary. Raises `AdminLost` or `Refused`."""
        found: list[Received | str] = []
        place = _primary_place(host, port, asking, queue)
        with asking.client(*place) as client:
            for each in self._listed(partial(asking.client, *place)):
                if options.message_id not in (None, each.guid) or not options.has_time(each.arrived_at):
                    continue
                message = self._contents(client, each.guid)
                if matches is None or isinstance(message, str) or matches(_values(message)):
                    found.append(message)
                if len(found) == options.count:
                    break
        return found

    def _listed(self, connect: Callable[[], AdminClient]) -> Iterator[Listed]:
        at = 0
        while (listing := list_messages(connect, self.uri, at, _LISTED_MAX)).messages:
            yield from listing.messages
            at += len(listing.messages)

    def _contents(self, client: AdminClient, guid: str) -> Received | str:
        try:
            found = read_contents(ask_for(client, contents_command(self.uri, guid), "messageContents"))
        except (KeyError, TypeError, ValueError) as fault:
            return f"message {guid}: the broker's answer cannot be read: {type(fault).__name__}: {fault}"
        if found.fault is not None:
            return f"message {guid}: {found.fault}"
        return Received(guid, {"guid": guid}, found.payload, found.properties)

    @asynccontextmanager
    async def _session(self, reach: Reach, **options: Any) -> AsyncIterator[Session]:
        """Begin a session with the broker; `options` are those of the library's `connect`."""
        async with connect(
            f"tcp://{shown_place(self.host, self.port)}",
            credentials=_credentials(reach),
            tls=check_authority(reach.authority),
            timeout_s=reach.timeout_s,
            process_name=reach.name,
            on_change=_note,
            **options,
        ) as session:
            yield session

    def replay(self, reach: Reach) -> QueueReplay:
        from bmqctl.carrying.replay.post import QueueReplay

        return QueueReplay(self, reach)

    def causes(self, reach: Reach) -> list[Cause]:
        """Ask why messages wait. Raises `CannotBegin`."""
        from bmqctl.systems.explaining.blazingmq import explain

        return explain(self, reach)


_LISTED_MAX: Final = 1_000
# Fields that only RocketMQ's messages have.
_NOTHING_MORE: Final = Outgoing(b"")[2:]


class _QueueSink:
    failed = PostFailed
    uncertain = PostUncertain

    def __init__(self, queue: Queue, compress: bool) -> None:
        self._queue = queue
        self._compress = compress

    async def send(self, message: Outgoing) -> Awaitable[object]:
        if message._replace(delay_s=message.delay_s or None)[2:] != _NOTHING_MORE:
            raise BadInput("messages of BlazingMQ have no tag, keys, sharding key, delay and priority: use properties")
        sent = await self._queue.send(message.payload, message.properties, compress=self._compress)
        # Look at the answer, lest the library warn of a refusal that comes before it is awaited.
        _ = sent.ack
        return sent


class _QueueFeed:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.read = of_queue

    async def receive(self, count_max: int) -> Sequence[Message]:
        return await self._queue.receive(count_max)

    def confirm(self, messages: Sequence[Message]) -> None:
        self._queue.confirm_all(messages)

    def leave(self, message: Message) -> bool:
        return True


def _primary_place(host: str, port: int, asking: Asking, queue: QueueUri) -> tuple[str, int]:
    """The address of a queue's primary, from a node's answer. Raises `AdminLost` or `Refused`."""
    with asking.client(host, port) as client:
        primary = primary_of(client, f"{host}:{port}", queue)
    return (host, port) if primary is None else endpoint_parts(primary)


def _values(message: Received) -> Values:
    return {each.name: each.value for each in message.properties if not isinstance(each.value, bytes)}


def _asking(means: Means) -> Asking:
    session = means.session
    return Asking(session.timeout_s, session.tls_authority, session.credentials)


def _subscriptions(options: CarryOptions) -> tuple[StreamSubscription, ...]:
    return () if options.expression is None else (StreamSubscription(options.expression),)


def _keeping(carriage: Carriage) -> Keeping:
    _, options, flow, tell, _ = carriage
    subscriptions = _subscriptions(options)
    if options.moves:
        window = min(flow.window, options.count_max or flow.window)
        return Confirming(StreamOptions(max_unconfirmed_messages=window, subscriptions=subscriptions))
    return Holding(StreamOptions(subscriptions=subscriptions), flow.window, flow.window_bytes, options.count_max, tell)


def _credentials(reach: Reach) -> Credentials | None:
    """Make the credentials for a broker. Raises `CannotBegin`."""
    if reach.mechanism is not None:
        return Credentials(reach.mechanism, reach.data.encode(errors="surrogateescape"))
    if reach.data:
        raise CannotBegin("--authn-data: name its mechanism, too, such as --authn-mechanism BASIC")
    return None


def _note(change: Change) -> None:
    """Log that a connection is restored; the library logs its loss."""
    if change is Change.RESTORED:
        log.warning("the connection is restored")
