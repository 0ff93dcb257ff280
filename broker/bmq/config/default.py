"""The built-in configurations: one node, one partition, and the reference's sample domains; and a proxy.

They are decoded from the contents of files by the same models.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from broker.bmq.config.broker_schema import Configuration
from broker.bmq.config.cluster_schema import ClustersDefinition
from broker.bmq.config.domain_schema import DomainVariant
from broker.bmq.config.load import DOMAINS_DIRECTORY, DomainFiles, M, parse
from broker.bmq.config.node import Changes, DomainSource, NodeConfig
from formats.addresses import shown_place

__all__ = [
    "DEFAULT_HOST",
    "DEFAULT_PORT",
    "DEFAULT_PROXY_PORT",
    "UNNAMED",
    "built_in_config",
    "default_config",
    "domain_definition",
    "proxy_config",
]

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 30114
# Not the port of a node or a cluster on the same host: these count up from `DEFAULT_PORT`.
DEFAULT_PROXY_PORT = 30113

# Cluster of a proxy that is configured without one.
UNNAMED = "upstream"

_FILE = "built-in configuration"
_CLUSTER = "local"
_APP_IDS = ["foo", "bar", "baz"]

# Large enough that a rollover is rare at full load; the files are sparse. DATA has room for all messages that the
# queues of one domain may hold, and the journal for their confirms and deletions.
_DATA_FILE_BYTES = 1024 * 1024 * 1024
_JOURNAL_FILE_BYTES = 256 * 1024 * 1024
_QLIST_FILE_BYTES = 8 * 1024 * 1024
_DOMAIN_BYTES = 512 * 1024 * 1024
_DOMAIN_MESSAGES = 1_000_000
_QUEUE_BYTES = 256 * 1024 * 1024
_QUEUE_MESSAGES = 500_000
# The reference's samples have 300 s. But a node without a configuration may be started just to look at an old store,
# and must not delete its messages.
_MESSAGE_TTL_S = 10 * 365 * 24 * 3600

# Missed heartbeats after which a connection is closed: a peer's, and a proxy's upstream one, which another can replace.
_MISSED = 10
_MISSED_UPSTREAM = 3

_MODES: dict[str, dict[str, Any]] = {
    "priority": {"priority": {}},
    "fanout": {"fanout": {"appIDs": _APP_IDS}},
    "broadcast": {"broadcast": {}},
}

# Storage and consistency by the family in the name; `.sc` is strong consistency. The integration tests of the reference
# and its Python SDK use `mmap` names. Broadcast queues store nothing.
_DOMAINS = {
    f"bmq.test.{family}.{mode}{suffix}": (mode, storage if mode != "broadcast" else "inMemory", consistency)
    for family, storage, modes in (
        ("mem", "inMemory", ("priority", "fanout", "broadcast")),
        ("persistent", "fileBacked", ("priority", "fanout")),
        ("mmap", "fileBacked", ("priority", "fanout", "broadcast")),
    )
    for mode in modes
    for suffix, consistency in (("", "eventual"), (".sc", "strong"))
    if not suffix or (storage == "fileBacked" and mode != "broadcast")
}


def default_config(host: str = DEFAULT_HOST, port: int = DEFAULT_PORT, data_dir: Path = Path("bmq-data")) -> NodeConfig:
    """Return a cluster of one node, listening on `host`:`port`, with its files and further domains in `data_dir`."""
    cluster = {
        "name": _CLUSTER,
        "nodes": [_node(0, "localhost", port)],
        "partitionConfig": {
            "numPartitions": 1,
            "location": str(data_dir),
            "archiveLocation": str(data_dir / "archive"),
            "maxDataFileSize": _DATA_FILE_BYTES,
            "maxJournalFileSize": _JOURNAL_FILE_BYTES,
            "maxQlistFileSize": _QLIST_FILE_BYTES,
        },
    }
    return NodeConfig(
        directory=None,
        broker=_parsed(Configuration, _broker(host, port)),
        clusters=_parsed(ClustersDefinition, {"myClusters": [cluster]}),
        domains=_sample_domains(data_dir),
        run_directory=data_dir,
    )


def built_in_config(**changes: Unpack[Changes]) -> NodeConfig:
    """Return the same with the command line's options applied: see `NodeConfig.changed`."""
    config = default_config().changed(**changes)
    data_dir = changes.get("data_dir")
    # Not by `default_config`, which writes the path as JSON: it may have bytes that are no text.
    return config if data_dir is None else replace(config, domains=_sample_domains(data_dir))


def proxy_config(
    upstream: Sequence[tuple[str, int]],
    cluster_name: str = UNNAMED,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PROXY_PORT,
    data_dir: Path = Path("bmq-proxy"),
) -> NodeConfig:
    """Return a proxy to the brokers at `upstream`, host and port of each; its log is in `data_dir`.

    Raises `ConfigError` if one of them cannot be a broker's address.
    """
    nodes = [_node(number, *endpoint) for number, endpoint in enumerate(upstream)]
    return NodeConfig(
        directory=None,
        broker=_parsed(Configuration, _broker(host, port, missed_upstream=_MISSED_UPSTREAM)),
        clusters=_parsed(ClustersDefinition, {"proxyClusters": [{"name": cluster_name, "nodes": nodes}]}),
        domains=_None(),
        run_directory=data_dir,
    )


def _broker(host: str, port: int, missed_upstream: int = _MISSED) -> dict[str, Any]:
    return {
        "appConfig": {
            "brokerInstanceName": "default",
            "hostName": "localhost",
            "networkInterfaces": {
                "heartbeats": {
                    "client": _MISSED,
                    "downstreamBroker": _MISSED,
                    "upstreamBroker": missed_upstream,
                    "clusterPeer": _MISSED,
                },
                "tcpInterface": {
                    "name": "TCPInterface",
                    "port": port,
                    "lowWatermark": 4 * 1024 * 1024,
                    "highWatermark": 1024 * 1024 * 1024,
                    "nodeLowWatermark": 5 * 1024 * 1024,
                    "nodeHighWatermark": 10 * 1024 * 1024,
                    "listeners": [{"name": "TCPInterface", "address": host, "port": port}],
                },
            },
            "bmqconfConfig": {"cacheTTLSeconds": 30},
        }
    }


def _node(number: int, host: str, port: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": host,
        "dataCenter": "UNSPECIFIED",
        "transport": {"tcp": {"endpoint": f"tcp://{shown_place(host, port)}"}},
    }


def _parsed(model: type[M], members: dict[str, Any]) -> M:
    return parse(model, json.dumps(members).encode(), _FILE)


class _None:
    """No domains: a proxy's are known upstream."""

    def names(self) -> list[str]:
        return []

    def read(self, name: str) -> tuple[str, DomainVariant] | None:
        return None


def _sample_domains(data_dir: Path) -> DomainSource:
    return _Samples(DomainFiles(data_dir / DOMAINS_DIRECTORY))


class _Samples:
    def __init__(self, files: DomainFiles) -> None:
        self._files = files

    def names(self) -> list[str]:
        return sorted({*_DOMAINS, *self._files.names()})

    def read(self, name: str) -> tuple[str, DomainVariant] | None:
        if (found := self._files.read(name)) is not None or name not in _DOMAINS:
            return found
        mode, storage, consistency = _DOMAINS[name]
        definition = domain_definition(name, _CLUSTER, _MODES[mode], storage, consistency)
        return _FILE, _parsed(DomainVariant, definition)


def domain_definition(
    name: str,
    cluster: str,
    mode: dict[str, Any],
    storage: str = "fileBacked",
    consistency: str = "eventual",
    message_ttl_s: int = _MESSAGE_TTL_S,
) -> dict[str, Any]:
    """Return a domain's definition as in a file, with the limits of the sample domains."""
    parameters = {
        "name": name,
        "mode": mode,
        "storage": {
            "config": {storage: {}},
            "domainLimits": {"messages": _DOMAIN_MESSAGES, "bytes": _DOMAIN_BYTES},
            "queueLimits": {"messages": _QUEUE_MESSAGES, "bytes": _QUEUE_BYTES},
        },
        "messageTtl": message_ttl_s,
        "consistency": {consistency: {}},
    }
    return {"definition": {"location": cluster, "parameters": parameters}}
