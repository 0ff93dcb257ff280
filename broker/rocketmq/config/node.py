"""The configuration of a RocketMQ node, from properties like those of the original's `broker.conf`.

Values are texts: pydantic, which reads BlazingMQ's JSON, would call the same readers, and its import costs 8 % of the
processor time of importing a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from broker.common.networks import Network
from broker.rocketmq.access.guard import AccessOptions
from broker.rocketmq.config.other_stores import ASKED, asked_kinds
from broker.rocketmq.config.property_readers import (
    BOOL,
    MISREAD,
    PATH,
    PATHS,
    PropertyError,
    index_faults,
    is_misread,
    properties_of,
    raise_first,
    read_master_role,
)
from broker.rocketmq.config.property_tables import TABLES, read_property, texts
from broker.rocketmq.config.tls import TlsOptions
from broker.rocketmq.controller.options import ControllerOptions
from broker.rocketmq.nameserver.bounds import NameserverBounds
from broker.rocketmq.replication.options import ReplicationOptions, Role
from broker.rocketmq.sending.transactions import TransactionTimes
from broker.rocketmq.store.message_store import StoreOptions
from broker.rocketmq.tables.options import DELAY_LEVELS, BrokerOptions, parse_delay_levels
from formats.rocketmq.hosts import Host, split_address
from formats.rocketmq.remoting.bodies.access import UserInfo
from formats.rocketmq.topic_names import TRACE_TOPIC

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

GRPC_PORT: Final = 8081
REMOTING_PORT: Final = 8080


@dataclass(frozen=True)
class StorePlaces:
    """The paths of parts of a store; None for those in its folder.

    The commit log is in the folders `log` and `read_only_log`; no file is created in the latter. Apache's broker
    ignores the last four of these properties, and keeps these files in the store's folder. `root` is the store's folder
    by the configuration file, which an option may replace.
    """

    log: tuple[Path, ...] | None = None
    read_only_log: tuple[Path, ...] | None = None
    epochs: Path | None = None
    identity: Path | None = None
    queues: Path | None = None
    index: Path | None = None
    checkpoint: Path | None = None
    abort: Path | None = None
    root: Path | None = None


@dataclass(frozen=True)
class RocketConfig:
    """A node: its ports, its address for others, and its store. `nameservers` are other processes.

    `grpc_port` and `remoting_port`, for remoting clients to whom one address is nameserver and broker, are 0 if not
    served; None leaves it to the node, which does without a port that is taken.

    `first_user` is made unless its name exists, as are `inner_credentials`, by which the broker signs requests to
    nameservers; `plain_accounts` is the file with accounts of ACL 1.0. `unused` are the properties of the file that
    mean nothing here, and `doubts` those whose value may not be what it seems; `file` is that file, if any.

    The nodes of a group prove to each other that they know `peer_secret`, if set. Otherwise, with
    `checks_peer_address`, each node must connect from its own host. Administrators of nameservers and controllers
    connect from the networks `administrators`. Connections from `balancers` begin with a header of the PROXY protocol.
    """

    store: Path = Path("rocketmq-data")
    bind_address: str = "127.0.0.1"
    port: int = 10911
    nameserver_port: int = 9876
    grpc_port: int | None = None
    remoting_port: int | None = None
    tls: TlsOptions = field(default_factory=TlsOptions)
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
    has_lmq: bool = False
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
    balancers: tuple[Network, ...] = ()
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
        """The broker's options, with its address for others. Raises `PropertyError` without one."""
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
        """The nameservers other than this process's, which needs no connection to its broker."""
        own = {str(Host(each, self.nameserver_port)) for each in (self.broker_options.address.address, "127.0.0.1")}
        return [name for name in self.nameservers if name not in own and name != f"localhost:{self.nameserver_port}"]

    @property
    def pages_port(self) -> int | None:
        """The port of the pages for monitoring; None if there are none."""
        return self.metrics_port if self.exports_metrics else None

    @property
    def grpc_listen_port(self) -> int | None:
        """The port for gRPC, if any; a slave has none by default."""
        return self._asked_or_usual(self.grpc_port, GRPC_PORT)

    @property
    def remoting_listen_port(self) -> int | None:
        """The port for clients with one address only, if any, as with gRPC."""
        return self._asked_or_usual(self.remoting_port, REMOTING_PORT)

    def _asked_or_usual(self, port: int | None, usual: int) -> int | None:
        default = None if self.replication.role is Role.SLAVE else usual
        return default if port is None else port or None

    @property
    def ha_listen_port(self) -> int | None:
        """The port that slaves connect to, if any; a slave that stays one has none."""
        port = self.replication.port
        if self.replication.is_controlled:
            return port or self.port + 1
        return None if port is None or self.replication.role is Role.SLAVE else port or self.port + 1

    def with_role(
        self, role: Role | None = None, broker_id: int | None = None, ha_port: int | None = None
    ) -> RocketConfig:
        """Make the configuration of a master or of a slave. None keeps a value. Raises `PropertyError`.

        With a controller, neither the role nor the id are configured.
        """
        if self.replication.is_controlled:
            return self._with_controller(ha_port)
        # A broker that is explicitly a master may get slaves.
        default = 0 if role is not None and self.replication.port is None else self.replication.port
        role = role or self.replication.role
        broker_id = self.options.broker_id if broker_id is None else broker_id
        if role is Role.SLAVE and broker_id <= 0:
            raise PropertyError("a slave needs an id that no other broker of its name has, 1 or more (brokerId)")
        # As in the original, a master's id is always 0.
        options = replace(self.options, broker_id=broker_id if role is Role.SLAVE else 0)
        port = default if ha_port is None else ha_port
        return replace(self, options=options, replication=replace(self.replication, role=role, port=port))

    def _with_controller(self, ha_port: int | None) -> RocketConfig:
        if not self.replication.controllers:
            raise PropertyError("a broker with a controller has to know its address", "set controllerAddr to HOST:PORT")
        port = self.replication.port if ha_port is None else ha_port
        # A group with elections needs no acting master.
        replication = replace(self.replication, role=Role.SLAVE, port=port, has_acting_master=False)
        return replace(self, replication=replication)

    @property
    def properties(self) -> dict[str, str]:
        found = texts("node", self) | texts("broker", self.options) | texts("store", self.store_options)
        found |= texts("times", self.times) | texts("replication", self.replication) | texts("places", self.places)
        found |= texts("tls", self.tls)
        found["authenticationEnabled"] = BOOL.write(self.access.authentication)
        found["authorizationEnabled"] = BOOL.write(self.access.authorization)
        return found

    @property
    def controller_properties(self) -> dict[str, str]:
        return texts("controller", self.controller)

    @property
    def nameserver_properties(self) -> dict[str, str]:
        """The nameserver's properties that administrators may change."""
        return {
            "supportActingMaster": BOOL.write(self.supports_acting_master),
            "notifyMinBrokerIdChanged": BOOL.write(self.tells_least_id),
            **texts("nameserver", self.nameserver_bounds),
        }

    @property
    def controller_port(self) -> int | None:
        """The port of this node's controller, if it has one and that is configured."""
        address = self.controller.peers.get(self.controller.self_id) if self.has_controller else None
        found = None if address is None else split_address(address)
        return None if found is None else found[1]

    def changed(self, **changes: Any) -> RocketConfig:
        """Return the configuration with changes; None changes nothing."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})


_DELAYS_MS: Final[tuple[int, ...]] = parse_delay_levels(DELAY_LEVELS)


def _readers(*parts: str) -> dict[str, Callable[[str], Any]]:
    return {name: each.kind.read for part in parts for name, each in TABLES[part].items()}


# By property, the reader of its value; for administrators, who change some at run time.
BROKER_READERS: Final = {
    **_readers("node", "broker", "store", "places", "times", "replication", "tls"),
    "brokerRole": read_master_role,
    **dict.fromkeys(("authenticationEnabled", "authorizationEnabled"), BOOL.read),
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
CONTROLLER_READERS: Final = _readers("controller")
CONTROLLER_LOCKED: Final = frozenset({"configBlackList", "configStorePath", "rocketmqHome"})
# The nameserver's properties (source: NamesrvConfig) that can change at run time.
NAMESERVER_DEFAULTS: Final = {
    "returnOrderTopicConfigToBroker": "true",
    "supportActingMaster": "false",
    "notifyMinBrokerIdChanged": "false",
}
NAMESERVER_READERS: Final = {**dict.fromkeys(NAMESERVER_DEFAULTS, BOOL.read), **_readers("nameserver")}
NAMESERVER_LOCKED: Final = frozenset({"configBlackList", "configStorePath", "kvConfigPath"})


class _Sorted:
    def __init__(self, path: Path, properties: Mapping[str, str]) -> None:
        self._path = path
        self.fields: dict[str, dict[str, Any]] = {part: {} for part in TABLES}
        self.unused: list[str] = []
        self.doubts: list[str] = []
        self.faults = [*asked_kinds(path, properties)]
        # Faults of access control come last.
        for name, value in sorted(properties.items(), key=lambda each: each[0] in TABLES["access"]):
            part = next((part for part, table in TABLES.items() if name in table), None)
            if part is not None:
                self._read(part, name, value)
            elif name not in ASKED:
                self.unused.append(name)

    def _read(self, part: str, name: str, value: str) -> None:
        declared = TABLES[part][name]
        if part == "access":
            if not value:
                return
        elif is_misread(value):
            self.doubts.append(name)
            if declared.kind in (PATH, PATHS):
                # A store at another path than is meant would look like an empty one.
                fault = f"{self._path}: {name}: the value {MISREAD}"
                self.faults.append(PropertyError(fault, "write each of them as \\u and four digits, as in \\u00fc"))
        try:
            self.fields[part][declared.field] = read_property(self._path, part, name, value)
        except PropertyError as fault:
            self.faults.append(fault)


def _access_fields(path: Path, found: dict[str, Any]) -> dict[str, Any]:
    is_first = found.pop("is_first", False)
    plain = found.pop("migrates", False) or is_first
    others = ("first_user", "inner_credentials", "peer_secret")
    whole: dict[str, Any] = {name: found.pop(name) for name in others if name in found}
    checks: dict[str, Any] = {"authentication": is_first, "authorization": is_first, **found}
    accounts = path.with_name("plain_acl.yml") if plain else None
    return {**whole, "access": AccessOptions(**checks), "plain_accounts": accounts}


def load_rocketmq_config(path: Path) -> RocketConfig:
    """Return the configuration in a file. Raises `PropertyError` for values that cannot be used."""
    properties = properties_of(path)
    given = _Sorted(path, properties)
    fields, faults = given.fields, given.faults
    if fields["trace"].get("is_on"):
        fields["broker"]["trace_topic"] = fields["trace"].get("topic", TRACE_TOPIC)
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
        tls=TlsOptions(**fields["tls"]),
        times=TransactionTimes(**fields["times"], reserved_ms=reserved_hours * 3_600_000),
        places=StorePlaces(**fields["places"], root=fields["node"].get("store")),
        unused=tuple(sorted(given.unused)),
        doubts=tuple(given.doubts),
        file=path,
        replication=replace(default.replication, **fields["replication"]),
        controller=ControllerOptions(**fields["controller"]),
        nameserver_bounds=NameserverBounds(**fields["nameserver"]),
        **_access_fields(path, fields["access"]),
    )
    try:
        return config.with_role(fields["replication"].get("role"))
    except PropertyError as fault:
        raise PropertyError(f"{path}: {fault.problem}", fault.remedy) from None
