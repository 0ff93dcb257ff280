"""The routes of a nameserver, as its brokers registered them (source: RouteInfoManager).

Each nameserver has its own routes; brokers register with every one that they know.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.rocketmq.nameserver.bounds import NameserverBounds
from broker.rocketmq.settings import SettingRefused
from formats.rocketmq.remoting.bodies.routes import (
    MASTER_ID,
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    DataVersion,
    Permission,
    QueueData,
    TopicConfig,
    TopicConfigs,
    TopicRoute,
)
from formats.rocketmq.remoting.codes import ResponseCode

__all__ = ["BrokerAddress", "Holder", "LeastId", "Registration", "Routes"]

log = logging.getLogger("broker.rocketmq.nameserver")

# A broker without a heartbeat for this time is gone, unless it has stated another.
EXPIRED_MS: Final = 120_000

MEMBER_GROUP_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"


class BrokerAddress(NamedTuple):
    """A broker, by its cluster and its stated address."""

    cluster: str
    address: str


class Registration(NamedTuple):
    cluster: str
    address: str
    name: str
    broker_id: int
    ha_address: str
    topics: TopicConfigs
    timeout_ms: int | None = None
    acting_master: bool | None = None
    zone: str | None = None


class LeastId(NamedTuple):
    """A change of the least id of a name's brokers, for those at `tell`.

    `offline` is the address of the broker that had it and is gone, `ha_address` that for slaves of the new one.
    """

    tell: tuple[str, ...]
    broker_id: int
    address: str
    offline: str | None = None
    ha_address: str | None = None


class Holder(NamedTuple):
    """The registered broker with an id of a name. Under a controller, `state_version` is its master's epoch."""

    address: str
    state_version: int
    connection: object


@dataclass
class _Brokers:
    cluster: str
    addresses: dict[int, str] = field(default_factory=dict)
    acting_master: bool = False
    zone: str | None = None


@dataclass
class _Live:
    heard_ms: int
    timeout_ms: int
    version: DataVersion
    ha_address: str
    connection: object
    names: dict[str, None]


class Routes:
    """The tables of a nameserver. With `supports_acting_master`, a slave may stand in for a lost master.

    `least_changed` is called when another broker has the least id of its name, if `tells_least`.
    """

    def __init__(self, *, supports_acting_master: bool = False) -> None:
        self._supports_acting_master = supports_acting_master
        self.bounds = NameserverBounds()
        self.tells_least = False
        self.least_changed: Callable[[LeastId], None] = lambda change: None
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, _Brokers] = {}
        self._clusters: dict[str, dict[str, None]] = {}
        self._live: dict[BrokerAddress, _Live] = {}
        # The topics of the brokers of each name, and their number; the brokers that each connection has registered.
        self._topics_of: dict[str, dict[str, None]] = {}
        self._routes_count = 0
        self._by_connection: dict[object, dict[BrokerAddress, None]] = {}

    def support_acting_master(self, value: bool) -> None:
        self._supports_acting_master = value

    # -- brokers

    def register(self, told: Registration, connection: object, now_ms: int) -> tuple[str, str] | None:
        """Register a broker and its topics; return the addresses of its master, for consumers and for slaves.

        Unknown addresses are empty. Returns None if it may not register: a single topic of a broker that has not
        registered as a whole. Raises `SettingRefused` beyond the bounds.
        """
        address = BrokerAddress(told.cluster, told.address)
        self._check_room(told, address)
        brokers = self._brokers.get(told.name)
        is_first = brokers is None
        if brokers is None:
            brokers = _Brokers(told.cluster)
        ids = brokers.addresses
        holder = ids.get(told.broker_id)
        if holder is not None and holder != told.address:
            other = self._live.get(BrokerAddress(told.cluster, holder))
            if other is not None and other.version.state_version > told.topics.data_version.state_version:
                log.warning("broker %s (%s, id %d) is older than %s", told.address, told.name, told.broker_id, holder)
                self._take_out(address)
                return "", ""
        if holder is None and len(told.topics.topic_config_table) == 1:
            return None
        self._clusters.setdefault(told.cluster, {})[told.name] = None
        self._brokers[told.name] = brokers
        least_before = min(ids, default=told.broker_id)
        brokers.acting_master = bool(told.acting_master)
        brokers.zone = told.zone
        # A slave that became master has another id at the same address.
        for broker_id in [each for each, at in ids.items() if at == told.address and each != told.broker_id]:
            del ids[broker_id]
        is_first = is_first or holder is None
        ids[told.broker_id] = told.address
        is_prime_slave = told.acting_master is not None and told.broker_id == min(ids) != MASTER_ID
        if told.broker_id == MASTER_ID or is_prime_slave:
            changed = is_first or self.version_of(address) != told.topics.data_version
            for config in told.topics.topic_config_table.values():
                if changed or told.name not in self._topics.get(config.topic_name, {}):
                    self._enter(told.name, config, read_only=is_prime_slave and brokers.acting_master)
        self._note_live(address, told, connection, now_ms)
        self._tell_new_least(told, ids, least_before)
        if told.broker_id != MASTER_ID and MASTER_ID in ids:
            master = self._live.get(BrokerAddress(told.cluster, ids[MASTER_ID]))
            if master is not None:
                return ids[MASTER_ID], master.ha_address
        return "", ""

    def _tell_new_least(self, told: Registration, ids: dict[int, str], before: int) -> None:
        if self.tells_least and told.broker_id < before:
            others = tuple(at for each, at in ids.items() if each != told.broker_id or len(ids) == 1)
            self.least_changed(LeastId(others, told.broker_id, told.address, None, told.ha_address))

    def _check_room(self, told: Registration, address: BrokerAddress) -> None:
        bounds, topics = self.bounds, told.topics.topic_config_table
        if len(topics) > bounds.registration_topics_max:
            self._refuse(
                told, f"it has {len(topics)} topics, registerBrokerTopicMaxNum", bounds.registration_topics_max
            )
        is_new = address not in self._live or told.name not in self._brokers
        count = max(len(self._live), len(self._brokers))
        if is_new and count >= bounds.brokers_max:
            self._refuse(told, f"{count} brokers are registered, registeredBrokerMaxNum", bounds.brokers_max)
        if self._routes_count + len(topics) > bounds.routes_max:
            known = self._topics_of.get(told.name, {})
            if self._routes_count + sum(topic not in known for topic in topics) > bounds.routes_max:
                text = f"the brokers have {self._routes_count} topics, registeredTopicMaxNum"
                self._refuse(told, text, bounds.routes_max)

    def _refuse(self, told: Registration, text: str, most: int) -> None:
        raise SettingRefused(
            ResponseCode.SYSTEM_ERROR, f"broker {told.name[:80]} is not registered: {text} allows {most}"
        )

    def _enter(self, name: str, config: TopicConfig, *, read_only: bool) -> None:
        permission = config.perm & ~Permission.WRITE if read_only else config.perm
        data = QueueData(name, config.read_queue_nums, config.write_queue_nums, permission, config.topic_sys_flag)
        self._put(config.topic_name, name, data)

    def _put(self, topic: str, name: str, data: QueueData) -> None:
        topics = self._topics_of.setdefault(name, {})
        self._routes_count += topic not in topics
        topics[topic] = None
        self._topics.setdefault(topic, {})[name] = data

    def _remove(self, topic: str, name: str) -> None:
        topics, queues = self._topics_of.get(name, {}), self._topics.get(topic, {})
        if topic in topics:
            self._routes_count -= 1
            del topics[topic], queues[name]
            if not topics:
                del self._topics_of[name]
            if not queues:
                del self._topics[topic]

    def _note_live(self, address: BrokerAddress, told: Registration, connection: object, now_ms: int) -> None:
        if address not in self._live:
            log.info(
                "broker %s registers [name: %s, id: %d, cluster: %s]",
                told.address,
                told.name,
                told.broker_id,
                told.cluster,
            )
        known = self._live.get(address)
        self._forget_live(address)
        self._by_connection.setdefault(connection, {})[address] = None
        self._live[address] = _Live(
            now_ms,
            EXPIRED_MS if told.timeout_ms is None else told.timeout_ms,
            told.topics.data_version,
            told.ha_address,
            connection,
            {**({} if known is None else known.names), told.name: None},
        )

    def _forget_live(self, address: BrokerAddress) -> None:
        live = self._live.pop(address, None)
        if live is not None:
            addresses = self._by_connection[live.connection]
            del addresses[address]
            if not addresses:
                del self._by_connection[live.connection]

    def heard(self, address: BrokerAddress, now_ms: int, connection: object) -> None:
        """Note a broker's heartbeat, unless another connection has registered it."""
        live = self._live.get(address)
        if live is not None and live.connection is connection:
            live.heard_ms = now_ms

    def owners_at(self, address: str) -> list[tuple[str, object]]:
        """Return the names under which the broker at an address is registered, each with its connection."""
        found = []
        for name, brokers in self._brokers.items():
            live = self._live.get(BrokerAddress(brokers.cluster, address))
            if live is not None and address in brokers.addresses.values():
                found.append((name, live.connection))
        return found

    def owner_of(self, name: str, address: str) -> object | None:
        """Return the connection that has registered a broker, if any."""
        brokers = self._brokers.get(name)
        if brokers is None or address not in brokers.addresses.values():
            return None
        live = self._live.get(BrokerAddress(brokers.cluster, address))
        return None if live is None else live.connection

    def holder(self, name: str, broker_id: int) -> Holder | None:
        """Return the live broker with an id of a name, if any."""
        brokers = self._brokers.get(name)
        address = None if brokers is None else brokers.addresses.get(broker_id)
        live = None if brokers is None or address is None else self._live.get(BrokerAddress(brokers.cluster, address))
        return None if address is None or live is None else Holder(address, live.version.state_version, live.connection)

    def version_of(self, address: BrokerAddress) -> DataVersion | None:
        """Return the version of a registered broker's topics; None if it is not registered."""
        live = self._live.get(address)
        return None if live is None else live.version

    def unregister(self, name: str, address: BrokerAddress) -> None:
        live = self._live.get(address)
        if live is not None:
            live.names.pop(name, None)
            if not live.names:
                self._forget_live(address)
        brokers = self._brokers.get(name)
        if brokers is None:
            return
        had_least = bool(brokers.addresses) and brokers.addresses[min(brokers.addresses)] == address.address
        brokers.addresses = {each: at for each, at in brokers.addresses.items() if at != address.address}
        if brokers.addresses:
            if had_least and brokers.acting_master and self.tells_least:
                least = min(brokers.addresses)
                others = tuple(brokers.addresses.values())
                self.least_changed(LeastId(others, least, brokers.addresses[least], address.address))
            if brokers.acting_master and MASTER_ID not in brokers.addresses:
                self._change_permission(name, lambda permission: int(permission & ~Permission.WRITE))
            return
        del self._brokers[name]
        names = self._clusters.get(address.cluster, {})
        names.pop(name, None)
        if not names:
            self._clusters.pop(address.cluster, None)
        for topic in list(self._topics_of.get(name, ())):
            self._remove(topic, name)

    def expire(self, now_ms: int) -> list[object]:
        """Remove the brokers without a heartbeat in their time; return their connections."""
        connections = []
        for address, live in list(self._live.items()):
            if now_ms - live.heard_ms > live.timeout_ms:
                log.warning("broker %s was silent for %d ms", address.address, live.timeout_ms)
                self._take_out(address)
                connections.append(live.connection)
        return connections

    def disconnected(self, connection: object) -> None:
        for address in list(self._by_connection.get(connection, ())):
            self._take_out(address)

    def _take_out(self, address: BrokerAddress) -> None:
        live = self._live.get(address)
        for name in list(live.names if live is not None else ()):
            self.unregister(name, address)

    # -- topics

    def route(self, topic: str) -> TopicRoute | None:
        queues = self._topics.get(topic)
        brokers = [self._data(name) for name in queues or () if name in self._brokers]
        if not queues or not brokers:
            return None
        if self._supports_acting_master and not topic.startswith(MEMBER_GROUP_PREFIX):
            brokers = [self._with_acting_master(data, queues[data.broker_name]) for data in brokers]
        return TopicRoute(brokers, list(queues.values()))

    def _with_acting_master(self, data: BrokerData, queues: QueueData) -> BrokerData:
        """Present the broker with the least id as master where there is none and nothing can be written."""
        addresses = data.broker_addrs
        if MASTER_ID in addresses or not data.enable_acting_master or queues.perm & Permission.WRITE or not addresses:
            return data
        least = min(addresses)
        others = {each: address for each, address in addresses.items() if each != least}
        return data._replace(broker_addrs={**others, MASTER_ID: addresses[least]})

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Add a topic that brokers have not registered; do nothing if one of them is unknown."""
        by_name = {each.broker_name: each for each in queues}
        if by_name and all(name in self._brokers for name in by_name):
            if self._routes_count + len(by_name) > self.bounds.routes_max:
                bound = f"registeredTopicMaxNum allows {self.bounds.routes_max}"
                text = f"topic {topic[:80]} is not registered: the brokers have {self._routes_count} topics, {bound}"
                raise SettingRefused(ResponseCode.SYSTEM_ERROR, text)
            for name, data in by_name.items():
                self._put(topic, name, data)

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        names = self._clusters.get(cluster, ()) if cluster else self._topics.get(topic, ())
        for name in list(names):
            self._remove(topic, name)

    def wipe_write_permission(self, name: str) -> int:
        return self._change_permission(name, lambda permission: int(permission & ~Permission.WRITE))

    def add_write_permission(self, name: str) -> int:
        """Make the topics of a broker readable and writable; return their number."""
        return self._change_permission(name, lambda _: int(Permission.READ | Permission.WRITE))

    def _change_permission(self, name: str, change: Callable[[int], int]) -> int:
        concerned = [self._topics[topic] for topic in self._topics_of.get(name, ())]
        for queues in concerned:
            queues[name] = queues[name]._replace(perm=change(queues[name].perm))
        return len(concerned)

    # -- queries

    def _data(self, name: str) -> BrokerData:
        brokers = self._brokers[name]
        return BrokerData(brokers.cluster, name, dict(brokers.addresses), brokers.acting_master, brokers.zone)

    def cluster_info(self) -> ClusterInfo:
        names = {cluster: list(names) for cluster, names in self._clusters.items()}
        return ClusterInfo({name: self._data(name) for name in self._brokers}, names)

    def member_group(self, cluster: str, name: str) -> BrokerMemberGroup:
        brokers = self._brokers.get(name)
        return BrokerMemberGroup(cluster, name, dict(brokers.addresses) if brokers is not None else {})

    def topics(self, matching: Callable[[QueueData], bool] | None = None) -> list[str]:
        """Return the names of all topics, or of those whose first queues match."""
        return [
            topic
            for topic, queues in self._topics.items()
            if matching is None or any(map(matching, list(queues.values())[:1]))
        ]

    def topics_of_cluster(self, cluster: str) -> list[str]:
        names = self._clusters.get(cluster, {})
        return [topic for topic, queues in self._topics.items() if any(name in queues for name in names)]

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return the names of clusters and brokers, which are topics too, and the address of some broker."""
        names = [each for cluster, brokers in self._clusters.items() for each in (cluster, *brokers)]
        addresses = (address for brokers in self._brokers.values() for address in brokers.addresses.values())
        return names, next(addresses, None)
