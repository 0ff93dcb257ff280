"""Topics of RocketMQ, as sources and destinations of messages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import trio

from bmqctl.carrying.bridge.blazingmq_ends import Make, for_topic
from bmqctl.carrying.bridge.carrying import Bridge, CannotBegin, Source, TryAgain
from bmqctl.carrying.bridge.ends import BadBridge, RocketEnd, is_topic_name
from bmqctl.carrying.bridge.flow import TAKEN, FlowOptions, Send
from bmqctl.carrying.bridge.making import BridgeEnd, Carriage, Means
from bmqctl.carrying.bridge.patience import Patience
from bmqctl.carrying.bridge.rocketmq_destination import NEW_QUEUES, RocketDestination, find_places, find_topics
from bmqctl.carrying.bridge.rocketmq_source import MakeOfRecord, RocketSource
from bmqctl.carrying.messages.browsing import Browsed, BrowseOptions, FindOptions, Shown, browse_topic
from bmqctl.carrying.messages.content import Outgoing, to_text_properties
from bmqctl.carrying.messages.ends import Reach, access_keys, check_authority
from bmqctl.carrying.messages.received import TOPIC_PLACE, of_topic
from bmqctl.carrying.messages.tailing import TailOptions
from bmqctl.carrying.moving.finding import find_in_topic
from bmqctl.carrying.moving.forms import for_other_topic
from bmqctl.carrying.moving.run import SourceContents, ended
from bmqctl.carrying.moving.security import security_of
from bmqctl.carrying.moving.stored import StoredSource, find_parts, select
from bmqctl.carrying.options import CarryOptions, PostOptions
from bmqctl.client.remoting.client import Client
from bmqctl.client.remoting.faults import FAULTS
from bmqctl.client.remoting.moments import moment
from bmqctl.client.rocketmq import Consumer, Message, PostFailed, PostUncertain, Producer, Session, connect
from bmqctl.common.nurseries import open_nursery
from formats.addresses import shown_place
from formats.rocketmq.files.record import Record

if TYPE_CHECKING:
    from bmqctl.carrying.replay.send import TopicReplay
    from bmqctl.systems.explaining.cause import Cause

__all__ = ["TopicEnd"]

_QUEUE_MAX: Final = (1 << 16) - 1
# The group of a tail without one: its consumers get all messages, and commit nothing.
_OWN_GROUP: Final = "bmqctl-tail"


class TopicEnd(RocketEnd):
    """A topic of RocketMQ, and its nameserver."""

    __slots__ = ()

    has_queues: Final = True
    names_broker: Final = True
    columns: Final = TOPIC_PLACE

    @classmethod
    def parse(cls, text: str, *, may_lack_topic: bool, group: str) -> TopicEnd:
        """Parse `rocketmq://HOST:PORT/TOPIC[?...]`; `group` is the default. Raises `BadBridge`."""
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
            given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        except ValueError:
            raise BadBridge(f"{text}: expected rocketmq://HOST:PORT/TOPIC") from None
        topic = unquote(parts.path[1:])
        is_named = is_topic_name(topic) or (may_lack_topic and not topic)
        if not host or not port or parts.username is not None or parts.fragment or not is_named:
            raise BadBridge(f"{text}: expected rocketmq://HOST:PORT/TOPIC, and a topic of a-z, A-Z, 0-9, %, |, _ and -")
        query = dict(given)
        if len(query) != len(given) or query.keys() - {"group", "queue", "key"}:
            raise BadBridge(f"{text}: after ? there may be group=, queue= and key=, once each")
        if {"queue", "key"} <= query.keys():
            raise BadBridge(f"{text}: messages go to one queue or by a key, not both")
        group, queue = query.get("group", group), query.get("queue")
        is_queue = queue is None or (re.fullmatch("[0-9]{1,5}", queue) is not None and int(queue) <= _QUEUE_MAX)
        if ("group" in query and not is_topic_name(group)) or not is_queue:
            raise BadBridge(f"{text}: a group is a name, and a queue a number from 0 to {_QUEUE_MAX}")
        if query.get("key") == "":
            raise BadBridge(f"{text}: the key is the name of a property")
        return cls(host, port, topic, group, None if queue is None else int(queue), query.get("key", ""))

    # As an end of a bridge, a copy or a move

    @property
    def place(self) -> tuple[object, ...]:
        return self.host, self.port, self.topic

    def check_posted_to(self) -> None:
        pass

    def check_source(self, options: CarryOptions) -> None:
        if options.tags is not None and options.expression is not None:
            raise CannotBegin("--tags or --expression, not both")
        if self.key:
            raise CannotBegin(f"{self}: ?key= is for the topic that messages go to")
        if not options.moves:
            if self.group:
                raise CannotBegin(f"{self}: no group gets what is copied: after ? there may be queue= only")
        elif not self.group:
            raise CannotBegin(
                f"{self}: a topic keeps its messages: name the group that is to have consumed them, ?group=GROUP"
            )
        elif self.queue is not None:
            raise CannotBegin(f"{self}: a member of a group gets messages of all queues: leave out queue=")
        elif options.tags is not None or options.expression is not None:
            raise CannotBegin("a group passes over what it does not select, for good: use copy, which leaves it alone")

    def check_destination(self, has_queues: bool) -> None:
        if self.key and has_queues:
            raise CannotBegin(f"{self}: each queue of a topic goes to one queue of the other: leave out key=")

    def is_consumed(self, options: CarryOptions) -> bool:
        return options.moves

    def means(self, reach: Reach) -> Means:
        return Means(security=security_of(reach), timeout_s=reach.timeout_s, wait_s=0.0)

    def maker_of_messages(self, uri: str, salt: bytes) -> Make:
        return for_topic()

    def maker_of_records(self, salt: bytes) -> MakeOfRecord:
        return for_other_topic()

    def source(self, to: BridgeEnd, lanes: int, carriage: Carriage) -> Source:
        means, options, _, tell, salt = carriage
        make, trying = to.maker_of_records(salt), carriage.trying(self)
        if options.moves:
            return RocketSource(self, means.timeout_s, trying, tell, make=make, security=means.security)
        selection = select(options.tags, options.expression)
        return StoredSource(self, selection, make, means.timeout_s, trying, means.security)

    async def destination(self, has_queues: bool, carriage: Carriage) -> tuple[RocketDestination, int]:
        """Messages of several queues go to all queues in turn, others to one, or by a key."""
        means, tell = carriage.means, carriage.tell
        trying = carriage.trying(self)
        if has_queues and self.queue is None:
            topics = await find_topics(self, {self.topic: NEW_QUEUES}, means.timeout_s, trying, means.security)
            places = topics[self.topic]
        else:
            places = await find_places(self, means.timeout_s, trying, means.security)
        to = RocketDestination(self, places, means.timeout_s, carriage.trying(self), tell, means.security)
        return to, len(places)

    async def waiting(self, means: Means, options: CarryOptions) -> int | None:
        try:
            async with Client.connect(self.host, self.port, means.timeout_s, means.security) as client:
                parts = await find_parts(client, self, means.timeout_s, self.group if options.moves else "")
        except (CannotBegin, *FAULTS):
            return None
        return sum(part.end - part.offset for part in parts)

    async def contents(self, to: BridgeEnd, means: Means, options: CarryOptions) -> SourceContents:
        """Read the messages as if to carry them, and discard them."""
        make = to.maker_of_records(b"")
        oldest_ms: list[int] = []

        def noted(record: Record, broker_name: str) -> Any:
            oldest_ms[:] = [min([record.stored_ms, *oldest_ms])]
            return make(record, broker_name)

        faults: list[str] = []
        reading = StoredSource(
            self._replace(group=""),
            select(options.tags, options.expression),
            noted,
            means.timeout_s,
            TryAgain(str(self), faults.append, 0.0),
            means.security,
            self.group if options.moves else "",
        )
        bridge = Bridge(reading, _Nowhere(), FlowOptions(skip_refused=True), faults.append, options.count_max)
        patience = Patience(options.patience_s)
        async with open_nursery() as nursery:
            nursery.start_soon(patience.watch, bridge, partial(ended, bridge.account))
            await bridge.run(None, options.patience_s)
        ended_by = patience.ended_by or bridge.flow.ended_by
        if ended_by:
            raise CannotBegin(f"{self}: {ended_by}")
        account = bridge.account
        oldest = moment(oldest_ms[0]).isoformat(timespec="milliseconds") if oldest_ms else None
        return SourceContents(account.delivered, account.size_bytes, oldest, dict(Counter(account.refused)))

    # For the commands for messages

    @asynccontextmanager
    async def open_sink(self, reach: Reach, options: PostOptions) -> AsyncIterator[_TopicSink]:
        if self.queue is not None:
            raise CannotBegin(
                f"{self}: messages go to all queues of the topic; choose one by a property, with ?key=NAME"
            )
        if options.compress:
            raise CannotBegin("--compress is for queues of BlazingMQ")
        async with self._session(reach, window=options.window) as session:
            yield _TopicSink(await session.producer(self.topic, group=self.group), self.key)

    @asynccontextmanager
    async def open_feed(self, reach: Reach, options: TailOptions) -> AsyncIterator[_TopicFeed]:
        if self.queue is not None or self.key:
            raise CannotBegin(f"{self}: all queues of a topic are followed: after ? there may be group= only")
        if options.tags is not None and options.expression is not None:
            raise CannotBegin("--tags or --expression, not both")
        async with self._session(reach) as session:
            consumer = await session.consume(
                self.topic,
                self.group or _OWN_GROUP,
                tags=options.tags or "*",
                sql=options.expression,
                from_start=options.from_start,
                since=options.since,
                broadcast=not self.group,
                max_unconfirmed_messages=options.unconfirmed_max,
            )
            yield _TopicFeed(consumer, bool(self.group))

    async def browse(self, reach: Reach, options: BrowseOptions, shown: Shown) -> Browsed:
        if self.key or self.group:
            raise CannotBegin(f"{self}: no group gets what is browsed: after ? there may be queue= only")
        return await browse_topic(self, self._session(reach), options, shown)

    async def find(self, reach: Reach, options: FindOptions, shown: Shown) -> Browsed:
        if self.key or self.group or self.queue is not None:
            raise CannotBegin(f"{self}: all queues of a topic are searched: leave out what is after ?")
        if options.tags is not None and options.expression is not None:
            raise CannotBegin("--tags or --expression, not both")
        is_indexed = options.message_id is not None or options.key is not None
        if is_indexed and (options.tags is not None or options.expression is not None):
            raise CannotBegin("--id and --key are looked up in an index: leave out --tags and --expression")
        return await find_in_topic(self, reach, options, shown)

    @asynccontextmanager
    async def _session(self, reach: Reach, **options: Any) -> AsyncIterator[Session]:
        """Begin a session with the cluster; `options` are those of the library's `connect`."""
        async with connect(
            f"rocketmq://{shown_place(self.host, self.port)}",
            credentials=access_keys(reach),
            tls=check_authority(reach.authority),
            timeout_s=reach.timeout_s,
            **options,
        ) as session:
            yield session

    def replay(self, reach: Reach) -> TopicReplay:
        """Make the destination of a replay. Raises `CannotBegin`."""
        from bmqctl.carrying.replay.send import TopicReplay

        return TopicReplay(self, reach)

    def causes(self, reach: Reach) -> list[Cause]:
        """Ask why messages of the group wait. Raises `CannotBegin`."""
        from bmqctl.systems.explaining.rocketmq import explain

        return explain(self, reach)


class _TopicSink:
    failed = PostFailed
    uncertain = PostUncertain

    def __init__(self, producer: Producer, key: str) -> None:
        self._producer = producer
        self._key = key

    async def send(self, message: Outgoing) -> Awaitable[object]:
        properties = to_text_properties(message.properties)
        sent = await self._producer.send(
            message.payload,
            properties,
            tag=message.tag,
            keys=message.keys,
            sharding_key=message.sharding_key or properties.get(self._key),
            deliver_at=datetime.now(UTC) + timedelta(seconds=message.delay_s) if message.delay_s else None,
            priority=message.priority,
        )
        # Look at the answer, lest the library warn of a refusal that comes before it is awaited.
        _ = sent.answer
        return sent


class _TopicFeed:
    def __init__(self, consumer: Consumer, commits: bool) -> None:
        self._consumer = consumer
        self._commits = commits
        self.read = of_topic

    async def receive(self, count_max: int) -> Sequence[Message]:
        return await self._consumer.receive(count_max)

    def confirm(self, messages: Sequence[Message]) -> None:
        for message in messages:
            message.confirm()

    def leave(self, message: Message) -> bool:
        if not self._commits:
            message.confirm()
        return self._commits


class _Nowhere:
    """A destination that accepts all messages, and keeps none."""

    def __init__(self) -> None:
        self._bridge: Bridge | None = None

    async def run(self, bridge: Bridge, task_status: trio.TaskStatus[None]) -> None:
        self._bridge = bridge
        task_status.started()
        bridge.destination_up()
        await trio.sleep_forever()

    def send(self, send: Send) -> None:
        assert self._bridge is not None
        self._bridge.answered(send.lane, send.batch, [TAKEN] * len(send.items))
