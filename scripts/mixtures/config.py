"""Configuration files that both programs take: of nodes, of proxies, and the domains of scripts/mixed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bmqctl.systems.node_process import HOST
from broker.bmq.config.local_cluster import write_local_cluster

__all__ = [
    "APPS",
    "ATTEMPTS",
    "BROADCAST",
    "CLUSTER",
    "EVENTUAL",
    "EXPRESSIONS",
    "FANOUT",
    "MINDFUL",
    "SHORT_LIVED",
    "TTL_S",
    "adapt",
    "write_domain",
    "write_proxy",
]

CLUSTER = "local"
EVENTUAL = "mixed.eventual"
FANOUT = "mixed.fanout"
EXPRESSIONS = "mixed.expressions"
BROADCAST = "mixed.broadcast"
SHORT_LIVED = "mixed.ttl"
MINDFUL = "mixed.attempts"

TTL_S = 2
ATTEMPTS = 3
# The apps of a fan-out, and the domain's expression for each ("": everything).
APPS = {"foo": "", "bar": "n < 40", "baz": 'n >= 40 && kind == "even"'}

# Fields that the reference's parser requires and our defaults leave out, with the values of its sample.
_QUEUES = {"queueSize": 500_000, "queueSizeLowWatermark": 100_000, "queueSizeHighWatermark": 200_000}
_LOG = {
    "fileName": "logs/log",
    "fileMaxAgeDays": 10,
    "rotationBytes": 1 << 28,
    "logfileFormat": "%d (%t) %s %F:%l %m\n",
    "consoleFormat": "%d (%t) %s %F:%l %m\n",
    "loggingVerbosity": "INFO",
    "consoleSeverityThreshold": "INFO",
    "categories": ["BMQBRKR:INFO:green", "BMQ*:INFO:green", "MQB*:INFO:green"],
    "syslog": {"enabled": False, "appName": "BMQ", "logFormat": "%d %m", "verbosity": ""},
}
_ELECTOR = {
    "initialWaitTimeoutMs": 3000,
    "maxRandomWaitTimeoutMs": 1000,
    "scoutingResultTimeoutMs": 2000,
    "electionResultTimeoutMs": 2000,
    "heartbeatBroadcastPeriodMs": 1000,
    "heartbeatCheckPeriodMs": 500,
    "heartbeatMissCount": 6,
    "quorum": 0,
    "leaderSyncDelayMs": 80_000,
}


def adapt(folder: Path, name: str, sizes: Mapping[str, int], partitions: int) -> None:
    """Write a node's files so that both programs accept them, and add the domains of the scenarios."""
    _adapt_broker(folder, name)
    file = folder / "clusters.json"
    clusters: dict[str, Any] = json.loads(file.read_text())
    (cluster,) = clusters["myClusters"]
    cluster["partitionConfig"].update(sizes, numPartitions=partitions)
    cluster["elector"] = _ELECTOR
    cluster["clusterAttributes"].update(isCSLModeEnabled=True, isFSMWorkflow=True)
    file.write_text(json.dumps(clusters, indent=2))
    _write_domains(folder)


def write_proxy(folder: Path, port: int, upstream: Sequence[int]) -> None:
    """Make the files of a proxy of either program to the nodes at the ports `upstream` of this host."""
    (made,) = write_local_cluster(folder.parent / f"{folder.name}.made", 1, HOST, port)
    made.rename(folder)
    made.parent.rmdir()
    _adapt_broker(folder, folder.name)
    file = folder / "clusters.json"
    (cluster,) = json.loads(file.read_text())["myClusters"]
    kept = {name: cluster[name] for name in ("queueOperations", "clusterMonitorConfig", "messageThrottleConfig")}
    nodes = [
        {
            "id": number,
            "name": f"node{number}",
            "dataCenter": "UNSPECIFIED",
            "transport": {"tcp": {"endpoint": f"tcp://{HOST}:{each}"}},
        }
        for number, each in enumerate(upstream, 1)
    ]
    file.write_text(json.dumps({"proxyClusters": [{"name": CLUSTER, "nodes": nodes, **kept}]}, indent=2))
    _write_domains(folder)


def _adapt_broker(folder: Path, name: str) -> None:
    file = folder / "bmqbrkrcfg.json"
    broker = json.loads(file.read_text())
    task, app = broker["taskConfig"], broker["appConfig"]
    task.update(allocatorType="COUNTING", allocationLimit=1 << 35, logController=_LOG)
    processors = {"numProcessors": 1, "processorConfig": _QUEUES}
    app.update(hostName=name, brokerVersion=999_999, configVersion=999_999)
    # Without these the reference's hops send no expressions upstream.
    app.update(configureStream=True, advertiseSubscriptions=True)
    app["dispatcherConfig"] = dict.fromkeys(("sessions", "queues", "clusters"), processors)
    app["stats"]["printer"].update(file="logs/stat", maxAgeDays=1)
    app["networkInterfaces"]["tcpInterface"]["ioThreads"] = 2
    for newer in ("authentication", "authorization"):
        app.pop(newer, None)
    file.write_text(json.dumps(broker, indent=2))


def _write_domains(folder: Path) -> None:
    write_domain(folder, EVENTUAL)
    write_domain(folder, FANOUT, APPS, strong=True)
    write_domain(folder, EXPRESSIONS, strong=True)
    write_domain(folder, SHORT_LIVED, messageTtl=TTL_S)
    write_domain(folder, MINDFUL, strong=True, maxDeliveryAttempts=ATTEMPTS)
    write_domain(folder, BROADCAST, mode={"broadcast": {}}, kept=False)


def write_domain(
    folder: Path,
    name: str,
    apps: Mapping[str, str] | None = None,
    *,
    mode: Mapping[str, Any] | None = None,
    strong: bool = False,
    kept: bool = True,
    **changes: Any,
) -> None:
    """Write a domain's file: a fan-out with expressions for `apps`, otherwise priority."""
    chosen = mode or ({"priority": {}} if apps is None else {"fanout": {"appIDs": list(apps)}})
    limits = {"messages": 1 << 20, "messagesWatermarkRatio": 0.8, "bytes": 1 << 30, "bytesWatermarkRatio": 0.8}
    parameters = {
        "name": name,
        "mode": chosen,
        "storage": {
            "domainLimits": limits,
            "queueLimits": limits,
            "config": {"fileBacked": {}} if kept else {"inMemory": {}},
        },
        "maxConsumers": 0,
        "maxProducers": 0,
        "maxQueues": 0,
        "maxIdleTime": 0,
        "messageTtl": 24 * 3600,
        "maxDeliveryAttempts": 0,
        "deduplicationTimeMs": 300_000,
        "consistency": {"strong": {}} if strong else {"eventual": {}},
    }
    if apps is not None and any(apps.values()):
        parameters["subscriptions"] = [
            {"appId": app, "expression": {"version": "E_VERSION_1", "text": text}} for app, text in apps.items() if text
        ]
    text = json.dumps({"definition": {"location": CLUSTER, "parameters": parameters | changes}}, indent=2)
    (folder / "domains" / f"{name}.json").write_text(text + "\n")
