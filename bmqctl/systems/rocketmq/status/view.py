"""The state of a RocketMQ cluster, assembled from the answers of its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from formats.rocketmq.hosts import split_address
from formats.rocketmq.numbers import read_digits
from formats.rocketmq.remoting.bodies.controllers import ReplicaIdentity, Replicas
from formats.rocketmq.remoting.bodies.replication import EpochCache, HaRuntime
from formats.rocketmq.remoting.bodies.routes import MASTER_ID, ClusterInfo
from formats.rocketmq.remoting.headers.replicating import GetControllerMetadataResponse

__all__ = [
    "Broker",
    "BrokerAnswers",
    "Controller",
    "Heard",
    "Name",
    "Nameserver",
    "Unheard",
    "View",
    "number_of",
    "peers_of",
    "view_of",
]

# The original's defaults.
MIN_IN_SYNC = 1
GAP_BYTES_MAX = 256 << 20


class Unheard(NamedTuple):
    """The reason for the lack of an answer."""

    reason: str


class BrokerAnswers(NamedTuple):
    """Answers of a broker. One without a controller has no epochs; one that refuses the request has no properties."""

    properties: Mapping[str, str]
    replication: HaRuntime
    epochs: EpochCache | None
    runtime: Mapping[str, str] = MappingProxyType({})


class Heard(NamedTuple):
    """All answers, by address. `sets` are the leading controller's, by the names of brokers.

    `refusal` is the reason if it refused them.
    """

    nameservers: Mapping[str, ClusterInfo | Unheard]
    controllers: Mapping[str, GetControllerMetadataResponse | Unheard]
    sets: Mapping[str, Replicas]
    brokers: Mapping[str, BrokerAnswers | Unheard]
    refusal: str | None = None


class Nameserver(NamedTuple):
    """A nameserver, and the address of the master of each name that it knows; None for a name without one."""

    address: str
    error: str | None
    masters: dict[str, str | None]


class Controller(NamedTuple):
    """A controller, and the leader by its word. `peers` are the addresses of all, by its word."""

    address: str
    error: str | None = None
    group: str | None = None
    leader: str | None = None
    is_leader: bool = False
    peers: tuple[str, ...] = ()


class Broker(NamedTuple):
    """A broker of a name. `is_alive` and `is_in_sync` are the controller's word, None without it.

    `epoch` is the last of its log, which ends at `end`; `behind` is the number of the master's bytes that it lacks.
    `heard_ms` is the time of day at which a slave last heard of its master. `disk_alarm` names the unconsumed messages
    that will be removed from its full disk, or is empty.
    """

    address: str
    broker_id: int | None
    is_master: bool
    is_alive: bool | None = None
    is_in_sync: bool | None = None
    is_registered: bool = False
    error: str | None = None
    role: str | None = None
    acts_as_master: bool | None = None
    wants_controller: bool = False
    epoch: int | None = None
    end: int | None = None
    behind: int | None = None
    heard_ms: int | None = None
    disk_alarm: str = ""


class Name(NamedTuple):
    """The brokers of one name. Without a controller that knows them, both epochs are None.

    `least` brokers must be in sync for the master to accept messages or, without a controller, have a message before it
    is acknowledged.
    """

    name: str
    cluster: str
    master_epoch: int | None
    members_epoch: int | None
    least: int
    gap_max: int
    slaves_in_sync: int | None
    brokers: list[Broker]

    @property
    def master(self) -> Broker | None:
        return next((each for each in self.brokers if each.is_master), None)

    @property
    def has_controller(self) -> bool:
        return self.master_epoch is not None


class View(NamedTuple):
    """A cluster. `refusal` is as `Heard` has it."""

    nameservers: list[Nameserver]
    controllers: list[Controller]
    names: list[Name]
    refusal: str | None = None

    @property
    def leader(self) -> str | None:
        return next((each.address for each in self.controllers if each.is_leader), None)


def view_of(heard: Heard) -> View:
    nameservers = [_nameserver(address, answer) for address, answer in sorted(heard.nameservers.items())]
    controllers = [_controller(address, answer) for address, answer in sorted(heard.controllers.items())]
    registered = _registered(heard)
    return View(
        nameservers,
        controllers,
        [_name(name, heard, registered.get(name, {})) for name in sorted(registered.keys() | heard.sets.keys())],
        heard.refusal,
    )


def peers_of(text: str | None) -> tuple[str, ...]:
    """Parse addresses of controllers: `ID:HOST:PORT;...` or, of the original's other kind, `HOST:PORT;...`."""
    found = []
    for word in (text or "").split(";"):
        before, _, port = word.strip().rpartition(":")
        # Neither an id nor a host has a colon, except an IPv6 address in its brackets.
        host = before[before.index("[") :] if "[" in before else before.rpartition(":")[2]
        if split_address(f"{host}:{port}") is not None:
            found.append(f"{host}:{port}")
    return tuple(found)


def number_of(properties: Mapping[str, str], name: str, default: int) -> int:
    number = read_digits(properties.get(name))
    return default if number is None else number


def _nameserver(address: str, answer: ClusterInfo | Unheard) -> Nameserver:
    if isinstance(answer, Unheard):
        return Nameserver(address, answer.reason, {})
    table = answer.broker_addr_table
    return Nameserver(address, None, {name: data.broker_addrs.get(MASTER_ID) for name, data in sorted(table.items())})


def _controller(address: str, answer: GetControllerMetadataResponse | Unheard) -> Controller:
    if isinstance(answer, Unheard):
        return Controller(address, answer.reason)
    leader = answer.controller_leader_address or None
    return Controller(address, None, answer.group, leader, answer.is_leader, peers_of(answer.peers))


def _registered(heard: Heard) -> dict[str, dict[str, tuple[str, int]]]:
    """The brokers that nameservers know, by name and address: the cluster, and the id, in which 0 is the master."""
    found: dict[str, dict[str, tuple[str, int]]] = {}
    for answer in heard.nameservers.values():
        if isinstance(answer, ClusterInfo):
            for name, data in answer.broker_addr_table.items():
                of_name = found.setdefault(name, {})
                for broker_id, address in data.broker_addrs.items():
                    known = of_name.get(address)
                    # Nameservers may disagree; a master for one is a master.
                    least = broker_id if known is None else min(known[1], broker_id)
                    of_name[address] = (data.cluster, least)
    for address, told in heard.brokers.items():
        # Only the broker itself knows its name: it was given, and its nameservers were not.
        name = told.properties.get("brokerName", "") if isinstance(told, BrokerAnswers) else ""
        if isinstance(told, BrokerAnswers) and name and name not in heard.sets and name not in found:
            broker_id = MASTER_ID if told.replication.master else number_of(told.properties, "brokerId", 1)
            found[name] = {address: (told.properties.get("brokerClusterName", ""), broker_id)}
    return found


def _name(name: str, heard: Heard, registered: Mapping[str, tuple[str, int]]) -> Name:
    told = heard.sets.get(name)
    brokers = list(_brokers(told, heard, registered))
    master = next((each for each in brokers if each.is_master), None)
    answers = None if master is None else heard.brokers.get(master.address)
    properties = answers.properties if isinstance(answers, BrokerAnswers) else {}
    in_sync = answers.replication.in_sync_slave_nums if isinstance(answers, BrokerAnswers) else None
    clusters = {cluster for cluster, _ in registered.values()} | set(_clusters(heard, brokers))
    return Name(
        name,
        min(clusters, default=""),
        None if told is None else told.master_epoch,
        None if told is None else told.sync_state_set_epoch,
        number_of(properties, "inSyncReplicas" if told is None else "minInSyncReplicas", MIN_IN_SYNC),
        number_of(properties, "haMaxGapNotInSync", GAP_BYTES_MAX),
        in_sync,
        [_with_lag(each, master) for each in brokers],
    )


def _clusters(heard: Heard, brokers: list[Broker]) -> Iterator[str]:
    for each in brokers:
        answers = heard.brokers.get(each.address)
        if isinstance(answers, BrokerAnswers) and answers.epochs is not None:
            yield answers.epochs.cluster_name


def _brokers(told: Replicas | None, heard: Heard, registered: Mapping[str, tuple[str, int]]) -> Iterator[Broker]:
    """The brokers of a name: first the controller's, by id, then brokers that only nameservers know."""
    known: set[str] = set()
    if told is not None:
        replicas = [(each, True) for each in told.in_sync_replicas] + [
            (each, False) for each in told.not_in_sync_replicas
        ]
        for each, is_in_sync in sorted(replicas, key=lambda pair: pair[0].broker_id):
            known.add(each.broker_address)
            yield _controlled(told, each, is_in_sync, heard, each.broker_address in registered)
    for address, (_, broker_id) in sorted(registered.items(), key=lambda item: (item[1][1], item[0])):
        if address not in known:
            is_master = told is None and broker_id == MASTER_ID
            yield _with_answers(Broker(address, broker_id, is_master, is_registered=True), heard)


def _controlled(told: Replicas, each: ReplicaIdentity, is_in_sync: bool, heard: Heard, is_registered: bool) -> Broker:
    is_master = told.master_broker_id is not None and each.broker_id == told.master_broker_id
    broker = Broker(each.broker_address, each.broker_id, is_master, each.alive, is_in_sync, is_registered)
    return _with_answers(broker, heard)


def _with_answers(broker: Broker, heard: Heard) -> Broker:
    answers = heard.brokers.get(broker.address)
    if not isinstance(answers, BrokerAnswers):
        return broker._replace(error="it was not asked" if answers is None else answers.reason)
    slave = answers.replication.ha_client_runtime_info
    is_master = answers.replication.master
    end = answers.replication.master_commit_log_max_offset if is_master else slave.max_offset
    epochs = answers.epochs
    if epochs is not None:
        end = max(end, epochs.max_offset)
    return broker._replace(
        role=answers.properties.get("brokerRole"),
        acts_as_master=is_master,
        wants_controller=answers.properties.get("enableControllerMode") == "true",
        epoch=epochs.epoch_list[-1].epoch if epochs is not None and epochs.epoch_list else None,
        end=end,
        heard_ms=None if is_master else slave.last_read_ms or None,
        disk_alarm=answers.runtime.get("unconsumedFileAlarm", ""),
    )


def _with_lag(broker: Broker, master: Broker | None) -> Broker:
    if broker.is_master or master is None or master.end is None or broker.end is None:
        return broker
    # A slave, asked later, may have received more.
    return broker._replace(behind=max(0, master.end - broker.end))
