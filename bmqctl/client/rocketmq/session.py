"""Sessions with a RocketMQ cluster.

async with connect("rocketmq://127.0.0.1:9876") as session:
    producer = await session.producer("orders")
    await producer.post(b"hello", tag="greeting")
    consumer = await session.consume("orders", "billing")
    async for message in consumer:
        async with message:
            print(message.payload)
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import anyio
import anyio.abc

from bmqctl.client.address import BadAddress
from bmqctl.client.arguments import INT_MAX, LONG_MAX, check_seconds, check_text, check_whole
from bmqctl.client.errors import ConnectFailed, SessionEnded
from bmqctl.client.remoting.faults import FAULTS, words_of
from bmqctl.client.remoting.link import AccessKeys
from bmqctl.client.rocketmq.arguments import check_filter, check_group, check_hidden_s, check_topic, unix_ms
from bmqctl.client.rocketmq.browsing import StoredQueue, stored_queues
from bmqctl.client.rocketmq.cluster import Cluster, ClusterOptions
from bmqctl.client.rocketmq.consumer_options import ConsumerOptions
from bmqctl.client.rocketmq.consuming import Consumer
from bmqctl.client.rocketmq.errors import RequestRefused
from bmqctl.client.rocketmq.producing import Producer
from bmqctl.client.rocketmq.simple import SimpleConsumer, SimpleConsumerOptions
from bmqctl.client.spans import Spans, check_spans
from bmqctl.client.tasks import open_task_group
from formats.rocketmq.hosts import split_address

__all__ = ["Session", "SessionOptions", "connect", "parse_nameservers"]

SCHEME: Final = "rocketmq://"
HEARTBEAT_S: Final = 30.0
_NAMESERVERS_MAX: Final = 64
_URI_CHARACTERS_MAX: Final = 65_536
_KEY_CHARACTERS_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Options of a session; `connect` explains them."""

    window: int
    buffer_size: int
    retry_s: float


@asynccontextmanager
async def connect(
    uri: str,
    *,
    credentials: tuple[str, str] | None = None,
    tls: ssl.SSLContext | str | Path | None = None,
    timeout_s: float = 10.0,
    retry_s: float = 60.0,
    window: int = 4096,
    buffer_size: int = 4 << 20,
    tracing: Spans | None = None,
) -> AsyncIterator[Session]:
    """Begin a session with the cluster of the nameservers of `uri`, which ends with the block.

    `uri` is `rocketmq://HOST:PORT[,HOST:PORT...]`. Leaving the block without an exception waits for the answers to all
    posts.

    `credentials` are an access key and its secret, which sign requests. `tls` is a file of trusted certificates, in
    PEM, or a context; without it the connections are plain. `timeout_s` is for connecting and for each request. A post
    that no broker accepts is tried again for `retry_s`; 0 means once. A post waits while `window` posts to its topic
    have no answer, or these have more than `buffer_size` bytes. `tracing`, a `bmqctl.client.tracing.Tracing`, makes
    spans of posts and of the processing of messages.

    Raises `ConnectFailed` if no nameserver can be reached, and `ValueError` for an invalid argument.
    """
    check_text("uri", uri, _URI_CHARACTERS_MAX)
    nameservers = parse_nameservers(uri)
    check_seconds("timeout_s", timeout_s)
    check_seconds("retry_s", retry_s, is_zero_allowed=True)
    check_whole("window", window, 1, INT_MAX)
    check_whole("buffer_size", buffer_size, 1, LONG_MAX)
    keys = _access_keys(credentials)
    check_spans(tracing)
    options = ClusterOptions(timeout_s, _context(tls), keys, tracing)
    async with open_task_group() as outer:
        # Cancellation from outside must not reach the tasks: ending the session needs its connections.
        inner, scope = await outer.start(_run_tasks)
        cluster = Cluster(nameservers, options, inner)
        session = Session(cluster, SessionOptions(window, buffer_size, retry_s))
        try:
            await _reach(cluster)
            inner.start_soon(session.keep_alive)
            yield session
            await session.flush()
        finally:
            await session.leave()
            scope.cancel()


async def _run_tasks(*, task_status: anyio.abc.TaskStatus[tuple[anyio.abc.TaskGroup, anyio.CancelScope]]) -> None:
    with anyio.CancelScope(shield=True) as scope:
        async with anyio.create_task_group() as group:
            task_status.started((group, scope))
            await anyio.sleep_forever()


async def _reach(cluster: Cluster) -> None:
    """Connect to any nameserver. Raises `ConnectFailed`."""
    reasons = []
    for address in cluster.nameservers:
        try:
            await cluster.link_to(address)
            return
        except FAULTS as fault:
            reasons.append(f"{address}: {words_of(fault)}")
    raise ConnectFailed(f"no connection to a nameserver of RocketMQ ({'; '.join(reasons)}): is it running there?")


class Session:
    """A session with a RocketMQ cluster, made by `connect`."""

    def __init__(self, cluster: Cluster, options: SessionOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._producers: list[Producer] = []
        self._consumers: dict[str, Consumer | SimpleConsumer] = {}
        self._joining: set[str] = set()
        self._is_ended = False

    def __repr__(self) -> str:
        return f"<Session with {self._cluster}>"

    async def producer(self, topic: str, *, group: str = "bmqctl-producers") -> Producer:
        """Make a producer of a topic, which lasts as long as the session.

        The first message creates an unknown topic, if the brokers are configured so. Raises `RequestRefused` if there
        is no broker for the topic, or none of its queues is writable, and `ValueError` for a name that brokers refuse.
        """
        self._check_open()
        check_topic(topic)
        check_group(group)
        options = self._options
        producer = Producer(
            self._cluster,
            topic,
            group,
            window=options.window,
            buffer_size=options.buffer_size,
            retry_s=options.retry_s,
        )
        try:
            await producer.find_queues()
        except FAULTS as fault:
            raise RequestRefused(f"{producer}: {words_of(fault)}") from None
        self._check_open()
        self._cluster.producers[group] = self._cluster.producers.get(group, 0) + 1
        self._producers.append(producer)
        self._cluster.start(producer.run)
        await self._cluster.beat()
        return producer

    async def consume(
        self,
        topic: str,
        group: str,
        *,
        tags: str = "*",
        sql: str | None = None,
        from_start: bool = False,
        since: datetime | None = None,
        broadcast: bool = False,
        max_unconfirmed_messages: int = 1000,
        max_unconfirmed_bytes: int = 32 << 20,
    ) -> Consumer:
        """Join a consumer group of a topic.

        The members of a group, those with other clients, too, share the queues of the topic. They get the messages with
        any of the `tags`, `"A || B"`, or with properties for which the expression `sql` is true; all members of a group
        must use the same filter. A group without offsets begins after the last message, with `from_start` at the first,
        or with `since` at the first stored then or later. With `broadcast` each member gets all messages from then on,
        and nothing is committed. No more come while `max_unconfirmed_messages` or `max_unconfirmed_bytes` are neither
        confirmed nor rejected.

        Raises `RequestRefused` if the topic is not known, or a broker refuses the group, and `ValueError` for an
        invalid argument, or if the session is in the group already.
        """
        self._check_member(topic, group, tags, sql)
        check_whole("max_unconfirmed_messages", max_unconfirmed_messages, 1, INT_MAX)
        check_whole("max_unconfirmed_bytes", max_unconfirmed_bytes, 1, LONG_MAX)
        options = ConsumerOptions(
            topic,
            group,
            tags,
            sql,
            from_start,
            broadcast,
            max_unconfirmed_messages,
            max_unconfirmed_bytes,
            None if since is None else unix_ms("since", since),
        )
        consumer = Consumer(self._cluster, options)
        await self._join(group, consumer)
        self._cluster.start(consumer.run)
        return consumer

    async def simple_consumer(
        self,
        topic: str,
        group: str,
        *,
        tags: str = "*",
        sql: str | None = None,
        from_start: bool = False,
        hidden_s: float = 60.0,
        attempts_max: int = 16,
    ) -> SimpleConsumer:
        """Join a consumer group of a topic, to ask for messages on demand.

        The brokers hand out each message to one consumer of the group, and hide it from the others for `hidden_s`
        seconds; unless confirmed, it is then delivered again. After `attempts_max` deliveries a message becomes a dead
        letter. `tags`, `sql` and `from_start` are as for `consume`; a group should have consumers of one kind only.

        Raises `RequestRefused` if the topic is not known, or a broker refuses the group, and `ValueError` for an
        invalid argument, or if the session is in the group already.
        """
        self._check_member(topic, group, tags, sql)
        check_hidden_s("hidden_s", hidden_s)
        check_whole("attempts_max", attempts_max, 1, INT_MAX)
        consumer = SimpleConsumer(
            self._cluster, SimpleConsumerOptions(topic, group, tags, sql, from_start, hidden_s, attempts_max)
        )
        await self._join(group, consumer)
        return consumer

    async def stored_queues(self, topic: str) -> list[StoredQueue]:
        """List the queues of a topic, whose messages can be read by their offsets.

        No group gets the messages, and nothing is committed. Raises `RequestRefused` if the topic is not known, or a
        broker does not answer.
        """
        self._check_open()
        check_topic(topic)
        return await stored_queues(self._cluster, topic)

    async def flush(self) -> None:
        """Wait until every post has an answer."""
        for producer in self._producers:
            await producer.flush()

    def _check_open(self) -> None:
        if self._is_ended:
            raise SessionEnded("the client ended the session")

    def _check_member(self, topic: str, group: str, tags: str, sql: str | None) -> None:
        self._check_open()
        check_topic(topic)
        check_group(group)
        check_filter(tags, sql)
        if group in self._joining or (group in self._consumers and not self._consumers[group].is_closed):
            raise ValueError(f"the session is in group {group} already: a second member needs a session of its own")

    async def _join(self, group: str, consumer: Consumer | SimpleConsumer) -> None:
        """Join a group. Raises `RequestRefused`."""
        self._joining.add(group)
        try:
            await consumer.begin()
        except FAULTS as fault:
            raise RequestRefused(f"{consumer}: {words_of(fault)}") from None
        finally:
            self._joining.discard(group)
        self._check_open()
        self._consumers[group] = consumer

    # For `connect`

    async def keep_alive(self) -> None:
        """Every 30 s, ask for the routes again and report the session's groups to the brokers."""
        while True:
            await anyio.sleep(HEARTBEAT_S)
            for producer in self._producers:
                await producer.look_again()
            for consumer in self._consumers.values():
                consumer.look_again()
            await self._cluster.beat()

    async def leave(self) -> None:
        """End the session properly if that takes no longer than `Consumer.close` may, otherwise immediately."""
        self._is_ended = True
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as group:
                for consumer in self._consumers.values():
                    group.start_soon(consumer.close)
        for producer in self._producers:
            producer.end()
        self._cluster.close()


def _access_keys(given: object) -> AccessKeys | None:
    """Convert a session's access keys. Raises `ValueError` for invalid ones."""
    match given:
        case None:
            return None
        case (str(key), str(secret)):
            check_text("the access key of credentials", key, _KEY_CHARACTERS_MAX)
            if 1 <= len(secret) <= _KEY_CHARACTERS_MAX:
                return AccessKeys(key, secret)
    # Without the value: it is secret.
    raise ValueError(f"credentials: expected an access key and its secret, of 1 to {_KEY_CHARACTERS_MAX} characters")


def _context(tls: ssl.SSLContext | str | Path | None) -> ssl.SSLContext | None:
    if tls is None or isinstance(tls, ssl.SSLContext):
        return tls
    return ssl.create_default_context(cafile=tls)


def parse_nameservers(uri: str) -> list[str]:
    """Parse `rocketmq://HOST:PORT[,HOST:PORT...]` into addresses. Raises `BadAddress`, a `ValueError`."""
    text = uri.removeprefix(SCHEME).removesuffix("/")
    addresses = [each.strip() for each in text.replace(";", ",").split(",")]
    if not uri.startswith(SCHEME) or not all(map(split_address, addresses)) or len(addresses) > _NAMESERVERS_MAX:
        raise BadAddress(f"'{uri[:200]}' does not name nameservers: expected rocketmq://HOST:PORT[,HOST:PORT...]")
    return addresses
