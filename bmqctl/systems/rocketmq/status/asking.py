"""Queries to a RocketMQ cluster: to the given processes, and to others that they name in turn.

`mqadmin` sends the same requests, so they work with anyone's nameservers, controllers and brokers.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeVar

import trio

from bmqctl.client.remoting.client import RequestRefused
from bmqctl.client.remoting.link import RemotingLink
from bmqctl.systems.rocketmq.status.asker import Asker, Silent, body_of
from bmqctl.systems.rocketmq.status.view import BrokerAnswers, Heard, Unheard, peers_of
from formats.rocketmq.files.property_text import read_properties
from formats.rocketmq.remoting.bodies.controllers import BROKER_REPLICAS, Replicas
from formats.rocketmq.remoting.bodies.inspection import KEY_VALUE_TABLE
from formats.rocketmq.remoting.bodies.replication import EPOCH_CACHE, HA_RUNTIME
from formats.rocketmq.remoting.bodies.routes import CLUSTER_INFO, ClusterInfo
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.headers.codec import read_header
from formats.rocketmq.remoting.headers.replicating import GetControllerMetadataResponse

__all__ = ["Places", "hear"]

# For processes of each kind: longer answers are not believed.
NAMESERVERS_MAX: Final = 64
CONTROLLERS_MAX: Final = 64
BROKERS_MAX: Final = 4_096
AT_ONCE: Final = 64


T = TypeVar("T")


class Places(NamedTuple):
    """Initial addresses, HOST:PORT each, and names of brokers that no nameserver may know."""

    nameservers: tuple[str, ...] = ()
    controllers: tuple[str, ...] = ()
    brokers: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


async def hear(places: Places, asker: Asker) -> Heard:
    """Ask every process once."""
    found = _Found(asker)
    found.name(places)
    while found.has_more():
        await found.ask_more()
    await found.ask_leader(places.names)
    await found.ask_more()
    return found.heard


class _Found:
    """The answers so far, and the addresses still to ask."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._limiter = trio.CapacityLimiter(AT_ONCE)
        self._nameservers: dict[str, ClusterInfo | Unheard] = {}
        self._controllers: dict[str, GetControllerMetadataResponse | Unheard] = {}
        self._brokers: dict[str, BrokerAnswers | Unheard] = {}
        self._sets: dict[str, Replicas] = {}
        self._refusal: str | None = None
        self._to_ask: tuple[list[str], list[str], list[str]] = ([], [], [])

    @property
    def heard(self) -> Heard:
        return Heard(self._nameservers, self._controllers, self._sets, self._brokers, self._refusal)

    def name(self, places: Places) -> None:
        nameservers, controllers, brokers = self._to_ask
        _add(nameservers, places.nameservers, self._nameservers, NAMESERVERS_MAX)
        _add(controllers, places.controllers, self._controllers, CONTROLLERS_MAX)
        _add(brokers, places.brokers, self._brokers, BROKERS_MAX)

    def has_more(self) -> bool:
        return any(self._to_ask)

    async def ask_more(self) -> None:
        nameservers, controllers, brokers = self._to_ask
        self._to_ask = ([], [], [])
        async with trio.open_nursery() as nursery:
            for address in nameservers:
                nursery.start_soon(self._ask_into, self._nameservers, address, self._ask_nameserver)
            for address in controllers:
                nursery.start_soon(self._ask_into, self._controllers, address, self._ask_controller)
            for address in brokers:
                nursery.start_soon(self._ask_into, self._brokers, address, self._ask_broker)

    async def ask_leader(self, names: Iterable[str]) -> None:
        known = set(names)
        for info in self._nameservers.values():
            if isinstance(info, ClusterInfo):
                known |= info.broker_addr_table.keys()
        for answers in self._brokers.values():
            if isinstance(answers, BrokerAnswers) and "brokerName" in answers.properties:
                known.add(answers.properties["brokerName"])
        for address, metadata in self._controllers.items():
            if not isinstance(metadata, Unheard) and metadata.is_leader and known:
                found = await self._asked(address, partial(self._ask_sets, sorted(known)))
                if isinstance(found, Unheard):
                    self._refusal = f"controller {address} does not report who is in sync: {found.reason}"
                else:
                    self._sets |= found
        replicas = [each for told in self._sets.values() for each in told.in_sync_replicas + told.not_in_sync_replicas]
        self.name(Places(brokers=tuple(each.broker_address for each in replicas)))

    # -- one question each

    async def _ask_into(
        self, table: dict[str, T | Unheard], address: str, ask: Callable[[RemotingLink], Awaitable[T]]
    ) -> None:
        table[address] = await self._asked(address, ask)

    async def _asked(self, address: str, ask: Callable[[RemotingLink], Awaitable[T]]) -> T | Unheard:
        async with self._limiter:
            try:
                return await self._asker.ask(address, ask)
            except Silent as fault:
                return Unheard(str(fault))

    async def _ask_nameserver(self, link: RemotingLink) -> ClusterInfo:
        found = CLUSTER_INFO.read(await self._body(link, RequestCode.GET_BROKER_CLUSTER_INFO))
        addresses = [each for data in found.broker_addr_table.values() for each in data.broker_addrs.values()]
        self.name(Places(brokers=tuple(addresses)))
        return found

    async def _ask_controller(self, link: RemotingLink) -> GetControllerMetadataResponse:
        code = RequestCode.CONTROLLER_GET_METADATA_INFO
        answer = await link.call(code, {}, self._asker.timeout_s)
        body_of(answer, code.name)
        found = read_header(GetControllerMetadataResponse, answer.ext_fields)
        self.name(Places(controllers=peers_of(found.peers)))
        return found

    async def _ask_broker(self, link: RemotingLink) -> BrokerAnswers:
        told = await self._body(link, RequestCode.GET_BROKER_CONFIG)
        properties = read_properties(told.decode("utf-8", "replace"))
        replication = HA_RUNTIME.read(await self._body(link, RequestCode.GET_BROKER_HA_STATUS))
        epochs = None
        if properties.get("enableControllerMode") == "true":
            epochs = EPOCH_CACHE.read(await self._body(link, RequestCode.GET_BROKER_EPOCH_CACHE))
            self.name(Places(controllers=_addresses(properties.get("controllerAddr"))))
        self.name(Places(nameservers=_addresses(properties.get("namesrvAddr"))))
        try:
            runtime = KEY_VALUE_TABLE.read(await self._body(link, RequestCode.GET_BROKER_RUNTIME_INFO)).table
        except RequestRefused:
            # Without the right to this request, show the other answers.
            runtime = {}
        return BrokerAnswers(properties, replication, epochs, runtime)

    async def _ask_sets(self, names: list[str], link: RemotingLink) -> dict[str, Replicas]:
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        return BROKER_REPLICAS.read(await self._body(link, code, json.dumps(names).encode())).replicas_info_table

    async def _body(self, link: RemotingLink, code: RequestCode, body: bytes = b"") -> bytes:
        return body_of(await link.call(code, {}, self._asker.timeout_s, body), code.name)


def _add(to_ask: list[str], more: Iterable[str], asked: Mapping[str, object], most: int) -> None:
    for address in more:
        if address not in asked and address not in to_ask and len(asked) + len(to_ask) < most:
            to_ask.append(address)


def _addresses(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(";") if part.strip())
