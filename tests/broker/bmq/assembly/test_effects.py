"""Each setting of a configuration has an effect, or the reference page says that it has none, and why.

A configuration that has every member is changed in one member at a time. The parts of a broker are made of both, by the
functions that put a broker together, and compared.
"""

from __future__ import annotations

import json
import logging
import os
import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple, cast, get_args

import pytest
from pydantic.fields import FieldInfo

from broker.bmq.admin.queue_metrics import shows_apps
from broker.bmq.assembly import statistics_file
from broker.bmq.assembly.app import _environment
from broker.bmq.assembly.authenticators import make_authentications
from broker.bmq.assembly.authorizers import make_authorizations
from broker.bmq.assembly.certificates import make_context
from broker.bmq.assembly.credentials import make_credential_provider
from broker.bmq.assembly.domains import Domains, ProxyDomains
from broker.bmq.assembly.membership import _principals, cluster_features, member_config
from broker.bmq.assembly.nodes import store_settings
from broker.bmq.assembly.process import OutgoingSecurity, identity_of, monitor_limits, queue_settings
from broker.bmq.config import ConfigError, NodeConfig
from broker.bmq.config.broker_schema import Configuration
from broker.bmq.config.cluster_schema import ClustersDefinition
from broker.bmq.config.domain_schema import DomainVariant
from broker.bmq.config.errors import HIDDEN
from broker.bmq.config.links import ClusterPlace, needs_proof, refuse_unreachable
from broker.bmq.config.load import parse
from broker.bmq.config.model import Choice, Model, NoEffect, bounds_of, model_in
from broker.bmq.node.node import Node
from broker.common.clock import Now
from broker.common.timers import Timers
from broker.shell.host.descriptors import connections_max
from broker.shell.process.logs import log_file, start_logging
from scripts.manual.configuration import meanings
from scripts.manual.configuration import models as models_of

PORT = 30114
TLS = Path(__file__).resolve().parents[3] / "rigs" / "tls"
DAY_S = 86_400

PLUGIN = {"name": "BasicAuthenticator", "settings": [{"key": "ann", "value": {"stringVal": "secret"}}]}
PROVIDER = {
    "name": "BasicCredentialProvider",
    "settings": [{"key": "username", "value": {"stringVal": "one"}}, {"key": "password", "value": {"stringVal": "x"}}],
}


def broker_sample() -> dict[str, Any]:
    processors = {
        "numProcessors": 4,
        "processorConfig": {"queueSize": 1, "queueSizeLowWatermark": 1, "queueSizeHighWatermark": 1},
    }
    return {
        "taskConfig": {
            "allocatorType": "NEWDELETE",
            "allocationLimit": 1,
            "logController": {
                "fileName": "node.log",
                "fileMaxAgeDays": 1,
                "rotationBytes": 1 << 20,
                "logfileFormat": "%d %s %m\n",
                "consoleFormat": "%d %m\n",
                "loggingVerbosity": "INFO",
                "bslsLogSeverityThreshold": "ERROR",
                "consoleSeverityThreshold": "INFO",
                "categories": ["BMQBRKR:INFO:green"],
                "syslog": {"enabled": False, "appName": "a", "logFormat": "%m", "verbosity": "INFO"},
                "logDump": {"recordBufferSize": 1, "recordingLevel": "OFF", "triggerLevel": "OFF"},
            },
        },
        "appConfig": {
            "brokerInstanceName": "one",
            "brokerVersion": 1,
            "configVersion": 1,
            "etcDir": "etc",
            "hostName": "localhost",
            "hostTags": "tag",
            "hostDataCenter": "east",
            "logsObserverMaxSize": 1,
            "latencyMonitorDomain": "bmq.sys.latemon.latency",
            "dispatcherConfig": {
                "sessions": processors,
                "queues": processors,
                "clusters": processors,
                "alarmTimeoutMs": 1,
                "warningTimeoutMs": 1,
            },
            "stats": {
                "snapshotInterval": 1,
                "plugins": [
                    {
                        "name": "PrometheusStatConsumer",
                        "queueSize": 1,
                        "queueHighWatermark": 1,
                        "queueLowWatermark": 1,
                        "publishInterval": 1,
                        "namespacePrefix": "a",
                        "hosts": ["a"],
                        "instanceId": "a",
                        "prometheusSpecific": {"mode": "E_PULL", "host": "127.0.0.1", "port": 8000},
                    }
                ],
                "printer": {
                    "printInterval": 10,
                    "file": "stat",
                    "maxAgeDays": 5,
                    "rotateBytes": 100,
                    "rotateDays": 2,
                    "encoding": "JSON",
                },
            },
            "networkInterfaces": {
                "heartbeats": {"client": 1, "downstreamBroker": 2, "upstreamBroker": 3, "clusterPeer": 4},
                "tcpInterface": {
                    "name": "tcp",
                    "port": PORT,
                    "ioThreads": 1,
                    "maxConnections": 100,
                    "lowWatermark": 1,
                    "highWatermark": 2,
                    "nodeLowWatermark": 1,
                    "nodeHighWatermark": 2,
                    "heartbeatIntervalMs": 1000,
                    "listeners": [
                        {"name": "plain", "address": "127.0.0.1", "port": PORT, "tls": False},
                        {"name": "safe", "address": "127.0.0.1", "port": PORT + 1, "tls": True},
                    ],
                    "proxyProtocolFrom": ["192.0.2.0/24"],
                },
            },
            "bmqconfConfig": {"cacheTTLSeconds": 1},
            "plugins": {"libraries": ["a"], "enabled": ["PrometheusStatConsumer"]},
            "messagePropertiesV2": {"advertiseV2Support": True, "minCppSdkVersion": 1, "minJavaSdkVersion": 1},
            "configureStream": False,
            "advertiseSubscriptions": False,
            "routeCommandTimeoutMs": 1,
            "authentication": {
                "authenticators": [PLUGIN],
                "anonymousCredential": {"credential": {"mechanism": "BASIC", "identity": "ann:secret"}},
                "minThreads": 1,
                "maxThreads": 8,
                "credentialProvider": PROVIDER,
            },
            "authorization": {
                "authorizer": {"name": "RuleAuthorizer", "settings": []},
                "rules": [{"actions": ["read"], "principals": ["a"], "mechanisms": ["BASIC"], "domains": ["d"]}],
            },
            "tlsConfig": {
                "certificateAuthority": "AUTHORITY",
                "certificate": "CERTIFICATE",
                "key": "KEY",
                "versions": "TLSv1.3",
                "clientCertificate": "NONE",
                "certificateRevocationList": None,
            },
        },
    }


def cluster_sample(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "nodes": [
            {
                "id": number,
                "name": f"node{number}",
                "dataCenter": "east",
                "transport": {"tcp": {"endpoint": f"tcp://127.0.0.1:{port}", "tls": False}},
                "principal": "",
            }
            for number, port in enumerate((PORT, 4001, 4002) if name == "mine" else (4003, 4004))
        ],
        "queueOperations": {
            "openTimeoutMs": 1000,
            "configureTimeoutMs": 1,
            "closeTimeoutMs": 1,
            "reopenTimeoutMs": 1,
            "reopenRetryIntervalMs": 1000,
            "reopenMaxAttempts": 3,
            "assignmentTimeoutMs": 1,
            "keepaliveDurationMs": 1000,
            "consumptionMonitorPeriodMs": 1,
            "stopTimeoutMs": 1,
            "shutdownTimeoutMs": 1000,
            "ackWindowSize": 1,
        },
        "clusterMonitorConfig": {
            "maxTimeLeader": 60,
            "maxTimeMaster": 60,
            "maxTimeNode": 60,
            "maxTimeFailover": 60,
            "thresholdLeader": 30,
            "thresholdMaster": 30,
            "thresholdNode": 30,
            "thresholdFailover": 30,
        },
        "messageThrottleConfig": {"lowThreshold": 2, "highThreshold": 4, "lowInterval": 1, "highInterval": 3},
    }


def clusters_sample() -> dict[str, Any]:
    mine = cluster_sample("mine") | {
        "partitionConfig": {
            "numPartitions": 4,
            "location": "store",
            "archiveLocation": "archive",
            "maxDataFileSize": 1 << 20,
            "maxJournalFileSize": 1 << 20,
            "maxQlistFileSize": 1 << 20,
            "maxCSLFileSize": 1 << 20,
            "preallocate": False,
            "maxArchivedFileSets": 1,
            "prefaultPages": False,
            "flushAtShutdown": True,
            "syncConfig": {
                "startupRecoveryMaxDurationMs": 1,
                "maxAttemptsStorageSync": 1,
                "storageSyncReqTimeoutMs": 1,
                "masterSyncMaxDurationMs": 1,
                "partitionSyncStateReqTimeoutMs": 1,
                "partitionSyncDataReqTimeoutMs": 1,
                "startupWaitDurationMs": 1,
                "fileChunkSize": 1,
                "partitionSyncEventSize": 1,
            },
        },
        "masterAssignment": "E_LEADER_IS_MASTER_ALL",
        "elector": {
            "initialWaitTimeoutMs": 8000,
            "maxRandomWaitTimeoutMs": 3000,
            "scoutingResultTimeoutMs": 4000,
            "electionResultTimeoutMs": 4000,
            "heartbeatBroadcastPeriodMs": 2000,
            "heartbeatCheckPeriodMs": 1000,
            "heartbeatMissCount": 10,
            "quorum": 2,
            "leaderSyncDelayMs": 1,
        },
        "clusterAttributes": {
            "isCSLModeEnabled": True,
            "isFSMWorkflow": True,
            "doesFSMwriteQLIST": True,
            "clusterFsmWatchdogTimeoutSec": 1,
            "clusterFsmWatchdogNumRetries": 1,
            "partitionFsmWatchdogTimeoutSec": 1,
            "partitionFsmWatchdogNumRetries": 1,
        },
    }
    return {
        "myClusters": [mine],
        "myVirtualClusters": [{"name": "virtual", "selfNodeId": 1}],
        "proxyClusters": [cluster_sample("far")],
    }


def domain_sample() -> dict[str, Any]:
    limits = {"messages": 10, "messagesWatermarkRatio": 0.8, "bytes": 10, "bytesWatermarkRatio": 0.8}
    expression = {"version": "E_VERSION_1", "text": "a == 1"}
    return {
        "definition": {
            "location": "mine",
            "parameters": {
                "name": "shop",
                "mode": {"fanout": {"appIDs": ["left"], "publishAppIdMetrics": True}},
                "storage": {"domainLimits": limits, "queueLimits": limits, "config": {"fileBacked": {}}},
                "maxConsumers": 1,
                "maxProducers": 1,
                "maxQueues": 1,
                "msgGroupIdConfig": {"rebalance": False, "maxGroups": 1, "ttlSeconds": 1},
                "maxIdleTime": 1,
                "messageTtl": 10,
                "maxDeliveryAttempts": 1,
                "deduplicationTimeMs": 1,
                "consistency": {"strong": {}},
                "subscriptions": [{"appId": "left", "expression": expression}],
            },
        }
    }


SAMPLES: dict[type[Model], dict[str, Any]] = {
    Configuration: broker_sample(),
    ClustersDefinition: clusters_sample(),
    DomainVariant: domain_sample(),
}

# Other values for members whose next number or longer text would have the same effect, or none.
CHANGED: dict[str, Any] = {
    "LogController.loggingVerbosity": "TRACE",
    "LogController.consoleSeverityThreshold": "WARN",
    "LogController.syslog": None,
    "StatPluginConfig.name": "Other",
    "StatPluginConfigPrometheus.mode": "E_PUSH",
    "StatsConfig.snapshotInterval": 0,
    "StatsPrinterConfig.maxAgeDays": 0,
    "StatsPrinterConfig.rotateBytes": 0,
    "StatsPrinterConfig.rotateDays": 9,
    "StatsPrinterConfig.encoding": "TABLE",
    "TcpInterfaceListener.name": "safe",
    "TcpInterfaceListener.port": PORT + 5,
    "TcpInterfaceListener.address": "127.0.0.2",
    "TlsConfig.versions": "TLSv1.2",
    "TlsConfig.clientCertificate": "OPTIONAL",
    "Plugins.enabled": [],
    "TcpClusterNodeConnection.endpoint": f"tcp://127.0.0.2:{PORT}",
    "ClusterNode.id": 7,
    "Subscription.appId": "right",
    "Expression.version": "E_UNDEFINED",
    "Expression.text": "a == 2",
    "ElectorConfig.quorum": 3,
    "AuthorizationRule.actions": ["write"],
}

# Members that have an effect only without another, which is left out.
WITHOUT = {"TcpInterfaceConfig.port": ("appConfig", "networkInterfaces", "tcpInterface", "listeners")}

# Numbers that no count, size or time is, and the members that take them, each with a meaning.
ODD_NUMBERS = (-1, -(1 << 31), 1 << 31, 1 << 63)
_BELOW_0 = {-1, -(1 << 31)}
_LARGE = {1 << 31}
HEEDED: dict[str, set[int]] = {
    # No maximum, or never.
    "TcpInterfaceConfig.maxConnections": _BELOW_0,
    "QueueOperationsConfig.reopenMaxAttempts": _BELOW_0,
    "StatsConfig.snapshotInterval": _BELOW_0,
    "StatsPrinterConfig.maxAgeDays": _BELOW_0,
    "TcpInterfaceConfig.port": {-1},
    # The original overwrites them.
    "AppConfig.brokerVersion": _BELOW_0,
    "AppConfig.configVersion": _BELOW_0,
    # A plugin decides.
    "PluginSettingValue.intVal": _BELOW_0,
    "PluginSettingValue.longVal": _BELOW_0 | _LARGE,
    "PluginSettingValue.doubleVal": {*ODD_NUMBERS},
    # Bytes, and numbers of messages.
    "TaskConfig.allocationLimit": {1 << 31, 1 << 63},
    "TcpInterfaceConfig.lowWatermark": _LARGE,
    "TcpInterfaceConfig.highWatermark": _LARGE,
    "TcpInterfaceConfig.nodeLowWatermark": _LARGE,
    "TcpInterfaceConfig.nodeHighWatermark": _LARGE,
    "PartitionConfig.maxDataFileSize": _LARGE,
    "PartitionConfig.maxJournalFileSize": _LARGE,
    "PartitionConfig.maxQlistFileSize": _LARGE,
    "PartitionConfig.maxCSLFileSize": _LARGE,
    "Limits.messages": _LARGE,
    "Limits.bytes": _LARGE,
    # Unsigned in the schema, or of 64 bits: a cluster that elects nobody, and long times.
    "ElectorConfig.quorum": _LARGE,
    "MessageThrottleConfig.lowThreshold": _LARGE,
    "MessageThrottleConfig.highThreshold": _LARGE,
    "MessageThrottleConfig.lowInterval": _LARGE,
    "MessageThrottleConfig.highInterval": _LARGE,
    "MsgGroupIdConfig.ttlSeconds": _LARGE,
    "Domain.messageTtl": _LARGE,
}

# The alternatives of a choice, beside the one of the sample.
ALTERNATIVES: dict[str, Any] = {
    "PluginSettingValue.boolVal": True,
    "PluginSettingValue.intVal": 1,
    "PluginSettingValue.longVal": 1,
    "PluginSettingValue.doubleVal": 1.5,
    "AnonymousCredential.disallow": {},
    "QueueMode.priority": {},
    "QueueMode.broadcast": {},
    "Consistency.eventual": {},
    "Storage.inMemory": {},
    "DomainVariant.redirect": "other",
}


class Case(NamedTuple):
    """A member of a model, its place in the sample, its other value, and whether the page denies an effect."""

    name: str
    root: type[Model]
    path: tuple[str | int, ...]
    value: Any
    is_inert: bool


def cases_of(root: type[Model]) -> Iterator[Case]:
    yield from _cases(root, root, SAMPLES[root], (), is_inert=False)


def _cases(
    root: type[Model], model: type[Model], value: Mapping[str, Any], path: tuple[str | int, ...], *, is_inert: bool
) -> Iterator[Case]:
    is_choice = issubclass(model, Choice)
    for python_name, field in model.model_fields.items():
        alias = field.alias or python_name
        name = f"{model.__name__}.{alias}"
        inert = is_inert or _is_inert(field)
        if is_choice and alias not in value:
            if name in ALTERNATIVES:
                yield Case(name, root, path, {alias: ALTERNATIVES[name]}, inert)
            continue
        here, found, inner = (*path, alias), value[alias], model_in(field.annotation)
        if inner is None:
            yield Case(name, root, here, CHANGED.get(name, _other(field, found)), inert)
        elif isinstance(found, list):
            for index, each in enumerate(found):
                yield from _cases(root, inner, each, (*here, index), is_inert=inert)
        else:
            yield from _cases(root, inner, found, here, is_inert=inert)


def _is_inert(field: FieldInfo) -> bool:
    return any(isinstance(note, NoEffect) for note in field.metadata)


def _other(field: FieldInfo, found: Any) -> Any:
    if isinstance(found, bool):
        return not found
    if isinstance(found, int):
        return found + 1
    if isinstance(found, float):
        return found / 2
    if isinstance(found, list):
        return [*found, "more"]
    kind = next((each for each in (field.annotation, *get_args(field.annotation)) if isinstance(each, type)), str)
    if issubclass(kind, Enum):
        return next(each.value for each in kind if each.value != found)
    return f"{found}x"


def numbers() -> Iterator[tuple[Case, int, int]]:
    """Yield the integers, with the least and the greatest value of each."""
    for case in CASES:
        if case.path and type(case.value) is int:
            sample = place_in(SAMPLES[case.root], case.path[:-1])
            if type(sample.get(case.path[-1])) is int:
                least, most = bounds_of(field_of(case))
                assert isinstance(least, int), f"{case.name} has no least value"
                assert isinstance(most, int), f"{case.name} has no greatest value"
                yield case, least, most


def field_of(case: Case) -> FieldInfo:
    model = next(model for model in models_of(case.root) if model.__name__ == case.name.partition(".")[0])
    alias = case.name.partition(".")[2]
    return next(field for name, field in model.model_fields.items() if (field.alias or name) == alias)


def is_number(field: FieldInfo) -> bool:
    return bool({int, float} & {field.annotation, *get_args(field.annotation)}) or bounds_of(field) != (None, None)


def copied(case: Case) -> dict[type[Model], Any]:
    """Return the samples, without what hides the effect of a member."""
    samples = {model: json.loads(json.dumps(sample)) for model, sample in SAMPLES.items()}
    if case.name in WITHOUT:
        *path, last = WITHOUT[case.name]
        del place_in(samples[case.root], path)[last]
    return samples


def with_change(case: Case) -> dict[type[Model], Any]:
    samples = copied(case)
    if case.path:
        place_in(samples[case.root], case.path[:-1])[case.path[-1]] = case.value
    else:
        samples[case.root] = case.value
    return samples


def place_in(sample: Any, path: Iterable[str | int]) -> Any:
    for part in path:
        sample = sample[part]
    return sample


# -- what a broker is put together from


class MemoryDomains:
    def __init__(self, variant: DomainVariant) -> None:
        self._variant = variant

    def names(self) -> list[str]:
        return ["shop"]

    def read(self, name: str) -> tuple[str, DomainVariant] | None:
        return ("shop.json", self._variant) if name == "shop" else None


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as comparable data: what objects hold, by the names of their attributes."""
    assert depth < 20
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str | bytes | Enum):
        return value
    if isinstance(value, ssl.SSLContext):
        return [value.verify_mode, value.minimum_version, value.maximum_version, len(value.get_ca_certs())]
    if isinstance(value, Mapping):
        return {str(key): plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = [plain(each, depth + 1) for each in value]
        return sorted(items, key=repr) if isinstance(value, set | frozenset) else items
    if isinstance(value, FunctionType) or callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    if hasattr(value, "pattern"):
        return value.pattern
    names = [each.name for each in fields(value)] if is_dataclass(value) else []
    names = names or [*getattr(value, "__dict__", ()), *getattr(value, "__slots__", ())]
    return {name: plain(getattr(value, name), depth + 1) for name in names if name != "shown"}


def effects(samples: Mapping[type[Model], Any], folder: Path) -> Any:
    """Return what a broker is made from by a configuration, or the fault with which it does not start."""
    try:
        text = json.dumps(samples[Configuration])
        for word, name in (("AUTHORITY", "authority.pem"), ("CERTIFICATE", "broker.pem"), ("KEY", "broker.key")):
            text = text.replace(f'"{word}"', json.dumps(str(TLS / name)))
        clusters = parse(ClustersDefinition, json.dumps(samples[ClustersDefinition]).encode(), "clusters.json")
        config = NodeConfig(
            directory=folder,
            broker=parse(Configuration, text.encode(), "bmqbrkrcfg.json"),
            clusters=clusters,
            domains=MemoryDomains(parse(DomainVariant, json.dumps(samples[DomainVariant]).encode(), "shop.json")),
            run_directory=folder,
        ).changed()
        places = [ClusterPlace(each, "clusters.json", "$") for each in clusters.my_clusters]
        places += [ClusterPlace(each, "clusters.json", "$") for each in clusters.proxy_clusters]
        refuse_unreachable(config, places, "bmqbrkrcfg.json")
        return plain([*node_parts(config), *proxy_parts(config), *process_parts(config, folder)])
    except ValueError as fault:
        return str(fault)


def node_parts(config: NodeConfig) -> Iterator[Any]:
    cluster, me = config.cluster, config.self_node
    assert cluster is not None
    assert me is not None
    domains = Domains(config)
    resolved = domains.resolve("shop")
    if resolved is None:
        raise ValueError("there is no domain")
    features = cluster_features(cluster)
    yield identity_of(config, cluster.name, me.id, features)
    yield store_settings(cluster.partition_config)
    yield queue_settings(cluster), monitor_limits(cluster), member_config(cluster)
    yield resolved, shows_apps(resolved), resolved.app_subscriptions
    yield OutgoingSecurity(config).places(cluster), [_principals(node) for node in cluster.nodes]
    yield needs_proof(config.broker.app_config, tls=me.tls)
    environment = _environment(config, domains)
    yield environment.clusters, environment.node_name, environment.storage_location


def proxy_parts(config: NodeConfig) -> Iterator[Any]:
    from broker.bmq.assembly.proxying import _upstream

    names = [cluster.name for cluster in config.clusters.proxy_clusters]
    for cluster in config.clusters.proxy_clusters:
        yield (
            _upstream(cluster),
            queue_settings(cluster),
            monitor_limits(cluster),
            OutgoingSecurity(config).places(cluster),
        )
    yield config.broker.app_config.host_data_center
    try:
        yield ProxyDomains(config, [*names, "mine"], lambda name: None).resolve("shop")
    except ValueError as fault:
        yield str(fault)


def process_parts(config: NodeConfig, folder: Path) -> Iterator[Any]:
    app, tls = config.broker.app_config, config.broker.app_config.tls_config
    yield [(each.address, each.port, each.tls) for each in config.listeners], config.metrics_address
    yield connections_max(config.tcp.max_connections, 1 << 20, 0, 1, 1), app.authentication.max_threads
    yield list(map(str, config.tcp.balancers))
    yield app.broker_instance_name  # the label of metrics, see `serve_pages`
    yield make_authentications(app.authentication, "file"), make_authorizations(app.authorization, "file")
    yield make_credential_provider(app.authentication, "file")
    if tls is not None:
        yield make_context(tls, "file")
    yield log_parts(config, folder)
    yield list(statistics_parts(config, folder))


def log_parts(config: NodeConfig, folder: Path) -> Any:
    root = logging.getLogger("broker")
    before, level = list(root.handlers), root.level
    controller = config.broker.task_config.log_controller
    path = folder / controller.file_name
    start_logging(controller.model_copy(update={"file_name": str(path)}), folder)
    made = [each for each in root.handlers if each not in before]
    record = logging.LogRecord("broker", logging.INFO, "file.py", 1, "text", (), None)
    record.created = 0.0
    record.thread = record.process = 1
    found = [
        (type(each).__name__, each.level, each.format(record), getattr(each, "maxBytes", 0), str(path)) for each in made
    ]
    found.append(("root", root.level, "", 0, ""))
    for each in made:
        root.removeHandler(each)
        each.close()
    root.setLevel(level)
    root.propagate = True
    return found


def statistics_parts(config: NodeConfig, folder: Path) -> Iterator[Any]:
    """Yield when statistics are written, and what becomes of a file that is long, or old, and of older ones."""
    begun: list[int] = []
    timers = cast("Timers", SimpleNamespace(at=lambda ms, action: begun.append(ms)))
    statistics_file.write_statistics(config, cast("Node", SimpleNamespace(timers=timers, now=Now(), work=None)))
    yield begun
    settings = config.broker.app_config.stats.printer
    yield str(log_file(settings.file + ".json", folder))
    path = folder / "x.json"
    file = statistics_file.StatisticsFile(path, settings)
    for size, now_s in ((1, 3.0 * DAY_S), (100, 0.0)):
        with path.open("w") as out:
            out.write("x" * size)
            out.flush()
            yield file._is_full(out, now_s)
    old = folder / "x.json.old"
    old.touch()
    os.utime(old, (0, 0))
    file._remove_old(10.0 * DAY_S)
    yield old.exists()


CASES = [case for root in SAMPLES for case in cases_of(root)]


@pytest.mark.slow
def test_each_setting_has_an_effect_or_the_page_says_that_it_has_none(tmp_path_factory: pytest.TempPathFactory) -> None:
    def found(samples: Mapping[type[Model], Any]) -> str:
        folder = tmp_path_factory.mktemp("broker")
        return repr(effects(samples, folder)).replace(str(folder), "FOLDER")

    before = found(SAMPLES)
    assert before.startswith("["), before
    heeded, denied = set(), {case.name for case in CASES}
    for case in CASES:
        if found(with_change(case)) != (found(copied(case)) if case.name in WITHOUT else before):
            heeded.add(case.name)
        if not case.is_inert:
            denied.discard(case.name)
    assert sorted(heeded & denied) == [], "these have an effect"
    assert sorted({case.name for case in CASES} - heeded - denied) == [], "these have none"


def refusal(root: type[Model], sample: Any) -> ConfigError | None:
    try:
        parse(root, json.dumps(sample).encode(), "file")
    except ConfigError as fault:
        return fault
    return None


@pytest.mark.slow
def test_each_number_has_bounds_and_is_refused_beyond_them(tmp_path: Path) -> None:
    tried = 0
    for case, least, most in numbers():
        for value in (least, most, least - 1, most + 1):
            changed = with_change(case._replace(value=value))
            fault = refusal(case.root, changed[case.root])
            reason = None if fault is None else fault.reason
            if least <= value <= most:
                # A check of several members may refuse it; otherwise it is put to use.
                assert reason != f"is {value}", case.name
                effects(changed, tmp_path)
            else:
                assert reason == f"is {value}", case.name
            tried += 1
    assert tried > 400


def test_each_number_refuses_what_means_nothing_to_it() -> None:
    taken: dict[str, set[int]] = {}
    for case in CASES:
        if not is_number(field_of(case)):
            continue
        alias = case.name.partition(".")[2]
        for value in ODD_NUMBERS:
            # The case of an alternative has its name in the value.
            given = {alias: value} if isinstance(case.value, dict) else value
            changed = with_change(case._replace(name="", value=given))
            fault = refusal(case.root, changed[case.root])
            if fault is None:
                taken.setdefault(case.name, set()).add(value)
                continue
            least, most = bounds_of(field_of(case))
            assert fault.json_path.rpartition(".")[2] == alias
            shown = repr(HIDDEN) if case.name.startswith("PluginSettingValue.") else value
            assert (fault.reason, fault.remedy) == (f"is {shown}", f"use {least} to {most}")
    assert taken == HEEDED


def test_each_member_of_each_model_is_tried() -> None:
    tried = {case.name for case in CASES}
    missing = []
    for root in SAMPLES:
        for model in models_of(root):
            for python_name, field in model.model_fields.items():
                name = f"{model.__name__}.{field.alias or python_name}"
                inner = model_in(field.annotation)
                if inner is None and name not in tried:
                    missing.append(name)
    assert missing == []


def test_each_member_that_has_an_effect_has_a_meaning() -> None:
    told = {
        f"{model.__name__}.{field.alias or name}": name in meanings(model)
        for root in SAMPLES
        for model in models_of(root)
        for name, field in model.model_fields.items()
    }
    assert [case.name for case in CASES if not (case.is_inert or told[case.name])] == []
