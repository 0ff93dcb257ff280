"""The models of `bmqbrkrcfg.json`: the process. Source: the reference's schema `mqbcfg.xsd`, type `Configuration`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from broker.bmq.config.bounds import Amount, Bool, Count, Int, Long, Port, PortOrNone, Positive, ULong
from broker.bmq.config.errors import shown
from broker.bmq.config.model import CONFIDENTIAL, Choice, Model, NoEffect, Secret, fault
from broker.common.networks import Network, read_networks
from formats.addresses import read_host

__all__ = ["AppConfig", "Configuration", "TcpInterfaceConfig", "TcpInterfaceListener"]


class AllocatorType(Enum):
    NEWDELETE = "NEWDELETE"
    COUNTING = "COUNTING"
    STACKTRACETEST = "STACKTRACETEST"


class SyslogConfig(Model):
    enabled: Bool = False
    app_name: str = ""
    log_format: str = ""
    verbosity: str = ""


class LogDumpConfig(Model):
    record_buffer_size: Count = 32768
    recording_level: str = "OFF"
    trigger_level: str = "OFF"


class LogController(Model):
    """Destinations, severities and format of the log."""

    file_name: str = ""
    """Path of the log file; if empty, a file in the data directory."""
    file_max_age_days: Annotated[Count, NoEffect("the log keeps a number of files, not an age")] = 0
    rotation_bytes: Count = 0
    """Size at which the log file is rotated, in bytes; 0: the default."""
    logfile_format: str = ""
    """Format of the lines of the log file; if empty, the default."""
    console_format: str = ""
    """Format of the lines on the console; if empty, the default."""
    logging_verbosity: str = ""
    """Lowest severity that is logged to the file; a value above INFO counts as INFO."""
    bsls_log_severity_threshold: Annotated[
        str, NoEffect("it limits messages of a C++ library that this program does not have")
    ] = "ERROR"
    console_severity_threshold: str = ""
    """Lowest severity that is logged to the console."""
    categories: Annotated[
        tuple[str, ...], NoEffect("categories are the C++ program's modules; `LOG CATEGORY` sets severities here")
    ] = ()
    syslog: Annotated[SyslogConfig, NoEffect("the log goes to a file and to the console")] = SyslogConfig()
    log_dump: Annotated[
        LogDumpConfig, NoEffect("records below the severity are not made, so there is nothing to dump")
    ] = LogDumpConfig()


class TaskConfig(Model):
    allocator_type: Annotated[AllocatorType, NoEffect("the memory of this program is not divided among allocators")] = (
        AllocatorType.NEWDELETE
    )
    allocation_limit: Annotated[
        ULong, NoEffect("the memory of this program is not counted by an allocator; limit it by the service manager")
    ] = 0
    log_controller: LogController = LogController()
    """The broker's log: destinations, severities and format."""


class DispatcherProcessorParameters(Model):
    queue_size: Count = 0
    queue_size_low_watermark: Count = 0
    queue_size_high_watermark: Count = 0


class DispatcherProcessorConfig(Model):
    num_processors: Count = 0
    processor_config: DispatcherProcessorParameters = DispatcherProcessorParameters()


class DispatcherConfig(Model):
    sessions: DispatcherProcessorConfig = DispatcherProcessorConfig()
    queues: DispatcherProcessorConfig = DispatcherProcessorConfig()
    clusters: DispatcherProcessorConfig = DispatcherProcessorConfig()
    alarm_timeout_ms: Count = 180_000
    warning_timeout_ms: Count = 10_000


class ExportMode(Enum):
    PUSH = "E_PUSH"
    PULL = "E_PULL"


def _host(text: str) -> str:
    try:
        return read_host(text)
    except ValueError as error:
        raise fault(f"{shown(text)} {error}", "write an address of this machine, or 0.0.0.0 for all") from None


Host = Annotated[str, AfterValidator(_host)]


class StatPluginConfigPrometheus(Model):
    """The address of `/metrics`, `/healthz` and `/readyz`."""

    mode: ExportMode = ExportMode.PULL
    """`E_PULL` serves metrics. `E_PUSH` is accepted, and nothing is pushed."""
    host: Host = "localhost"
    """Address to listen on."""
    port: Port = 8080
    """Port to listen on."""


_NO_QUEUE = "metrics are not queued"
_NOT_PUSHED = "metrics are not pushed"


class StatPluginConfig(Model):
    name: str = ""
    """`PrometheusStatConsumer` serves metrics, if `plugins.enabled` names it, too; others have no effect."""
    queue_size: Annotated[Count, NoEffect(_NO_QUEUE)] = 10_000
    queue_high_watermark: Annotated[Count, NoEffect(_NO_QUEUE)] = 5000
    queue_low_watermark: Annotated[Count, NoEffect(_NO_QUEUE)] = 1000
    publish_interval: Annotated[Count, NoEffect("the metrics are those of the moment at which they are asked for")] = 30
    namespace_prefix: Annotated[str, NoEffect(_NOT_PUSHED)] = ""
    hosts: Annotated[tuple[str, ...], NoEffect(_NOT_PUSHED)] = ()
    instance_id: Annotated[str, NoEffect("`brokerInstanceName` is the label of metrics")] = ""
    prometheus_specific: StatPluginConfigPrometheus | None = None
    """Address of the metrics."""


class StatsPrinterEncodingFormat(Enum):
    NONE = "NONE"
    TABLE = "TABLE"
    JSON = "JSON"
    TABLE_AND_JSON = "TABLE_AND_JSON"


class StatsPrinterConfig(Model):
    """The file to which statistics are written periodically."""

    print_interval: Count = 60
    """Seconds between two times; 0 writes nothing."""
    file: str = ""
    """Path of the file, to which `.json` is added; with `%T`, `%p` and so on as in the log's. Empty: nothing is
    written."""
    max_age_days: Int = 0
    """Age in days at which files that were put aside are removed; 0 or less keeps them."""
    rotate_bytes: Count = 256 * 1024 * 1024
    """Size at which the file is put aside; 0 for any."""
    rotate_days: Count = 1
    """Age in days at which the file is put aside; 0 for any."""
    encoding: StatsPrinterEncodingFormat = StatsPrinterEncodingFormat.TABLE_AND_JSON
    """Lines of JSON are written for `JSON` and `TABLE_AND_JSON`; tables are not."""


class StatsConfig(Model):
    """Intervals in seconds; 0 disables."""

    snapshot_interval: Int = 1
    """0 or less disables the file of statistics; queues take snapshots at an interval of their own."""
    plugins: tuple[StatPluginConfig, ...] = ()
    printer: StatsPrinterConfig = StatsPrinterConfig()


class Heartbeat(Model):
    """Number of consecutive missed heartbeats after which a connection is closed; 0: no heartbeats are sent."""

    client: Count = 0
    """Missed heartbeats on connections of clients; 0: none are sent."""
    downstream_broker: Count = 0
    """Missed heartbeats on connections of proxies to this broker; 0: none are sent."""
    upstream_broker: Count = 0
    """Missed heartbeats on connections of this proxy to its upstream brokers; 0: none are sent."""
    cluster_peer: Count = 0
    """Missed heartbeats on connections between nodes of the cluster; 0: none are sent."""


class TcpInterfaceListener(Model):
    name: str
    """The listener's name, used in error messages about the configuration."""
    address: Host = "0.0.0.0"
    """Address to listen on."""
    port: Port
    """Port to listen on."""
    tls: Bool = False
    """Restriction of the listener to TLS connections; requires `tlsConfig`."""


def _distinct(listeners: tuple[TcpInterfaceListener, ...]) -> tuple[TcpInterfaceListener, ...]:
    for what, values in (("name", [x.name for x in listeners]), ("port", [x.port for x in listeners])):
        if len(set(values)) < len(values):
            raise fault(f"two listeners have the same {what}", f"give each listener a {what} of its own")
    return listeners


def _networks(texts: tuple[str, ...]) -> tuple[str, ...]:
    try:
        read_networks(",".join(texts))
    except ValueError as error:
        raise fault(f"has {error}", "name addresses, or networks such as 10.0.0.0/8") from None
    return texts


class TcpInterfaceConfig(Model):
    """The broker's TCP listeners. If there are `listeners`, they replace `port`, which may then be -1."""

    name: Annotated[str, NoEffect("listeners have names of their own")] = ""
    port: PortOrNone
    """Port to listen on if there are no `listeners`."""
    io_threads: Annotated[Count, NoEffect("one thread reads and writes all connections")] = 0
    max_connections: Int = 10_000
    """Maximum number of connections, 0 or less: no maximum. The limit of file descriptors may allow fewer."""
    low_watermark: Annotated[Amount, NoEffect("what a connection may leave unread has a limit of its own")] = 0
    high_watermark: Annotated[Amount, NoEffect("what a connection may leave unread has a limit of its own")] = 0
    node_low_watermark: Annotated[Amount, NoEffect("what a node may leave unread has a limit of its own")] = 1024
    node_high_watermark: Annotated[Amount, NoEffect("what a node may leave unread has a limit of its own")] = 2048
    heartbeat_interval_ms: Count = 3000
    """Interval of heartbeats on a silent connection, in milliseconds."""
    listeners: Annotated[tuple[TcpInterfaceListener, ...], AfterValidator(_distinct)] = ()
    """Addresses and ports to listen on."""
    proxy_protocol_from: Annotated[tuple[str, ...], AfterValidator(_networks)] = ()
    """Addresses and networks of balancers, whose connections begin with a header of the PROXY protocol. The header's
    address is believed. The reference's schema does not have it.
    """

    @property
    def balancers(self) -> tuple[Network, ...]:
        return read_networks(",".join(self.proxy_protocol_from))

    @model_validator(mode="after")
    def _listens(self) -> Self:
        if self.port < 0 and not self.listeners:
            raise fault(f"has port {self.port} and no listeners", "give it a port, or listeners")
        return self


class NetworkInterfaces(Model):
    heartbeats: Heartbeat = Heartbeat()
    """Number of missed heartbeats after which a connection is closed, by kind of peer."""
    tcp_interface: TcpInterfaceConfig
    """The addresses that the broker listens on."""


class MessagePropertiesV2(Model):
    """The newer encoding of message properties, and the client versions that it is advertised to."""

    advertise_v2_support: Bool = True
    min_cpp_sdk_version: Count = 11207
    min_java_sdk_version: Count = 10


class BmqconfConfig(Model):
    cache_ttl_seconds: Count = Field(default=0, alias="cacheTTLSeconds")


class Plugins(Model):
    libraries: Annotated[tuple[str, ...], NoEffect("libraries of the C++ broker cannot be loaded")] = ()
    enabled: tuple[str, ...] = ()
    """Names of plugins: `PrometheusStatConsumer` serves metrics; others have no effect."""


class PluginSettingValue(Choice):
    bool_val: Bool | None = None
    """A boolean."""
    int_val: Int | None = None
    """A 32-bit integer."""
    long_val: Long | None = None
    """A 64-bit integer."""
    double_val: float | None = None
    """A number."""
    string_val: Secret | None = None
    """A text, which is never shown."""

    @property
    def plain(self) -> bool | int | float | str:
        """The value, in plain text even if secret."""
        value: bool | int | float | Secret = self.selected
        return value.get_secret_value() if isinstance(value, Secret) else value


class PluginSettingKeyValue(Model):
    key: str
    """The setting's name, as the plugin defines it."""
    value: PluginSettingValue


class PluginConfig(Model):
    """`AuthenticatorPluginConfig`, `CredentialProviderConfig` and `AuthorizerPluginConfig` of the schema."""

    name: str
    """The plugin's name. Installed packages can provide plugins as entry points."""
    settings: Annotated[tuple[PluginSettingKeyValue, ...], CONFIDENTIAL] = ()
    """The plugin's settings, as the plugin defines them."""


class Credential(Model):
    mechanism: str
    """Name of the authentication mechanism."""
    identity: Annotated[Secret, CONFIDENTIAL]
    """The credential, in the form that the mechanism defines."""


class Disallow(Model):
    pass


class AnonymousCredential(Choice):
    disallow: Disallow | None = None
    """Refuse clients that do not authenticate."""
    credential: Annotated[Credential | None, CONFIDENTIAL] = None
    """The credential of clients that do not authenticate."""


class AuthenticatorConfig(Model):
    authenticators: tuple[PluginConfig, ...] = ()
    """The mechanisms by which clients and brokers can authenticate."""
    anonymous_credential: AnonymousCredential | None = None
    """Treatment of clients that do not authenticate."""
    min_threads: Annotated[Count, NoEffect("threads for authentication are started when they are needed")] = 1
    max_threads: Positive = 8
    """Maximum number of authentications at the same time."""
    credential_provider: PluginConfig | None = None
    """The provider of the credential that this broker presents to brokers that it connects to."""


class AuthorizedAction(Enum):
    ADMINISTER = "administer"
    BROKER = "broker"
    READ = "read"
    WRITE = "write"


class AuthorizationRule(Model):
    """A permission. In its patterns `*` matches any text."""

    actions: Annotated[tuple[AuthorizedAction, ...], Field(min_length=1)]
    """The permitted actions."""
    principals: tuple[str, ...] = ("*",)
    """Patterns of the principals that may perform the actions."""
    mechanisms: tuple[str, ...] = ("*",)
    """Patterns of the mechanisms by which the principal must have authenticated."""
    domains: tuple[str, ...] = ("*",)
    """Patterns of the domains that the principals may read or write."""


class AuthorizerConfig(Model):
    """The authorization of connected peers. The reference's schema does not have `rules`; its brokers ignore them."""

    authorizer: PluginConfig | None = None
    """The plugin that decides which actions are permitted."""
    rules: tuple[AuthorizationRule, ...] = ()
    """The rules that apply if there is no `authorizer`, or if it uses rules."""


class ClientCertificate(Enum):
    NONE = "NONE"
    OPTIONAL = "OPTIONAL"
    REQUIRED = "REQUIRED"


class TlsConfig(Model):
    """Certificates and versions of TLS. The reference's schema has no `client_certificate` and no revocation list."""

    certificate_authority: str
    """Path of a PEM file with the certificates of the trusted authorities."""
    certificate: str
    """Path of a PEM file with this broker's certificate."""
    key: str
    """Path of a PEM file with the private key of the certificate."""
    versions: str = "TLSv1.3"
    """The accepted versions of TLS, separated by commas: TLSv1.2, TLSv1.3."""
    client_certificate: ClientCertificate = ClientCertificate.NONE
    """Certificates of connecting peers: not asked for, checked if there is one, or required."""
    certificate_revocation_list: str | None = None
    """Path of a PEM file with the authority's list of revoked certificates, which connecting peers must not show."""

    @property
    def files(self) -> tuple[str, ...]:
        own = (self.certificate_authority, self.certificate, self.key)
        return own if self.certificate_revocation_list is None else (*own, self.certificate_revocation_list)

    @property
    def asks_for_certificates(self) -> bool:
        return self.client_certificate is not ClientCertificate.NONE


class AppConfig(Model):
    """The broker. `brokerVersion` and `etcDir` are not used: the reference overwrites them at start as well."""

    broker_instance_name: str = ""
    """Name of this broker: the label `Instance` of its metrics."""
    broker_version: Annotated[Int, NoEffect("the BlazingMQ broker overwrites it at the start, too")] = 0
    config_version: Annotated[Int, NoEffect("the BlazingMQ broker overwrites it at the start, too")] = 0
    etc_dir: Annotated[str, NoEffect("the folder is the one of the command line, as for the BlazingMQ broker")] = ""
    host_name: str = ""
    """Name of this host: finds its node in `clusters.json` if no address there belongs to this host."""
    host_tags: Annotated[str, NoEffect("nothing depends on it, as in the BlazingMQ broker")] = ""
    host_data_center: str = ""
    """Data center of this host: a proxy prefers brokers in the same one."""
    logs_observer_max_size: Annotated[Count, NoEffect("no part of the program reads the log")] = 0
    latency_monitor_domain: Annotated[str, NoEffect("there is no built-in monitor of latency; see `bmqctl bench`")] = (
        "bmq.sys.latemon.latency"
    )
    dispatcher_config: Annotated[
        DispatcherConfig, NoEffect("one thread does all work, without queues between threads")
    ] = DispatcherConfig()
    stats: StatsConfig = StatsConfig()
    """Statistics: `printer` has them written to a file, `plugins` serves metrics for Prometheus."""
    network_interfaces: NetworkInterfaces
    """The addresses that the broker listens on."""
    bmqconf_config: Annotated[BmqconfConfig, NoEffect("a domain's file is read whenever it is needed")] = (
        BmqconfConfig()
    )
    plugins: Plugins = Plugins()
    """Plugins: `PrometheusStatConsumer` has an effect in `enabled`; no library is loaded."""
    message_properties_v2: Annotated[
        MessagePropertiesV2, NoEffect("both encodings are read from and delivered to clients of all versions")
    ] = MessagePropertiesV2()
    configure_stream: Annotated[Bool, NoEffect("clients of all versions are understood")] = False
    advertise_subscriptions: Annotated[Bool, NoEffect("clients of all versions are understood")] = False
    route_command_timeout_ms: Annotated[
        Count, NoEffect("commands are not routed: the node that is asked carries them out")
    ] = 3000
    authentication: AuthenticatorConfig = AuthenticatorConfig()
    """Authentication of clients and brokers that connect."""
    authorization: AuthorizerConfig = AuthorizerConfig()
    """Authorization of connected clients, administrators and brokers."""
    tls_config: TlsConfig | None = None
    """Certificates for the listeners and nodes that use `tls`."""


class Configuration(Model):
    task_config: TaskConfig = TaskConfig()
    """Configuration of the process: the log."""
    app_config: AppConfig
    """Configuration of the broker: its network, authentication and authorization."""
