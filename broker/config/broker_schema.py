"""`bmqbrkrcfg.json`: the process. Source: the reference's schema `mqbcfg.xsd`, type `Configuration`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from broker.config.model import CONFIDENTIAL, Bool, Choice, Int, Long, Model, Port, PortOrNone, Secret, ULong, fault

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
    record_buffer_size: Int = 32768
    recording_level: str = "OFF"
    trigger_level: str = "OFF"


class LogController(Model):
    """`categories` are `expression:severity:color`."""

    file_name: str = ""
    file_max_age_days: Int = 0
    rotation_bytes: Int = 0
    logfile_format: str = ""
    console_format: str = ""
    logging_verbosity: str = ""
    bsls_log_severity_threshold: str = "ERROR"
    console_severity_threshold: str = ""
    categories: tuple[str, ...] = ()
    syslog: SyslogConfig = SyslogConfig()
    log_dump: LogDumpConfig = LogDumpConfig()


class TaskConfig(Model):
    allocator_type: AllocatorType = AllocatorType.NEWDELETE
    allocation_limit: ULong = 0
    log_controller: LogController = LogController()


class DispatcherProcessorParameters(Model):
    queue_size: Int = 0
    queue_size_low_watermark: Int = 0
    queue_size_high_watermark: Int = 0


class DispatcherProcessorConfig(Model):
    num_processors: Int = 0
    processor_config: DispatcherProcessorParameters = DispatcherProcessorParameters()


class DispatcherConfig(Model):
    sessions: DispatcherProcessorConfig = DispatcherProcessorConfig()
    queues: DispatcherProcessorConfig = DispatcherProcessorConfig()
    clusters: DispatcherProcessorConfig = DispatcherProcessorConfig()
    alarm_timeout_ms: Int = 180_000
    warning_timeout_ms: Int = 10_000


class ExportMode(Enum):
    PUSH = "E_PUSH"
    PULL = "E_PULL"


class StatPluginConfigPrometheus(Model):
    mode: ExportMode = ExportMode.PULL
    host: str = "localhost"
    port: Port = 8080


class StatPluginConfig(Model):
    name: str = ""
    queue_size: Int = 10_000
    queue_high_watermark: Int = 5000
    queue_low_watermark: Int = 1000
    publish_interval: Int = 30
    namespace_prefix: str = ""
    hosts: tuple[str, ...] = ()
    instance_id: str = ""
    prometheus_specific: StatPluginConfigPrometheus | None = None


class StatsPrinterEncodingFormat(Enum):
    NONE = "NONE"
    TABLE = "TABLE"
    JSON = "JSON"
    TABLE_AND_JSON = "TABLE_AND_JSON"


class StatsPrinterConfig(Model):
    print_interval: Int = 60
    file: str = ""
    max_age_days: Int = 0
    rotate_bytes: Int = 256 * 1024 * 1024
    rotate_days: Int = 1
    encoding: StatsPrinterEncodingFormat = StatsPrinterEncodingFormat.TABLE_AND_JSON


class StatsConfig(Model):
    """Intervals in seconds; 0 disables."""

    snapshot_interval: Int = 1
    plugins: tuple[StatPluginConfig, ...] = ()
    printer: StatsPrinterConfig = StatsPrinterConfig()


class Heartbeat(Model):
    """How many heartbeats in a row a connection of each kind may leave unanswered; with 0 none are sent."""

    client: Int = 0
    downstream_broker: Int = 0
    upstream_broker: Int = 0
    cluster_peer: Int = 0


class TcpInterfaceListener(Model):
    name: str
    address: str = "0.0.0.0"
    port: Port
    tls: Bool = False


def _distinct(listeners: tuple[TcpInterfaceListener, ...]) -> tuple[TcpInterfaceListener, ...]:
    for what, values in (("name", [x.name for x in listeners]), ("port", [x.port for x in listeners])):
        if len(set(values)) < len(values):
            raise fault(f"two listeners have the same {what}", f"give each listener a {what} of its own")
    return listeners


class TcpInterfaceConfig(Model):
    """`listeners`, where there are any, replace `port`, -1 then; watermarks are bytes of unwritten output."""

    name: str = ""
    port: PortOrNone
    io_threads: Int = 0
    max_connections: Int = 10_000
    low_watermark: Long = 0
    high_watermark: Long = 0
    node_low_watermark: Long = 1024
    node_high_watermark: Long = 2048
    heartbeat_interval_ms: Int = 3000
    listeners: Annotated[tuple[TcpInterfaceListener, ...], AfterValidator(_distinct)] = ()

    @model_validator(mode="after")
    def _listens(self) -> Self:
        if self.port < 0 and not self.listeners:
            raise fault(f"has port {self.port} and no listeners", "give it a port, or listeners")
        return self


class NetworkInterfaces(Model):
    heartbeats: Heartbeat = Heartbeat()
    tcp_interface: TcpInterfaceConfig


class MessagePropertiesV2(Model):
    """Whether the broker advertises the newer form of message properties, and to which client versions."""

    advertise_v2_support: Bool = True
    min_cpp_sdk_version: Int = 11207
    min_java_sdk_version: Int = 10


class BmqconfConfig(Model):
    cache_ttl_seconds: Int = Field(default=0, alias="cacheTTLSeconds")


class Plugins(Model):
    libraries: tuple[str, ...] = ()
    enabled: tuple[str, ...] = ()


class PluginSettingValue(Choice):
    bool_val: Bool | None = None
    int_val: Int | None = None
    long_val: Long | None = None
    double_val: float | None = None
    string_val: Secret | None = None

    @property
    def plain(self) -> bool | int | float | str:
        """The value itself, whatever is secret of it included."""
        value: bool | int | float | Secret = self.selected
        return value.get_secret_value() if isinstance(value, Secret) else value


class PluginSettingKeyValue(Model):
    key: str
    value: PluginSettingValue


class PluginConfig(Model):
    """`AuthenticatorPluginConfig`, `CredentialProviderConfig` and `AuthorizerPluginConfig` of the schema."""

    name: str
    settings: Annotated[tuple[PluginSettingKeyValue, ...], CONFIDENTIAL] = ()


class Credential(Model):
    mechanism: str
    identity: Annotated[Secret, CONFIDENTIAL]


class Disallow(Model):
    pass


class AnonymousCredential(Choice):
    disallow: Disallow | None = None
    credential: Annotated[Credential | None, CONFIDENTIAL] = None


class AuthenticatorConfig(Model):
    authenticators: tuple[PluginConfig, ...] = ()
    anonymous_credential: AnonymousCredential | None = None
    min_threads: Int = 1
    max_threads: Int = 8
    credential_provider: PluginConfig | None = None


class AuthorizedAction(Enum):
    ADMINISTER = "administer"
    BROKER = "broker"
    READ = "read"
    WRITE = "write"


class AuthorizationRule(Model):
    """Patterns in which `*` is any text; `domains` are what reading and writing is permitted in."""

    actions: Annotated[tuple[AuthorizedAction, ...], Field(min_length=1)]
    principals: tuple[str, ...] = ("*",)
    mechanisms: tuple[str, ...] = ("*",)
    domains: tuple[str, ...] = ("*",)


class AuthorizerConfig(Model):
    """`rules` are not in the reference's schema: its brokers pass over them."""

    authorizer: PluginConfig | None = None
    rules: tuple[AuthorizationRule, ...] = ()


class ClientCertificate(Enum):
    NONE = "NONE"
    OPTIONAL = "OPTIONAL"
    REQUIRED = "REQUIRED"


class TlsConfig(Model):
    """`client_certificate`, not in the reference's schema: whether who connects is asked for a certificate."""

    certificate_authority: str
    certificate: str
    key: str
    versions: str = "TLSv1.3"
    client_certificate: ClientCertificate = ClientCertificate.NONE

    @property
    def asks_for_certificates(self) -> bool:
        """Whether who connects is asked for a certificate."""
        return self.client_certificate is not ClientCertificate.NONE


class AppConfig(Model):
    """`brokerVersion` and `etcDir` are read but not used: the reference overwrites them at start as well."""

    broker_instance_name: str = ""
    broker_version: Int = 0
    config_version: Int = 0
    etc_dir: str = ""
    host_name: str = ""
    host_tags: str = ""
    host_data_center: str = ""
    logs_observer_max_size: Int = 0
    latency_monitor_domain: str = "bmq.sys.latemon.latency"
    dispatcher_config: DispatcherConfig = DispatcherConfig()
    stats: StatsConfig = StatsConfig()
    network_interfaces: NetworkInterfaces
    bmqconf_config: BmqconfConfig = BmqconfConfig()
    plugins: Plugins = Plugins()
    message_properties_v2: MessagePropertiesV2 = MessagePropertiesV2()
    configure_stream: Bool = False
    advertise_subscriptions: Bool = False
    route_command_timeout_ms: Int = 3000
    authentication: AuthenticatorConfig = AuthenticatorConfig()
    authorization: AuthorizerConfig = AuthorizerConfig()
    tls_config: TlsConfig | None = None


class Configuration(Model):
    task_config: TaskConfig = TaskConfig()
    app_config: AppConfig
