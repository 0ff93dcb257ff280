"""Configuration files as the reference has them: a directory for tests to change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["BROKER", "PORT", "domain", "spoil", "write_config", "write_proxy_config"]

PORT = 30114

BROKER = {
    "taskConfig": {
        "allocatorType": "NEWDELETE",
        "allocationLimit": 34359738368,
        "logController": {
            "fileName": "logs.%T.%p",
            "rotationBytes": 268435456,
            "consoleFormat": "%d (%t) %s %F:%l %m\n",
            "loggingVerbosity": "INFO",
            "consoleSeverityThreshold": "INFO",
            "categories": ["BMQBRKR:INFO:green"],
            "syslog": {"enabled": False},
        },
    },
    "appConfig": {
        "brokerInstanceName": "default",
        "brokerVersion": 999999,
        "configVersion": 999999,
        "hostName": "localhost",
        "networkInterfaces": {
            "heartbeats": {"client": 3},
            "tcpInterface": {
                "name": "TCPInterface",
                "port": PORT,
                "ioThreads": 4,
                "maxConnections": 10000,
                "lowWatermark": 4194304,
                "highWatermark": 1073741824,
                "heartbeatIntervalMs": 1000,
                "someOptionOfALaterVersion": {"a": [1]},
            },
        },
        "bmqconfConfig": {"cacheTTLSeconds": 30},
    },
}

CLUSTER = {
    "name": "mine",
    "clusterAttributes": {"isCSLModeEnabled": True, "isFSMWorkflow": False},
    "nodes": [
        {
            "id": 0,
            "name": "one",
            "dataCenter": "UNSPECIFIED",
            "transport": {"tcp": {"endpoint": f"tcp://localhost:{PORT}"}},
        }
    ],
    "partitionConfig": {
        "numPartitions": 3,
        "location": "/nowhere/storage",
        "archiveLocation": "/nowhere/archive",
        "maxDataFileSize": 16 << 20,
        "maxJournalFileSize": 1 << 20,
        "maxQlistFileSize": 1 << 20,
        "maxArchivedFileSets": 2,
        "flushAtShutdown": True,
    },
    "elector": {"quorum": 0},
}


def domain(name: str, mode: dict[str, Any], storage: str = "fileBacked", messages_max: int = 1000) -> dict[str, Any]:
    limits = {"bytes": 4 << 20, "messages": messages_max, "bytesWatermarkRatio": 0.8, "messagesWatermarkRatio": 0.8}
    return {
        "definition": {
            "location": "mine",
            "parameters": {
                "name": name,
                "maxDeliveryAttempts": 0,
                "deduplicationTimeMs": 300000,
                "consistency": {"eventual": {}},
                "storage": {"config": {storage: {}}, "domainLimits": limits, "queueLimits": limits},
                "messageTtl": 600,
                "maxProducers": 0,
                "maxConsumers": 0,
                "maxQueues": 0,
                "maxIdleTime": 0,
                "mode": mode,
            },
        }
    }


DOMAINS = {
    "shop.orders": domain("shop.orders", {"priority": {}}, messages_max=10),
    "shop.prices": domain("shop.prices", {"fanout": {"appIDs": ["left", "right"]}}),
    "shop.ticks": domain("shop.ticks", {"broadcast": {}}, "inMemory"),
    "bmq.test.mem.priority": domain("bmq.test.mem.priority", {"priority": {}}, "inMemory"),
    "shop.old": {"redirect": "shop.orders"},
}


def write_config(folder: Path) -> Path:
    (folder / "domains").mkdir(parents=True)
    (folder / "bmqbrkrcfg.json").write_text(json.dumps(BROKER, indent=4))
    (folder / "clusters.json").write_text(json.dumps({"myClusters": [CLUSTER], "proxyClusters": []}, indent=4))
    for name, definition in DOMAINS.items():
        (folder / "domains" / f"{name}.json").write_text(json.dumps(definition, indent=4))
    return folder


def write_proxy_config(
    folder: Path, upstream: Sequence[int] = (PORT + 1,), name: str = "mine", virtual: dict[str, int] | None = None
) -> Path:
    """Write all files of a proxy to cluster `name`, whose nodes are at the ports `upstream` of this host.

    It has the domains of the reference's proxies, and stands for the clusters `virtual`, by name and number.
    """
    write_config(folder)
    nodes = [
        {"id": number, "name": f"up{number}", "dataCenter": "east", "transport": {"tcp": {"endpoint": _endpoint(port)}}}
        for number, port in enumerate(upstream, 1)
    ]
    stands_for = [{"name": each, "selfNodeId": number} for each, number in (virtual or {}).items()]
    clusters = {"myVirtualClusters": stands_for, "proxyClusters": [{"name": name, "nodes": nodes}]}
    (folder / "clusters.json").write_text(json.dumps(clusters, indent=4))
    for file in (folder / "domains").iterdir():
        definition = json.loads(file.read_text())
        if "definition" in definition:
            definition["definition"]["location"] = name
            file.write_text(json.dumps(definition))
    return folder


def _endpoint(port: int) -> str:
    return f"tcp://127.0.0.1:{port}"


def spoil(folder: Path, file: str, *path: str | int, value: Any) -> None:
    """Put `value` at `path` in a file; None removes the entry."""
    text = json.loads((folder / file).read_text())
    at = text
    for step in path[:-1]:
        at = at[step]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    (folder / file).write_text(json.dumps(text))
