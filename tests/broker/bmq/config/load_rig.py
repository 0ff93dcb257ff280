"""Configuration files of a broker, written for a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CLUSTERS = json.loads((Path(__file__).parents[3] / "golden" / "cluster.clusters.json").read_text())
BROKER: dict[str, Any] = {
    "taskConfig": {
        "allocatorType": "COUNTING",
        "allocationLimit": 34359738368,
        "logController": {"fileName": "logs/%T", "loggingVerbosity": "INFO", "categories": ["BMQ*:INFO:green"]},
    },
    "appConfig": {
        "brokerInstanceName": "default",
        "hostName": "node1",
        "hostDataCenter": "dc",
        "isRunningOnDev": False,  # of an older schema
        "dispatcherConfig": {"sessions": {"numProcessors": 4, "processorConfig": {"queueSize": 500000}}},
        "networkInterfaces": {
            "heartbeats": {"client": 10, "clusterPeer": 10},
            "tcpInterface": {"name": "TCPInterface", "port": 30201, "ioThreads": 4, "lowWatermark": 4194304},
        },
        "bmqconfConfig": {"cacheTTLSeconds": 30},
    },
}
LIMITS = {"messages": 1000, "bytes": 1048576}
DOMAIN: dict[str, Any] = {
    "definition": {
        "location": "planets",
        "parameters": {
            "mode": {"fanout": {"appIDs": ["foo", "bar"]}},
            "storage": {"config": {"fileBacked": {}}, "domainLimits": LIMITS, "queueLimits": LIMITS},
            "messageTtl": 300,
            "consistency": {"strong": {}},
        },
    }
}


def write_broker(directory: Path) -> None:
    write(directory, "bmqbrkrcfg.json", BROKER)


def write(directory: Path, name: str, content: Any) -> None:
    (directory / name).write_text(json.dumps(content))
