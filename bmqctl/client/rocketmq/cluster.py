"""Connections of a session to nameservers and brokers, the routes of its topics, and its heartbeats."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, NamedTuple

import anyio
import anyio.abc

from bmqctl.client.remoting.faults import FAULTS, RequestRefused, check_answer, words_of
from bmqctl.client.remoting.identity import new_client_id
from bmqctl.client.remoting.link import AccessKeys, LinkLost, RemotingLink, dial
from bmqctl.client.remoting.routes import Route, read_route
from bmqctl.client.rocketmq.errors import RequestRefused as NoRoute
from bmqctl.client.spans import Spans
from formats.errors import FormatError
from formats.rocketmq.hosts import split_address
from formats.rocketmq.remoting.bodies.clients import HEARTBEAT, ConsumerData, Heartbeat, ProducerData
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.topic_names import AUTO_CREATE_TOPIC
from formats.schema import Buffer

__all__ = ["Cluster", "ClusterOptions"]

log = logging.getLogger("bmqctl.client")

# The topic whose brokers create unknown topics, and the number of queues of these.
DEFAULT_QUEUES: Final = 4


class ClusterOptions(NamedTuple):
    """Options of all connections."""

    timeout_s: float
    tls: ssl.SSLContext | None
    keys: AccessKeys | None
    spans: Spans | None = None


class Cluster:
    """The nameservers and brokers of a session. Its tasks run in `group`.

    `changed` are called, by group, when a broker reports changed members of a consumer group.
    """

    def __init__(self, nameservers: Iterable[str], options: ClusterOptions, group: anyio.abc.TaskGroup) -> None:
        self.nameservers = tuple(nameservers)
        self.timeout_s = options.timeout_s
        self.spans = options.spans
        self.client_id = new_client_id()
        self.changed: dict[str, Callable[[], None]] = {}
        self.consumers: dict[str, ConsumerData] = {}
        self.producers: dict[str, int] = {}
        self._options = options
        self._group = group
        self._links: dict[str, RemotingLink] = {}
        self._dialing: dict[str, anyio.Lock] = {}
        self._routes: dict[str, Route] = {}

    def __str__(self) -> str:
        return ", ".join(self.nameservers)

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._group.start_soon(work)

    # Connections

    async def link_to(self, address: str) -> RemotingLink:
        """The connection to HOST:PORT, a new one if it was lost; a broker gets a heartbeat first.

        Raises `OSError` if nobody listens there, and `FormatError` for an invalid address.
        """
        link = self._links.get(address)
        if link is not None and link.is_open:
            return link
        async with self._dialing.setdefault(address, anyio.Lock()):
            link = self._links.get(address)
            if link is not None and link.is_open:
                return link
            place = split_address(address)
            if place is None:
                raise FormatError("BrokerData.brokerAddrs", 0, f"{address[:80]!r} is no HOST:PORT")
            options = self._options
            link = await dial(
                *place, options.timeout_s, tls=options.tls, keys=options.keys, on_asked=self._take_request
            )
            self._links[address] = link
            self._group.start_soon(link.run)
            if address not in self.nameservers:
                self._beat(link)
            return link

    async def call(
        self, address: str, code: int, fields: Mapping[str, str] | None, what: str, body: Buffer = b""
    ) -> Frame:
        """Send a request to an address, and wait for its answer. Raises one of `FAULTS` unless that is success."""
        link = await self.link_to(address)
        answer = await link.call(code, fields, self.timeout_s, body)
        check_answer(f"{what} at {address}", answer)
        return answer

    def _take_request(self, frame: Frame) -> bool:
        if frame.code != RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            return False
        changed = self.changed.get((frame.ext_fields or {}).get("consumerGroup", ""))
        if changed is not None:
            changed()
        return True

    # Routes

    async def route(self, topic: str, *, makes: bool = False) -> Route:
        """Ask the nameservers in turn for the queues of a topic, and keep them.

        With `makes` an unknown topic has the queues that the brokers will create for it. Raises `NoRoute` if they know
        none, and `OSError` if none of them answers.
        """
        answer = await self._ask_nameservers(topic)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST and makes:
            answer = await self._ask_nameservers(AUTO_CREATE_TOPIC)
            if answer.code == ResponseCode.SUCCESS:
                made = read_route(AUTO_CREATE_TOPIC, answer.body)
                return Route(writable=tuple(each for each in made.writable if each.queue_id < DEFAULT_QUEUES))
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            self._routes.pop(topic, None)
            raise NoRoute(
                f"the nameserver at {self} knows no topic {topic}, or no broker that has it: create the topic"
            )
        check_answer(f"no route of topic {topic} from the nameserver at {self}", answer)
        route = self._routes[topic] = read_route(topic, answer.body)
        return route

    def known_route(self, topic: str) -> Route:
        return self._routes.get(topic, Route())

    def forget(self, topic: str) -> None:
        self._routes.pop(topic, None)

    def address_of(self, topic: str, broker_name: str) -> str:
        """The address of a broker's master. Raises `LinkLost` if there is none."""
        route = self.known_route(topic)
        for queue in (*route.readable, *route.writable):
            if queue.broker_name == broker_name:
                return queue.address
        raise LinkLost(f"the nameserver at {self} knows no master of broker {broker_name} for topic {topic}")

    async def _ask_nameservers(self, topic: str) -> Frame:
        reasons = []
        for address in self.nameservers:
            try:
                link = await self.link_to(address)
                return await link.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, self.timeout_s)
            except FAULTS as fault:
                reasons.append(f"{address}: {words_of(fault)}")
        raise OSError(f"no nameserver answers ({'; '.join(reasons)})")

    # Heartbeats

    async def beat(self) -> RequestRefused | None:
        """Report the session's groups to all brokers at once; return a broker's refusal, if any.

        Ignores brokers that are gone.
        """
        refusals: list[RequestRefused] = []

        async def tell(address: str) -> None:
            try:
                await self.call(address, RequestCode.HEART_BEAT, {}, "no heartbeat", self._heartbeat())
            except RequestRefused as refused:
                log.warning("%s", refused)
                refusals.append(refused)
            except FAULTS as fault:
                log.info("no heartbeat for the broker at %s: %s", address, fault)

        async with anyio.create_task_group() as group:
            for address in self._brokers():
                group.start_soon(tell, address)
        return refusals[0] if refusals else None

    async def unregister(self, fields: Mapping[str, str]) -> None:
        """Report to the connected brokers that the session has left a group."""
        for address in self._brokers():
            link = self._links.get(address)
            if link is not None and link.is_open:
                try:
                    await link.call(RequestCode.UNREGISTER_CLIENT, fields, self.timeout_s)
                except FAULTS as fault:
                    log.info("the broker at %s was not told of the end of a group: %s", address, fault)

    def _brokers(self) -> list[str]:
        return sorted({address for route in self._routes.values() for address in route.addresses})

    def _beat(self, link: RemotingLink) -> None:
        if self.consumers or self.producers:
            link.ask(RequestCode.HEART_BEAT, {}, _ignore, self.timeout_s, self._heartbeat())

    def _heartbeat(self) -> bytes:
        return HEARTBEAT.write(
            Heartbeat(self.client_id, list(self.consumers.values()), [ProducerData(group) for group in self.producers])
        )

    def close(self) -> None:
        for link in self._links.values():
            link.end("the session has ended")


def _ignore(_: Frame | str) -> None:
    """Drop the answer to a heartbeat; another one follows soon."""
