"""Questions about one queue of BlazingMQ."""

from __future__ import annotations

from typing import Any, NamedTuple

from bmqctl.client.admin import AdminClient, AdminLost
from bmqctl.systems.blazingmq.status.asking import Connects, Refused, ask_for, endpoint_parts, own_cluster
from formats.bmq.uri import QueueUri

__all__ = ["QueueAnswers", "UnknownApp", "apps_of", "ask_about_queue", "check_app", "primary_of", "stored_messages"]


class QueueAnswers(NamedTuple):
    """Answers of the primary: its view of the cluster, and the queue's internals or, without these, its messages."""

    view: dict[str, Any]
    internals: dict[str, Any] | None
    messages: int


class UnknownApp(Exception):
    """An app that the queue lacks; the text names its apps."""


def check_app(host: str, port: int, asking: Connects, queue: QueueUri) -> None:
    """Raise `UnknownApp` if the queue lacks the app of its URI; ignore all other answers."""
    try:
        internals = ask_about_queue(host, port, asking, queue).internals
        if internals is not None:
            apps_of(internals, queue.app_id)
    except (AdminLost, Refused, LookupError, TypeError, ValueError, AttributeError, StopIteration):
        return


def apps_of(internals: dict[str, Any], app_id: str = "") -> list[dict[str, Any]]:
    """The states of a queue's apps. Raises `UnknownApp` if there is none of that name."""
    # All modes have one engine, under different names.
    engine = next(iter(internals["queue"]["localQueue"]["queueEngine"].values()))
    apps: list[dict[str, Any]] = engine.get("consumerStates", [])
    # Consumers of an unknown app are among the states, too, but nothing is stored for them.
    stored = internals["state"]["storage"].get("virtualStorages") or apps
    names = sorted(each["appId"] for each in stored)
    if app_id and app_id not in names:
        raise UnknownApp(f"{internals['state']['uri']} has no app {app_id}, but {', '.join(names)}")
    return apps


def ask_about_queue(host: str, port: int, asking: Connects, queue: QueueUri) -> QueueAnswers:
    """Ask the primary of a queue. Raises `AdminLost` if a broker is unreachable, `Refused` without such a queue."""
    with asking.client(host, port) as client:
        primary = primary_of(client, f"{host}:{port}", queue)
        if primary is None:
            return _answers(client, f"{host}:{port}", queue)
    host, port = endpoint_parts(primary)
    with asking.client(host, port) as client:
        return _answers(client, primary, queue)


def _answers(client: AdminClient, place: str, queue: QueueUri) -> QueueAnswers:
    cluster = own_cluster(client, place)
    view = ask_for(client, f"CLUSTERS CLUSTER {cluster} HEALTH", "clusterHealth")["view"]
    prefix = f"DOMAINS DOMAIN {queue.qualified_domain} "
    try:
        internals = ask_for(client, f"{prefix}QUEUE {queue.queue} INTERNALS", "queueInternals")
    except Refused as refusal:
        if "was not found on domain" not in str(refusal):
            raise
        info = ask_for(client, f"{prefix}INFOS", "domainInfo")
        return QueueAnswers(view, None, stored_messages(info, queue))
    return QueueAnswers(view, internals, int(internals["state"]["storage"]["numMessages"]))


def stored_messages(info: dict[str, Any], queue: QueueUri) -> int:
    name = queue._replace(app_id="").canonical
    storages = info.get("storageContent", {}).get("storages", [])
    return next((int(each["numMessages"]) for each in storages if each["queueUri"] == name), 0)


def primary_of(client: AdminClient, place: str, queue: QueueUri) -> str | None:
    """The endpoint of the queue's primary; None if it is the broker that was asked."""
    cluster = own_cluster(client, place)
    known = ask_for(client, f"CLUSTERS CLUSTER {cluster} QUEUEHELPER", "clusterQueueHelper")
    name = queue._replace(app_id="").canonical
    partition = next((each["partitionId"] for each in known.get("queues", []) if each["uri"] == name), None)
    if partition is None:
        raise Refused(f"there is no queue {name}")
    view = ask_for(client, f"CLUSTERS CLUSTER {cluster} HEALTH", "clusterHealth")["view"]
    primary = next((each.get("primaryNodeId") for each in view["partitions"] if each["partitionId"] == partition), None)
    node = next((each for each in view["nodes"] if each["nodeId"] == primary), None)
    if node is None:
        raise AdminLost(f"partition {partition}, in which {name} is, has no primary")
    return None if node["isSelf"] else str(node["endpoint"])
