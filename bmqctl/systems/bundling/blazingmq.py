"""The state of a BlazingMQ cluster, or of a proxy: its nodes' answers to administration commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from bmqctl.client.admin import AdminClient, AdminLost
from bmqctl.systems.blazingmq.status.asking import Asking, endpoint_parts
from bmqctl.systems.bundling.archive import Archive
from formats.bmq.uri import parse_uri
from formats.errors import FormatError

__all__ = ["add_cluster"]

NODES_MAX: Final = 64
CLUSTERS_MAX: Final = 16
DOMAINS_MAX: Final = 200
QUEUES_MAX: Final = 200

_OF_NODE: Final = (("clusters", "CLUSTERS LIST"), ("broker-config", "BROKERCONFIG DUMP"), ("statistics", "STAT SHOW"))
_OF_CLUSTER: Final = (
    ("health", "HEALTH"),
    ("status", "STATUS"),
    ("queues", "QUEUEHELPER"),
    ("storage", "STORAGE SUMMARY"),
    ("elector", "STATE ELECTOR LIST_TUNABLES"),
    ("replication", "STORAGE REPLICATION LIST_TUNABLES"),
)


def add_cluster(archive: Archive, host: str, port: int, asking: Asking) -> None:
    """Add the answers of a node, and of the nodes that it names; silent ones are noted as missing."""
    others = _add_node(archive, host, port, asking)
    for endpoint in others[:NODES_MAX]:
        try:
            place = endpoint_parts(endpoint)
        except AdminLost as fault:
            archive.lack(f"nodes/{endpoint}", str(fault))
            continue
        _add_node(archive, *place, asking)
    for endpoint in others[NODES_MAX:]:
        archive.lack(f"nodes/{endpoint}", f"there are more than {NODES_MAX} nodes", by_design=True)


def _add_node(archive: Archive, host: str, port: int, asking: Asking) -> list[str]:
    folder = f"nodes/{host}_{port}"
    try:
        with asking.client(host, port) as client:
            return _add_answers(archive, folder, client)
    except AdminLost as fault:
        archive.lack(folder, str(fault))
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as fault:
        archive.lack(folder, f"the answer is not understood: {type(fault).__name__}: {fault}")
    return []


def _add_answers(archive: Archive, folder: str, client: AdminClient) -> list[str]:
    answers = {name: _add_answer(archive, folder, name, client, command) for name, command in _OF_NODE}
    others: list[str] = []
    known = answers["clusters"].get("clusterList", {}).get("clusters", [])
    for cluster in [str(each["name"]) for each in known][:CLUSTERS_MAX]:
        within = f"{folder}/{_safe(cluster)}"
        found = {
            name: _add_answer(archive, within, name, client, f"CLUSTERS CLUSTER {cluster} {command}")
            for name, command in _OF_CLUSTER
        }
        nodes = found["health"].get("clusterHealth", {}).get("view", {}).get("nodes", [])
        others += [str(each["endpoint"]) for each in nodes if not each["isSelf"]]
        uris = [str(each["uri"]) for each in found["queues"].get("clusterQueueHelper", {}).get("queues", [])]
        _add_queues(archive, within, client, uris)
    return others


def _add_queues(archive: Archive, folder: str, client: AdminClient, uris: list[str]) -> None:
    queues = list(_parsed(uris))
    domains = sorted({domain for domain, _ in queues})
    for domain in domains[:DOMAINS_MAX]:
        _add_answer(archive, f"{folder}/domains", _safe(domain), client, f"DOMAINS DOMAIN {domain} INFOS")
    for domain, queue in queues[:QUEUES_MAX]:
        name, command = _safe(f"{domain}.{queue}"), f"DOMAINS DOMAIN {domain} QUEUE {queue} INTERNALS"
        _add_answer(archive, f"{folder}/queue-internals", name, client, command)
    if len(domains) > DOMAINS_MAX:
        reason = f"only {DOMAINS_MAX} of {len(domains):,} domains were asked for"
        archive.lack(f"{folder}/domains", reason, by_design=True)
    if len(queues) > QUEUES_MAX:
        reason = f"only {QUEUES_MAX} of {len(queues):,} queues were asked for"
        archive.lack(f"{folder}/queue-internals", reason, by_design=True)


def _parsed(uris: list[str]) -> Iterator[tuple[str, str]]:
    for uri in uris:
        try:
            found = parse_uri(uri)
        except FormatError:
            continue
        yield found.qualified_domain, found.queue


def _add_answer(archive: Archive, folder: str, name: str, client: AdminClient, command: str) -> dict[str, Any]:
    text = client.send(f"ENCODING JSON_COMPACT {command}")
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = text
    archive.add_json(f"{folder}/{name}.json", answer, command)
    return answer if isinstance(answer, dict) else {}


def _safe(name: str) -> str:
    text = "".join(each if each.isalnum() or each in "._-" else "_" for each in name[:120])
    return text.lstrip(".") or "_"
