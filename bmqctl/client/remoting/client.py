"""A client of a RocketMQ cluster: its nameserver, its brokers, and the queues of its topics.

async with Client.connect("127.0.0.1", 9876) as client:
    await client.create_topic("orders", queues=4)
    for queue in await client.queues("orders"):
        link = await client.link_to(queue.address)
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, Self

import trio

from bmqctl.client.remoting.faults import RequestRefused, check_answer
from bmqctl.client.remoting.identity import new_client_id
from bmqctl.client.remoting.link import AccessKeys, RemotingLink, dial
from bmqctl.client.remoting.routes import QUEUES_MAX, Queue, read_route
from bmqctl.common.nurseries import open_nursery
from formats.errors import FormatError
from formats.rocketmq.hosts import split_address
from formats.rocketmq.remoting.bodies.clients import (
    CONSUMER_IDS,
    HEARTBEAT,
    ConsumerData,
    Heartbeat,
    ProducerData,
    Subscription,
)
from formats.rocketmq.remoting.bodies.routes import CLUSTER_INFO, MASTER_ID, TOPIC_LIST, Permission
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.administration import CreateTopicRequest
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.headers.consuming import GetConsumerListByGroupRequest
from formats.rocketmq.topic_names import AUTO_CREATE_TOPIC

__all__ = ["PLAIN", "QUEUES_MAX", "Client", "Queue", "RequestRefused", "Security"]

HEARTBEAT_INTERVAL_S = 30.0
ROUTE_POLL_S = 0.1

_BOTH: Final = Permission.READ | Permission.WRITE


class Security(NamedTuple):
    """Security of connections: TLS, and the keys that sign requests."""

    tls: ssl.SSLContext | None = None
    keys: AccessKeys | None = None


PLAIN: Final = Security()


class Client:
    """A connection to the nameserver, and one to each requested broker; `connect` makes it."""

    def __init__(
        self, nameserver: RemotingLink, timeout_s: float, nursery: trio.Nursery, security: Security = PLAIN
    ) -> None:
        self.client_id = new_client_id()
        self.timeout_s = timeout_s
        self._nameserver = nameserver
        self._nursery = nursery
        self._security = security
        self._links: dict[str, RemotingLink] = {}
        self._heartbeat = b""

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, host: str, port: int, timeout_s: float = 10.0, security: Security = PLAIN
    ) -> AsyncIterator[Self]:
        """Connect to a nameserver; close all connections at the end of the block.

        Raises `OSError` if nobody listens there, or is trusted.
        """
        nameserver = await dial(host, port, timeout_s, tls=security.tls, keys=security.keys)
        async with open_nursery() as nursery:
            nursery.start_soon(nameserver.run)
            client = cls(nameserver, timeout_s, nursery, security)
            try:
                yield client
            finally:
                for link in (nameserver, *client._links.values()):
                    link.end("closed")

    async def link_to(self, address: str) -> RemotingLink:
        """The connection to the broker at HOST:PORT, a new one if it was lost.

        Raises `OSError` if nobody listens there, and `FormatError` for an invalid address.
        """
        link = self._links.get(address)
        if link is None or not link.is_open:
            place = split_address(address)
            if place is None:
                raise FormatError("BrokerData.brokerAddrs", 0, f"{address[:80]!r} is no HOST:PORT")
            link = await dial(*place, self.timeout_s, tls=self._security.tls, keys=self._security.keys)
            if address in self._links and self._links[address].is_open:
                link.end("not needed")  # another task was faster
            else:
                self._links[address] = link
                self._beat(link)
            self._nursery.start_soon(link.run)
        return self._links[address]

    async def masters(self) -> list[str]:
        answer = await self._nameserver.call(RequestCode.GET_BROKER_CLUSTER_INFO, {}, self.timeout_s)
        check_answer("no brokers", answer)
        brokers = CLUSTER_INFO.read(answer.body).broker_addr_table.values()
        return sorted(broker.broker_addrs[MASTER_ID] for broker in brokers if MASTER_ID in broker.broker_addrs)

    async def topics(self) -> list[str]:
        answer = await self._nameserver.call(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}, self.timeout_s)
        check_answer("no list of topics", answer)
        return TOPIC_LIST.read(answer.body).topic_list

    async def queues(self, topic: str, needed: Permission = _BOTH) -> list[Queue]:
        """The writable and readable queues of a topic; none if the nameserver does not know the topic.

        With `needed`, only readable, or writable ones. Raises `FormatError` for an impossible number of queues, and
        `NotWritable` if a topic's brokers have none to write.
        """
        answer = await self._nameserver.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, self.timeout_s)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return []
        check_answer(f"no route of {topic}", answer)
        route = read_route(topic, answer.body)
        if needed == Permission.READ:
            return list(route.readable)
        if needed == Permission.WRITE:
            return list(route.to_write(topic))
        return sorted({*route.readable} & {*route.writable})

    async def consumers(self, group: str, address: str) -> list[str]:
        """The ids of a group's consumers that the broker at HOST:PORT knows; none if it does not know the group."""
        link = await self.link_to(address)
        fields = write_header(GetConsumerListByGroupRequest(group))
        answer = await link.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields, self.timeout_s)
        return [] if answer.code != ResponseCode.SUCCESS else CONSUMER_IDS.read(answer.body).consumer_id_list

    async def create_topic(self, topic: str, queues: int) -> list[Queue]:
        """Create a topic with at least `queues` queues, spread over all masters; return them all.

        Raises `RequestRefused` if a broker refuses, or the nameserver does not list it in time.
        """
        masters = await self.masters()
        if not masters:
            raise RequestRefused(
                "cannot create a topic", Frame(ResponseCode.SYSTEM_ERROR, 0, remark="the nameserver knows no broker")
            )
        each = -(-queues // len(masters))
        permissions = Permission.READ | Permission.WRITE
        fields = write_header(
            CreateTopicRequest(topic, AUTO_CREATE_TOPIC, each, each, permissions, "SINGLE_TAG", False, 0)
        )
        for address in masters:
            link = await self.link_to(address)
            check_answer(
                f"topic {topic} at {address}",
                await link.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields, self.timeout_s),
            )
        with trio.move_on_after(self.timeout_s):
            while len(found := await self.queues(topic)) < each * len(masters):
                await trio.sleep(ROUTE_POLL_S)
            return found
        raise RequestRefused(f"no route of {topic}", Frame(ResponseCode.TOPIC_NOT_EXIST, 0))

    def keep_alive(self, group: str, topic: str, *, consumer: bool) -> None:
        """Report to the brokers now, and every 30 s, that this client belongs to a group of a topic.

        Brokers connected later get the report immediately, too.
        """
        self._heartbeat = self._make_heartbeat(group, topic, consumer)
        self._nursery.start_soon(self._beat_all)

    def _make_heartbeat(self, group: str, topic: str, consumer: bool) -> bytes:
        if not consumer:
            return HEARTBEAT.write(Heartbeat(self.client_id, producer_data_set=[ProducerData(group)]))
        subscription = Subscription(topic, "*")
        data = ConsumerData(group, consume_type="CONSUME_ACTIVELY", subscription_data_set=[subscription])
        return HEARTBEAT.write(Heartbeat(self.client_id, consumer_data_set=[data]))

    async def _beat_all(self) -> None:
        while True:
            for link in self._links.values():
                self._beat(link)
            await trio.sleep(HEARTBEAT_INTERVAL_S)

    def _beat(self, link: RemotingLink) -> None:
        if self._heartbeat and link.is_open:
            link.ask(RequestCode.HEART_BEAT, {}, _ignore, self.timeout_s, self._heartbeat)


def _ignore(_: Frame | str) -> None:
    """Drop the answer to a heartbeat; another one follows soon."""
