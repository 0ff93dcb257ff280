"""The configuration of a RocketMQ node: the properties of the original's `broker.conf`, as far as they matter here.

Source: BrokerConfig, NettyServerConfig, MessageStoreConfig.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from broker.rocketmq.access.guard import AccessOptions
from broker.rocketmq.assembly.access_config import ACCESS_READERS, read_access
from broker.rocketmq.assembly.other_stores import KIND_PROPERTIES, asked_kinds
from broker.rocketmq.assembly.places import PLACES, StorePlaces
from broker.rocketmq.assembly.property_readers import (
    MISREAD,
    PropertyError,
    index_faults,
    is_misread,
    number,
    properties_of,
    raise_first,
    read_addresses,
    read_bool,
    read_broker_id,
    read_consume_queue_bytes,
    read_flush_type,
    read_hours,
    read_master_role,
    read_metrics_exporter,
    read_path,
    read_paths,
    read_role,
    read_text,
)
from broker.rocketmq.controller.options import ControllerOptions, read_peers, write_peers
from broker.rocketmq.nameserver.bounds import BOUNDS as NAMESERVER_BOUNDS
from broker.rocketmq.nameserver.bounds import NameserverBounds
from broker.rocketmq.remoting.administrators import Network, read_networks
from broker.rocketmq.replication.options import ReplicationOptions, Role
from broker.rocketmq.sending.transactions import TransactionTimes
from broker.rocketmq.store.message_store import StoreOptions
from broker.rocketmq.tables.options import BOUNDS as BROKER_BOUNDS
from broker.rocketmq.tables.options import DELAY_LEVELS, BrokerOptions, parse_delay_levels
from broker.rocketmq.tables.topics import QUEUES_MAX
from formats.rocketmq.hosts import Host, split_address
from formats.rocketmq.remoting.bodies.access import UserInfo
from formats.rocketmq.remoting.bodies.clients import HEARTBEAT_GROUPS_MAX
from formats.rocketmq.remoting.replication import BODY_BYTES_MAX

__all__ = [
    "BROKER_READERS",
    "CONTROLLER_LOCKED",
    "CONTROLLER_READERS",
    "LOCKED",
    "MISREAD",
    "NAMESERVER_DEFAULTS",
    "NAMESERVER_LOCKED",
    "NAMESERVER_READERS",
    "PropertyError",
    "RocketConfig",
    "load_rocketmq_config",
    "properties_of",
]

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
GRPC_PORT: Final = 8081
REMOTING_PORT: Final = 8080


@dataclass(frozen=True)
class RocketConfig:
    """A node: where it listens, what it tells of itself, and its store. `nameservers` are those elsewhere.

    `grpc_port` and `remoting_port`, that of remoting clients to whom one address is nameserver and broker, are 0 if
    they are not to be served; None leaves it to the node, which does without a port that is taken.

    `first_user` is made if there is none of its name, and so are `inner_credentials`, by which the broker signs what it
    tells nameservers; `plain_accounts` is the file with accounts of ACL 1.0. `unused` are the properties of the file
    that mean nothing here, and `doubts` those whose value is not what it seems to be; `file` is that file, if there is
    one.

    The nodes of a group prove to each other that they know `peer_secret`, if it is set. Otherwise, if
    `checks_peer_address`, each node has to connect from its own host. `administrators` are the networks that
    administrators of nameservers and controllers connect from.
    """

    store: Path = Path("rocketmq-data")
    bind_address: str = "127.0.0.1"
    port: int = 10911
    nameserver_port: int = 9876
    grpc_port: int | None = None
    remoting_port: int | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_test_mode: bool = True
    nameservers: tuple[str, ...] = ()
    told_address: str | None = None
    flush_sync: bool = False
    flush_interval_ms: int = 500
    sync_flush_timeout_ms: int = 5_000
    auto_create_group: bool = True
    reserved_hours: int = 72
    delete_hours: frozenset[int] = frozenset({4})
    forced_after_ms: int = 3_600_000
    supports_acting_master: bool = False
    tells_least_id: bool = False
    replication: ReplicationOptions = field(default_factory=ReplicationOptions)
    has_controller: bool = False
    controller_store: Path | None = None
    controller: ControllerOptions = field(default_factory=ControllerOptions)
    nameserver_bounds: NameserverBounds = field(default_factory=NameserverBounds)
    options: BrokerOptions = field(default_factory=lambda: BrokerOptions(delay_levels_ms=_DELAYS_MS))
    store_options: StoreOptions = field(default_factory=StoreOptions)
    times: TransactionTimes = field(default_factory=TransactionTimes)
    access: AccessOptions = field(default_factory=AccessOptions)
    first_user: UserInfo | None = None
    inner_credentials: UserInfo | None = None
    peer_secret: bytes | None = field(default=None, repr=False)
    checks_peer_address: bool = True
    administrators: tuple[Network, ...] | None = None
    plain_accounts: Path | None = None
    exports_metrics: bool = False
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 5557
    connection_bytes_max: int = 256 << 20
    places: StorePlaces = field(default_factory=StorePlaces)
    unused: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    file: Path | None = None

    @property
    def broker_options(self) -> BrokerOptions:
        """The broker's options, with the address that it tells others. Raises `PropertyError` without one to tell."""
        address = self.told_address or self.bind_address
        if address in ("0.0.0.0", "::"):
            raise PropertyError(
                f"clients cannot connect to {address}",
                "set the address of this host for them: --address, or brokerIP1 in the configuration",
            )
        host = Host(address, self.port)
        try:
            host.pack()
        except ValueError:
            raise PropertyError(
                f"'{address}' is not an IP address", "set the one that clients connect to (--address, brokerIP1)"
            ) from None
        ha_address = "" if self.ha_listen_port is None else str(Host(address, self.ha_listen_port))
        silent_ms = self.replication.silent_ms if self.replication.has_acting_master else None
        return replace(self.options, address=host, ha_address=ha_address, silent_ms=silent_ms)

    @property
    def other_nameservers(self) -> list[str]:
        """The nameservers other than that of this process, which needs no connection to its broker."""
        own = {str(Host(each, self.nameserver_port)) for each in (self.broker_options.address.address, "127.0.0.1")}
        return [name for name in self.nameservers if name not in own and name != f"localhost:{self.nameserver_port}"]

    @property
    def grpc_listen_port(self) -> int | None:
        """The port for gRPC; None if there is none, as with a slave that is not told otherwise."""
        return self._asked_or_usual(self.grpc_port, GRPC_PORT)

    @property
    def remoting_listen_port(self) -> int | None:
        """The port for clients that are given one address only; None if there is none, as with gRPC."""
        return self._asked_or_usual(self.remoting_port, REMOTING_PORT)

    def _asked_or_usual(self, port: int | None, usual: int) -> int | None:
        default = None if self.replication.role is Role.SLAVE else usual
        return default if port is None else port or None

    @property
    def ha_listen_port(self) -> int | None:
        """The port that slaves connect to; None if there is none, as with a slave that stays one."""
        port = self.replication.port
        if self.replication.is_controlled:
            return port or self.port + 1
        return None if port is None or self.replication.role is Role.SLAVE else port or self.port + 1

    def with_role(
        self, role: Role | None = None, broker_id: int | None = None, ha_port: int | None = None
    ) -> RocketConfig:
        """Make the configuration of a master or of a slave. What is None stays as it is. Raises `PropertyError`.

        With a controller, neither the role nor the id are configured.
        """
        if self.replication.is_controlled:
            return self._with_controller(ha_port)
        # Slaves may come to a broker of which it is said that it is a master.
        default = 0 if role is not None and self.replication.port is None else self.replication.port
        role = role or self.replication.role
        broker_id = self.options.broker_id if broker_id is None else broker_id
        if role is Role.SLAVE and broker_id <= 0:
            raise PropertyError("a slave needs an id that no other broker of its name has, 1 or more (brokerId)")
        # As in the original, a master's id is 0, whatever is configured.
        options = replace(self.options, broker_id=broker_id if role is Role.SLAVE else 0)
        port = default if ha_port is None else ha_port
        return replace(self, options=options, replication=replace(self.replication, role=role, port=port))

    def _with_controller(self, ha_port: int | None) -> RocketConfig:
        if not self.replication.controllers:
            raise PropertyError("a broker with a controller has to know its address", "set controllerAddr to HOST:PORT")
        port = self.replication.port if ha_port is None else ha_port
        # Who is elected needs nobody who acts as master.
        replication = replace(self.replication, role=Role.SLAVE, port=port, has_acting_master=False)
        return replace(self, replication=replication)

    @property
    def properties(self) -> dict[str, str]:
        """The properties in force, by the original's names."""
        found = _texts(_NODE, self) | _texts(_BROKER, self.options) | _texts(_STORE, self.store_options)
        found |= _texts(_TIMES, self.times) | _texts(_REPLICATION, self.replication) | _texts(PLACES, self.places)
        found["authenticationEnabled"] = str(self.access.authentication).lower()
        found["authorizationEnabled"] = str(self.access.authorization).lower()
        return found

    @property
    def controller_properties(self) -> dict[str, str]:
        """The properties of the controller in force, by the original's names."""
        return _texts(_CONTROLLER, self.controller)

    @property
    def nameserver_properties(self) -> dict[str, str]:
        """The properties of the nameserver that administrators may change."""
        return {
            "supportActingMaster": str(self.supports_acting_master).lower(),
            "notifyMinBrokerIdChanged": str(self.tells_least_id).lower(),
            **_texts(_NAMESERVER, self.nameserver_bounds),
        }

    @property
    def controller_port(self) -> int | None:
        """The port of this node's controller; None if it has none, or none that is configured."""
        address = self.controller.peers.get(self.controller.self_id) if self.has_controller else None
        found = None if address is None else split_address(address)
        return None if found is None else found[1]

    def changed(self, **changes: Any) -> RocketConfig:
        """The configuration with changes; those that are None change nothing."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})


_DELAYS_MS: Final[tuple[int, ...]] = parse_delay_levels(DELAY_LEVELS)
_Read = Callable[[str], Any]
_Table = dict[str, tuple[_Read, str]]

_PORT, _PORT_OR_NONE = number(1, 65_535), number(0, 65_535)
_PERIOD_MS = number(100, 3_600_000)
_FILE_BYTES = number(4096, (1 << 31) - 1)
_COUNT = number(1, (1 << 31) - 1)

# By property: what reads it, and the field that it sets, of the node, of the broker or of the store.
_NODE: Final[_Table] = {
    "storePathRootDir": (read_path, "store"),
    "bindAddress": (read_text, "bind_address"),
    "listenPort": (_PORT, "port"),
    "nameserverPort": (_PORT, "nameserver_port"),  # not one of the original's
    "grpcServerPort": (_PORT_OR_NONE, "grpc_port"),
    "remotingListenPort": (_PORT_OR_NONE, "remoting_port"),
    "tlsCertPath": (read_path, "tls_certificate"),
    "tlsKeyPath": (read_path, "tls_key"),
    "tlsTestModeEnable": (read_bool, "tls_test_mode"),
    "namesrvAddr": (read_addresses, "nameservers"),
    "peerAddressCheckEnable": (read_bool, "checks_peer_address"),  # not one of the original's
    "administratorAddresses": (read_networks, "administrators"),  # not one of the original's
    "brokerIP1": (read_text, "told_address"),
    "flushDiskType": (read_flush_type, "flush_sync"),
    "syncFlushTimeout": (number(0, 3_600_000), "sync_flush_timeout_ms"),
    "flushIntervalCommitLog": (number(1, 3_600_000), "flush_interval_ms"),
    "autoCreateSubscriptionGroup": (read_bool, "auto_create_group"),
    "fileReservedTime": (number(1, 1_000_000), "reserved_hours"),
    "deleteWhen": (read_hours, "delete_hours"),
    "cleanFileForciblyInterval": (number(0, 1 << 40), "forced_after_ms"),  # not one of the original's
    "enableControllerInNamesrv": (read_bool, "has_controller"),
    "controllerStorePath": (read_path, "controller_store"),
    "supportActingMaster": (read_bool, "supports_acting_master"),
    "notifyMinBrokerIdChanged": (read_bool, "tells_least_id"),
    "metricsExporterType": (read_metrics_exporter, "exports_metrics"),
    "metricsPromExporterHost": (read_text, "metrics_host"),
    "metricsPromExporterPort": (_PORT, "metrics_port"),
    "maxConnectionBufferSize": (number(64 << 20, 1 << 40), "connection_bytes_max"),  # not one of the original's
}
_BROKER: Final[_Table] = {
    "brokerClusterName": (read_text, "cluster"),
    "brokerName": (read_text, "name"),
    "brokerId": (read_broker_id, "broker_id"),
    "regionId": (read_text, "region"),
    "traceOn": (read_bool, "trace_on"),
    "brokerPermission": (number(0, 7), "permission"),
    "autoCreateTopicEnable": (read_bool, "auto_create_topic"),
    "defaultTopicQueueNums": (number(1, 65_536), "default_topic_queues"),
    "maxMessageSize": (number(1, 16 << 20), "message_bytes_max"),
    "messageDelayLevel": (parse_delay_levels, "delay_levels_ms"),
    "enablePropertyFilter": (read_bool, "property_filter"),
    "reviveQueueNum": (number(1, 1024), "revive_queues"),
    "slaveReadEnable": (read_bool, "slave_read"),
    "timerMaxDelaySec": (_COUNT, "timer_delay_max_s"),
    **{name: (_COUNT, option) for name, option in BROKER_BOUNDS.items()},
    "topicQueueMaxNum": (number(1, QUEUES_MAX), "topic_queues_max"),
    "heartbeatGroupMaxNum": (number(1, HEARTBEAT_GROUPS_MAX), "heartbeat_groups_max"),
}
_REPLICATION: Final[_Table] = {
    "brokerRole": (read_role, "role"),
    "inSyncReplicas": (number(1, 1024), "in_sync_replicas"),
    "slaveTimeout": (number(1, 3_600_000), "slave_timeout_ms"),
    "haMaxGapNotInSync": (number(1, 1 << 62), "gap_bytes_max"),
    "haSendHeartbeatInterval": (number(1, 3_600_000), "heartbeat_ms"),
    "haHousekeepingInterval": (number(1, 3_600_000), "silence_ms"),
    "haTransferBatchSize": (number(1, BODY_BYTES_MAX), "piece_bytes"),
    "haMasterAddress": (read_text, "master_address"),
    "syncFromLastFile": (read_bool, "from_last_file"),
    "haListenPort": (_PORT_OR_NONE, "port"),
    "accessMessageInMemoryMaxRatio": (number(1, 100), "memory_percent"),
    "enableControllerMode": (read_bool, "is_controlled"),
    "controllerAddr": (read_addresses, "controllers"),
    "allAckInSyncStateSet": (read_bool, "all_in_sync"),
    "minInSyncReplicas": (number(1, 1024), "in_sync_replicas_min"),
    "haMaxTimeSlaveNotCatchup": (number(1, 3_600_000), "behind_ms_max"),
    "checkSyncStateSetPeriod": (number(1, 3_600_000), "check_ms"),
    "brokerHeartbeatInterval": (number(1, 3_600_000), "beat_ms"),
    "controllerHeartBeatTimeoutMills": (number(1, 3_600_000), "gone_ms"),
    "brokerElectionPriority": (number(0, (1 << 31) - 1), "priority"),
    "syncBrokerMetadataPeriod": (number(1, 3_600_000), "sync_ms"),
    "syncControllerMetadataPeriod": (number(1, 3_600_000), "leader_ms"),
    "enableSlaveActingMaster": (read_bool, "has_acting_master"),
    "enableAutoInSyncReplicas": (read_bool, "auto_in_sync"),
    "totalReplicas": (number(1, 1024), "total_replicas"),
    "brokerNotActiveTimeoutMillis": (number(1000, 3_600_000), "silent_ms"),
    "syncBrokerMemberGroupPeriod": (_PERIOD_MS, "members_ms"),
}
_NAMESERVER: Final = {name: (_COUNT, attribute) for name, attribute in NAMESERVER_BOUNDS.items()}
_CONTROLLER: Final[_Table] = {
    "controllerDLegerGroup": (read_text, "group"),
    "controllerDLegerPeers": (read_peers, "peers"),
    "controllerDLegerSelfId": (read_text, "self_id"),
    "enableElectUncleanMaster": (read_bool, "unclean"),
    "notifyBrokerRoleChanged": (read_bool, "notifies"),
    "scanNotActiveBrokerInterval": (_PERIOD_MS, "scan_silent_ms"),
    "scanInactiveMasterInterval": (_PERIOD_MS, "scan_masters_ms"),
}
_TIMES: Final[_Table] = {
    "transactionCheckInterval": (number(100, 1 << 31), "check_interval_ms"),
    "transactionTimeOut": (number(1, 1 << 31), "timeout_ms"),
    "transactionCheckMax": (_COUNT, "checks_max"),
}
_STORE: Final[_Table] = {
    "mappedFileSizeCommitLog": (_FILE_BYTES, "commit_log_file_bytes"),
    "mappedFileSizeConsumeQueue": (read_consume_queue_bytes, "consume_queue_file_bytes"),
    "maxHashSlotNum": (number(1, 1 << 30), "index_slots"),
    "maxIndexNum": (number(2, 1 << 30), "index_entries"),
}


# How those are written that are not as Python writes their values.
_WRITERS: Final[dict[str, Callable[[Any], str]]] = {
    "metricsExporterType": lambda is_wanted: "PROM" if is_wanted else "DISABLE",
    "flushDiskType": lambda is_sync: "SYNC_FLUSH" if is_sync else "ASYNC_FLUSH",
    "namesrvAddr": ";".join,
    "storePathCommitLog": lambda paths: ",".join(map(str, paths)),
    "readOnlyCommitLogStorePaths": lambda paths: ",".join(map(str, paths)),
    "administratorAddresses": lambda networks: ",".join(map(str, networks)),
    "controllerAddr": ";".join,
    "deleteWhen": lambda hours: ";".join(f"{hour:02d}" for hour in sorted(hours)),
    "brokerRole": lambda role: role.value,
    "controllerDLegerPeers": write_peers,
    "messageDelayLevel": lambda delays: " ".join(f"{delay // 1000}s" for delay in delays),
}


def _texts(table: _Table, values: Any) -> dict[str, str]:
    """Write the properties of a table that have a value."""
    found = {}
    for name, (_, attribute) in table.items():
        value = getattr(values, attribute)
        if value is not None:
            text = _WRITERS.get(name, str)(value)
            found[name] = text.lower() if text in ("True", "False") else text
    return found


# By property, how its value is read; for administrators, who change some while the broker runs.
BROKER_READERS: Final[dict[str, _Read]] = {
    **{
        name: read
        for table in (_NODE, _BROKER, _STORE, PLACES, _TIMES, _REPLICATION)
        for name, (read, _) in table.items()
    },
    "brokerRole": read_master_role,
    "authenticationEnabled": read_bool,
    "authorizationEnabled": read_bool,
}
# The original's default for configBlackList, and the properties by which nodes are recognized.
LOCKED: Final = frozenset(
    {
        "configBlackList",
        "brokerConfigPath",
        "initAuthenticationUser",
        "innerClientAuthenticationCredentials",
        "peerSecretKey",
        "peerAddressCheckEnable",
        "administratorAddresses",
    }
)
# The controller's properties (source: ControllerConfig).
CONTROLLER_READERS: Final = {name: read for name, (read, _) in _CONTROLLER.items()}
CONTROLLER_LOCKED: Final = frozenset({"configBlackList", "configStorePath", "rocketmqHome"})
# The nameserver's properties (source: NamesrvConfig) that can be changed while it runs.
NAMESERVER_DEFAULTS: Final = {
    "returnOrderTopicConfigToBroker": "true",
    "supportActingMaster": "false",
    "notifyMinBrokerIdChanged": "false",
}
NAMESERVER_READERS: Final[dict[str, _Read]] = {
    **dict.fromkeys(NAMESERVER_DEFAULTS, read_bool),
    **{name: read for name, (read, _) in _NAMESERVER.items()},
}
NAMESERVER_LOCKED: Final = frozenset({"configBlackList", "configStorePath", "kvConfigPath"})


_TABLES: Final[dict[str, _Table]] = {
    "node": _NODE,
    "broker": _BROKER,
    "store": _STORE,
    "times": _TIMES,
    "replication": _REPLICATION,
    "controller": _CONTROLLER,
    "nameserver": _NAMESERVER,
    "places": PLACES,
    "trace": {"traceTopicEnable": (read_bool, "is_on"), "msgTraceTopicName": (read_text, "topic")},
}


class _Sorted:
    """The properties of a file by what they are about, as fields; with those that mean nothing, and all faults."""

    def __init__(self, path: Path, properties: Mapping[str, str]) -> None:
        self._path = path
        self.fields: dict[str, dict[str, Any]] = {part: {} for part in _TABLES}
        self.unused: list[str] = []
        self.doubts: list[str] = []
        self.faults = [*asked_kinds(path, properties)]
        for name, value in properties.items():
            part = next((part for part, table in _TABLES.items() if name in table), None)
            if part is not None:
                self._read(name, value, *_TABLES[part][name], self.fields[part])
            elif name not in ACCESS_READERS and name not in KIND_PROPERTIES:
                self.unused.append(name)

    def _read(self, name: str, value: str, read: _Read, attribute: str, fields: dict[str, Any]) -> None:
        if is_misread(value):
            self.doubts.append(name)
            if read in (read_path, read_paths):
                # A store at another path than is meant would look like an empty one.
                fault = f"{self._path}: {name}: the value {MISREAD}"
                self.faults.append(PropertyError(fault, "write each of them as \\u and four digits, as in \\u00fc"))
        try:
            fields[attribute] = read(value)
        except ValueError as error:
            self.faults.append(PropertyError(f"{self._path}: {name}: '{value}' {error}"))


def load_rocketmq_config(path: Path) -> RocketConfig:
    """The configuration that a file holds. Raises `PropertyError` for values that cannot be used."""
    properties = properties_of(path)
    given = _Sorted(path, properties)
    fields, faults = given.fields, given.faults
    if fields["trace"].get("is_on"):
        fields["broker"]["trace_topic"] = fields["trace"].get("topic", TRACE_TOPIC)
    access: dict[str, Any] = {}
    try:
        access = read_access(path, properties)
    except PropertyError as fault:
        faults += [fault, *fault.others]
    store_options = StoreOptions(**fields["store"])
    faults += index_faults(path, store_options.index_slots, store_options.index_entries)
    raise_first(faults)
    default = RocketConfig()
    reserved_hours = fields["node"].get("reserved_hours", default.reserved_hours)
    config = replace(
        default,
        **fields["node"],
        options=replace(default.options, **fields["broker"]),
        store_options=store_options,
        times=TransactionTimes(**fields["times"], reserved_ms=reserved_hours * 3_600_000),
        places=StorePlaces(**fields["places"], root=fields["node"].get("store")),
        unused=tuple(sorted(given.unused)),
        doubts=tuple(given.doubts),
        file=path,
        replication=replace(default.replication, **fields["replication"]),
        controller=ControllerOptions(**fields["controller"]),
        nameserver_bounds=NameserverBounds(**fields["nameserver"]),
        **access,
    )
    try:
        return config.with_role(fields["replication"].get("role"))
    except PropertyError as fault:
        raise PropertyError(f"{path}: {fault.problem}", fault.remedy) from None
