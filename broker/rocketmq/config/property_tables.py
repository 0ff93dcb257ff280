"""The properties of a node's configuration file: each is declared once, by the original's name.

A declaration has the kind of the values, their field and their meaning. The checks of the file, the properties in
force and the manual's page follow from it. Defaults are those of the fields.

Source: BrokerConfig, NettyServerConfig, MessageStoreConfig, ControllerConfig, NamesrvConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from broker.common.networks import read_networks
from broker.rocketmq.config.property_readers import (
    ADDRESSES,
    BOOL,
    BROKER_ID,
    CLIENT_AUTH,
    CODES,
    CONSUME_QUEUE_BYTES,
    FLUSH_TYPE,
    HOST,
    HOURS,
    METRICS_EXPORTER,
    PATH,
    PATHS,
    ROLE,
    SECRET,
    TEXT,
    TLS_MODE,
    Kind,
    PropertyError,
    number,
    secret_pair,
    shown_delays,
)
from broker.rocketmq.controller.options import read_peers, write_peers
from broker.rocketmq.tables.options import parse_delay_levels
from broker.rocketmq.tables.topics import QUEUES_MAX
from formats.rocketmq.remoting.bodies.clients import HEARTBEAT_GROUPS_MAX
from formats.rocketmq.remoting.replication import BODY_BYTES_MAX

__all__ = ["TABLES", "Property", "Table", "read_property", "texts"]


class Property(NamedTuple):
    """A property: its values, its field, its effect, and whether Apache's programs lack it."""

    kind: Kind
    field: str
    meaning: str
    is_own: bool = False


Table = Mapping[str, Property]

_P: Final = Property
_PORT, _PORT_OR_NONE = number(1, 65_535), number(0, 65_535)
_PERIOD_MS, _MS, _COUNT = number(100, 3_600_000), number(1, 3_600_000), number(1, (1 << 31) - 1)
_FILE_BYTES = number(4096, (1 << 31) - 1)
_REPLICAS, _PERCENT = number(1, 1024), number(0, 100)
_DELAYS = Kind(parse_delay_levels, "delays with a unit of s, m, h or d, separated by blanks", shown_delays)
_PEERS = Kind(read_peers, "ID-HOST:PORT, separated by semicolons", write_peers)
_NETWORKS = Kind(read_networks, "addresses and networks, separated by commas", lambda them: ",".join(map(str, them)))

_NODE: Final[Table] = {
    "storePathRootDir": _P(PATH, "store", "folder of the store"),
    "bindAddress": _P(HOST, "bind_address", "address to listen on"),
    "listenPort": _P(_PORT, "port", "port of the broker"),
    "nameserverPort": _P(_PORT, "nameserver_port", "port of the nameserver", True),
    "grpcServerPort": _P(_PORT_OR_NONE, "grpc_port", "port for gRPC; 0 for none. By default 8081, if it is free"),
    "remotingListenPort": _P(
        _PORT_OR_NONE,
        "remoting_port",
        "port for clients that know one address only; 0 for none. By default 8080, if it is free",
    ),
    "namesrvAddr": _P(ADDRESSES, "nameservers", "nameservers that the broker registers with besides its own"),
    "peerAddressCheckEnable": _P(
        BOOL, "checks_peer_address", "without `peerSecretKey`, recognize nodes of the group by their addresses", True
    ),
    "administratorAddresses": _P(_NETWORKS, "administrators", "from where administrators connect; `*` is all", True),
    "enableLmq": _P(BOOL, "has_lmq", "keep the offsets of groups in lmqConsumerOffset.json"),
    "proxyProtocolFrom": _P(
        _NETWORKS, "balancers", "from where connections begin with a header of the PROXY protocol, which is believed"
    ),
    "brokerIP1": _P(HOST, "told_address", "address that clients connect to"),
    "flushDiskType": _P(FLUSH_TYPE, "flush_sync", "flush before a send is answered, or in the background"),
    "syncFlushTimeout": _P(number(0, 3_600_000), "sync_flush_timeout_ms", "maximum milliseconds of such a flush"),
    "flushIntervalCommitLog": _P(_MS, "flush_interval_ms", "milliseconds between flushes in the background"),
    "autoCreateSubscriptionGroup": _P(BOOL, "auto_create_group", "create a group that a consumer names"),
    "fileReservedTime": _P(number(1, 1_000_000), "reserved_hours", "hours after which messages may be removed"),
    "deleteWhen": _P(HOURS, "delete_hours", "hours of the day, in local time, at which they are"),
    "cleanFileForciblyInterval": _P(
        number(0, 1 << 40),
        "forced_after_ms",
        "milliseconds for which an alarm precedes the removal of unconsumed messages from a full disk",
        True,
    ),
    "enableControllerInNamesrv": _P(BOOL, "has_controller", "run a controller beside the nameserver"),
    "controllerStorePath": _P(PATH, "controller_store", "folder of the controller's log; by default in the store"),
    "supportActingMaster": _P(BOOL, "supports_acting_master", "present a slave as master of brokers without one"),
    "notifyMinBrokerIdChanged": _P(BOOL, "tells_least_id", "notify brokers when the least id of their name changes"),
    "metricsExporterType": _P(METRICS_EXPORTER, "exports_metrics", "serve metrics for Prometheus if PROM"),
    "metricsPromExporterHost": _P(HOST, "metrics_host", "address of the metrics"),
    "metricsPromExporterPort": _P(_PORT, "metrics_port", "port of the metrics"),
    "maxConnectionBufferSize": _P(
        number(64 << 20, 1 << 40),
        "connection_bytes_max",
        "bytes for incomplete input and unread output of all connections",
        True,
    ),
}
_BROKER: Final[Table] = {
    "brokerClusterName": _P(TEXT, "cluster", "name of the cluster"),
    "brokerName": _P(TEXT, "name", "name that a master and its slaves share"),
    "brokerId": _P(BROKER_ID, "broker_id", "0 for a master, 1 or more for a slave"),
    "regionId": _P(TEXT, "region", "region that senders get back"),
    "traceOn": _P(BOOL, "trace_on", "clients may trace messages"),
    "brokerPermission": _P(number(0, 7), "permission", "4 to read, plus 2 to write"),
    "autoCreateTopicEnable": _P(BOOL, "auto_create_topic", "create a topic that a sender names"),
    "defaultTopicQueueNums": _P(number(1, 65_536), "default_topic_queues", "maximum number of queues of such a topic"),
    "maxMessageSize": _P(number(1, 16 << 20), "message_bytes_max", "maximum bytes of a message"),
    "messageDelayLevel": _P(_DELAYS, "delay_levels_ms", "delays of the levels, level 1 first"),
    "enablePropertyFilter": _P(BOOL, "property_filter", "consumers may filter by SQL expressions"),
    "reviveQueueNum": _P(number(1, 1024), "revive_queues", "number of queues for POP's checkpoints"),
    "popFromRetryProbability": _P(_PERCENT, "retry_percent", "percentage of POPs that begin with the retry topic"),
    "popFromRetryProbabilityForPriority": _P(
        _PERCENT, "priority_retry_percent", "the same for topics of messages with priorities"
    ),
    "priorityOrderAsc": _P(BOOL, "highest_first", "a queue with a higher number has a higher priority"),
    "enableRetryTopicV2": _P(BOOL, "retry_v2", "retry topics of POP are named by version 2: a + before the topic"),
    "slaveReadEnable": _P(BOOL, "slave_read", "direct consumers that are far behind to a slave"),
    "timerMaxDelaySec": _P(_COUNT, "timer_delay_max_s", "maximum delay of a message, in seconds"),
    "autoCreateTopicMaxNum": _P(
        _COUNT, "auto_topics_max", "number of topics from which on a message to an unknown topic is refused", True
    ),
    "autoCreateRetryTopicMaxNum": _P(
        _COUNT,
        "auto_retry_topics_max",
        "number of retry and dead-letter topics from which on none is created for a group",
        True,
    ),
    "topicMaxNum": _P(_COUNT, "topics_max", "topics, including those of administrators", True),
    "topicQueueMaxNum": _P(
        number(1, QUEUES_MAX),
        "topic_queues_max",
        "queues that a topic can be given, including the retry topic of a group",
        True,
    ),
    "autoCreateSubscriptionGroupMaxNum": _P(
        _COUNT, "auto_groups_max", "number of groups from which on a heartbeat, a pull or a pop creates none", True
    ),
    "subscriptionGroupMaxNum": _P(_COUNT, "groups_max", "groups, including those of administrators", True),
    "heartbeatGroupMaxNum": _P(
        number(1, HEARTBEAT_GROUPS_MAX), "heartbeat_groups_max", "groups of one heartbeat", True
    ),
    "clientMembershipMaxNum": _P(_COUNT, "memberships_max", "memberships of clients in groups", True),
    "clientSubscriptionMaxBytes": _P(_COUNT, "subscription_bytes_max", "memory of all subscriptions, in bytes", True),
    "consumerOffsetMaxNum": _P(_COUNT, "offsets_max", "offsets of groups in queues", True),
}
_STORE: Final[Table] = {
    "mappedFileSizeCommitLog": _P(_FILE_BYTES, "commit_log_file_bytes", "bytes of a file of the commit log"),
    "mappedFileSizeConsumeQueue": _P(
        CONSUME_QUEUE_BYTES, "consume_queue_file_bytes", "bytes of a file of a consume queue, in whole entries of 20"
    ),
    "maxHashSlotNum": _P(number(1, 1 << 30), "index_slots", "slots of an index file"),
    "maxIndexNum": _P(number(2, 1 << 30), "index_entries", "entries of an index file"),
}
_TIMES: Final[Table] = {
    "transactionCheckInterval": _P(
        number(100, 1 << 31), "check_interval_ms", "milliseconds between checks of half messages"
    ),
    "transactionTimeOut": _P(number(1, 1 << 31), "timeout_ms", "milliseconds before the first check"),
    "transactionCheckMax": _P(_COUNT, "checks_max", "number of checks before a half message is given up"),
}
_REPLICATION: Final[Table] = {
    "brokerRole": _P(ROLE, "role", "part of the broker among those of its name"),
    "inSyncReplicas": _P(_REPLICAS, "in_sync_replicas", "brokers, with the master, that have a message at `SEND_OK`"),
    "slaveTimeout": _P(_MS, "slave_timeout_ms", "milliseconds that a send waits for slaves"),
    "haMaxGapNotInSync": _P(number(1, 1 << 62), "gap_bytes_max", "maximum lag of a slave in sync, in bytes"),
    "haSendHeartbeatInterval": _P(_MS, "heartbeat_ms", "milliseconds between heartbeats of a master and its slaves"),
    "haHousekeepingInterval": _P(_MS, "silence_ms", "milliseconds of silence that end their connection"),
    "haTransferBatchSize": _P(number(1, BODY_BYTES_MAX), "piece_bytes", "maximum bytes sent to a slave at once"),
    "haMasterAddress": _P(TEXT, "master_address", "address of a slave's master, instead of asking nameservers"),
    "syncFromLastFile": _P(BOOL, "from_last_file", "a new slave gets the last file of the log only"),
    "haListenPort": _P(_PORT_OR_NONE, "port", "port for slaves; 0 is the broker's port plus one"),
    "accessMessageInMemoryMaxRatio": _P(
        number(1, 100), "memory_percent", "a consumer is far behind from this part of the memory on, in percent"
    ),
    "enableControllerMode": _P(BOOL, "is_controlled", "controllers elect the master"),
    "controllerAddr": _P(ADDRESSES, "controllers", "addresses of the controllers"),
    "allAckInSyncStateSet": _P(BOOL, "all_in_sync", "sends wait for all brokers in sync"),
    "minInSyncReplicas": _P(_REPLICAS, "in_sync_replicas_min", "sends are refused if fewer brokers are in sync"),
    "haMaxTimeSlaveNotCatchup": _P(_MS, "behind_ms_max", "milliseconds after which a slave is no longer in sync"),
    "checkSyncStateSetPeriod": _P(_MS, "check_ms", "milliseconds between checks of that"),
    "brokerHeartbeatInterval": _P(_MS, "beat_ms", "milliseconds between heartbeats to controllers and nameservers"),
    "controllerHeartBeatTimeoutMills": _P(_MS, "gone_ms", "milliseconds of silence after which controllers act"),
    "brokerElectionPriority": _P(number(0, (1 << 31) - 1), "priority", "the lowest is elected"),
    "syncBrokerMetadataPeriod": _P(_MS, "sync_ms", "milliseconds between requests for the current master"),
    "syncControllerMetadataPeriod": _P(_MS, "leader_ms", "milliseconds between requests for the leading controller"),
    "enableSlaveActingMaster": _P(BOOL, "has_acting_master", "the slave with the least id stands in for the master"),
    "enableAutoInSyncReplicas": _P(BOOL, "auto_in_sync", "fewer brokers in sync suffice, down to `minInSyncReplicas`"),
    "totalReplicas": _P(_REPLICAS, "total_replicas", "number of brokers of the name"),
    "brokerNotActiveTimeoutMillis": _P(
        number(1000, 3_600_000), "silent_ms", "milliseconds of silence after which nameservers drop a broker"
    ),
    "syncBrokerMemberGroupPeriod": _P(_PERIOD_MS, "members_ms", "milliseconds between requests for the other brokers"),
}
_CONTROLLER: Final[Table] = {
    "controllerDLegerGroup": _P(TEXT, "group", "name of the controllers' group"),
    "controllerDLegerPeers": _P(_PEERS, "peers", "addresses of all controllers by their ids"),
    "controllerDLegerSelfId": _P(TEXT, "self_id", "id of this controller"),
    "enableElectUncleanMaster": _P(BOOL, "unclean", "elect a broker that was not in sync if no other is there"),
    "notifyBrokerRoleChanged": _P(BOOL, "notifies", "notify brokers of a new master at once"),
    "scanNotActiveBrokerInterval": _P(_PERIOD_MS, "scan_silent_ms", "milliseconds between searches for silent brokers"),
    "scanInactiveMasterInterval": _P(_PERIOD_MS, "scan_masters_ms", "milliseconds between searches for lost masters"),
}
_NAMESERVER: Final[Table] = {
    "kvConfigMaxNum": _P(_COUNT, "kv_entries_max", "keys and namespaces of a nameserver's values", True),
    "kvConfigMaxBytes": _P(_COUNT, "kv_bytes_max", "size of all values of a nameserver with their keys", True),
    "kvConfigValueMaxBytes": _P(_COUNT, "kv_value_bytes_max", "size of one value with its key", True),
    "registeredBrokerMaxNum": _P(_COUNT, "brokers_max", "brokers at a nameserver", True),
    "registerBrokerTopicMaxNum": _P(_COUNT, "registration_topics_max", "topics of one registration", True),
    "registeredTopicMaxNum": _P(
        _COUNT, "routes_max", "topics of all brokers at a nameserver, counted once per broker name", True
    ),
}
_IN_ROOT: Final = "refused unless it names the place in `storePathRootDir`, as Apache's broker ignores it"
_PLACES: Final[Table] = {
    "storePathCommitLog": _P(PATHS, "log", "folders of the commit log"),
    "readOnlyCommitLogStorePaths": _P(PATHS, "read_only_log", "those of them in which no file is created"),
    "storePathEpochFile": _P(PATH, "epochs", "file of the epochs of the log"),
    "storePathBrokerIdentity": _P(PATH, "identity", "file of the id that a controller gave"),
    "storePathConsumeQueue": _P(PATH, "queues", _IN_ROOT),
    "storePathIndex": _P(PATH, "index", _IN_ROOT),
    "storeCheckpoint": _P(PATH, "checkpoint", _IN_ROOT),
    "abortFile": _P(PATH, "abort", _IN_ROOT),
}
_TLS: Final[Table] = {
    "tlsServerMode": _P(
        TLS_MODE, "mode", "TLS of all ports but those of pages: permissive takes plain connections, too", True
    ),
    "tlsCertPath": _P(PATH, "certificate", "PEM file with the certificate of this node"),
    "tlsKeyPath": _P(PATH, "key", "PEM file with its key"),
    "tlsTestModeEnable": _P(BOOL, "makes_own", "without a certificate, make one at the start"),
    "tlsServerNeedClientAuth": _P(CLIENT_AUTH, "client_certificates", "whether clients have to show one", True),
    "tlsServerTrustCertPath": _P(PATH, "client_trust", "PEM file with the authority of clients' certificates", True),
    "tlsServerCrlPath": _P(PATH, "client_crl", "PEM file with that authority's list of revoked certificates"),
    "tlsEnable": _P(BOOL, "dials", "use TLS for connections to other nodes; by default in the mode enforcing", True),
    "tlsClientTrustCertPath": _P(
        PATH,
        "dial_trust",
        "PEM file with the authority of other nodes' certificates; nothing is verified without",
        True,
    ),
}
_TRACE: Final[Table] = {
    "traceTopicEnable": _P(BOOL, "is_on", "keep traces of messages in a topic of their own"),
    "msgTraceTopicName": _P(TEXT, "topic", "name of that topic"),
}

# Access control. Values may be secrets: they are neither shown nor quoted in errors.
_ACCESS: Final[Table] = {
    "authenticationEnabled": _P(BOOL, "authentication", "check that each request is signed by a user"),
    "authorizationEnabled": _P(BOOL, "authorization", "check that the user may have it carried out"),
    "authenticationWhitelist": _P(CODES, "authentication_white_list", "requests that need no signature"),
    "authorizationWhitelist": _P(CODES, "authorization_white_list", "requests that every user may send"),
    "initAuthenticationUser": _P(
        secret_pair("username", "password"), "first_user", "user that is created if there is none of its name"
    ),
    "innerClientAuthenticationCredentials": _P(
        secret_pair("accessKey", "secretKey"), "inner_credentials", "user as whom this node signs requests"
    ),
    "peerSecretKey": _P(SECRET, "peer_secret", "secret by which the nodes of a group recognize each other", True),
    "migrateAuthFromV1Enabled": _P(BOOL, "migrates", "take the accounts of ACL 1.0 from `plain_acl.yml`"),
    "aclEnable": _P(BOOL, "is_first", "the same, and check access"),
}

# By the part of the configuration that they set.
TABLES: Final[Mapping[str, Table]] = {
    "node": _NODE,
    "broker": _BROKER,
    "store": _STORE,
    "times": _TIMES,
    "replication": _REPLICATION,
    "controller": _CONTROLLER,
    "nameserver": _NAMESERVER,
    "places": _PLACES,
    "tls": _TLS,
    "trace": _TRACE,
    "access": _ACCESS,
}


def read_property(path: Path, part: str, name: str, text: str) -> Any:
    """Return the value of a property in the file `path`. Raises `PropertyError`, which quotes no secret."""
    try:
        return TABLES[part][name].kind.read(text)
    except ValueError as error:
        shown = "its value" if part == "access" else f"'{text}'"
        raise PropertyError(f"{path}: {name}: {shown} {error}") from None


def texts(part: str, values: Any) -> dict[str, str]:
    found = ((name, each.kind.write, getattr(values, each.field)) for name, each in TABLES[part].items())
    return {name: write(value) for name, write, value in found if value is not None}
