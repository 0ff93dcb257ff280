"""Samples of a BlazingMQ cluster, and the purge of a queue."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from bmqctl.client.admin import AdminClient, AdminLost
from bmqctl.systems.blazingmq.status.asking import Connects, Refused, ask_all, ask_for, endpoint_parts, records_behind
from bmqctl.systems.blazingmq.status.contents import purge as purge_queue
from bmqctl.systems.blazingmq.status.queues import stored_messages
from bmqctl.systems.blazingmq.status.rows import best_view, newest_view
from bmqctl.systems.watching.model import Counted, NodeState, Sample
from formats.bmq.uri import parse_uri

__all__ = ["OLDEST_MAX", "Look", "purge", "take_look", "take_sample"]

SYSTEM: Final = "BlazingMQ"
# Queues whose oldest message is requested: those with the most messages.
OLDEST_MAX: Final = 100
UNREACHABLE: Final = "UNREACHABLE"
SNAPSHOT_TRIES: Final = 10
SNAPSHOT_PAUSE_S: Final = 0.2
_TOO_OFTEN: Final = "trying to make snapshots too often"


class Look(NamedTuple):
    """The answers of all nodes about their cluster, as `ask_all` returns them, and the sample taken with them."""

    views: list[dict[str, Any]]
    sample: Sample


def take_sample(host: str, port: int, asking: Connects) -> Sample:
    """Ask all nodes of a cluster. Raises `AdminLost` if the first one does not answer."""
    return take_look(host, port, asking).sample


def take_look(host: str, port: int, asking: Connects, oldest_max: int = OLDEST_MAX) -> Look:
    """Take a sample, and keep its views. Raises `AdminLost` if the first node does not answer.

    At each node, the oldest message of `oldest_max` queues is requested.
    """
    views = ask_all(host, port, asking)
    known = [each["view"] for each in views if "view" in each]
    newest = newest_view(known)
    # A single node names no endpoint.
    places = {int(node["nodeId"]): str(node["endpoint"]) or f"{host}:{port}" for node in newest["nodes"]}
    faults = [f"node {each['nodeId']}: {each['error']}" for each in views if "error" in each]
    lags = _lags(known)
    counted: list[Counted] = []
    for number in sorted({view["nodeId"] for view in known}):
        own_host, own_port = endpoint_parts(places[number]) if len(known) > 1 else (host, port)
        try:
            with asking.client(own_host, own_port) as client:
                counted += _with_oldest(client, _counted(client, newest["name"], number, lags), oldest_max)
        except (AdminLost, Refused) as fault:
            faults.append(f"node {number}: {fault}")
    sample = Sample(time.monotonic(), SYSTEM, tuple(counted), tuple(_nodes(views, places, known)), tuple(faults))
    return Look(views, sample)


def _lags(known: list[dict[str, Any]]) -> dict[int, tuple[int | None, int | None]]:
    found = {}
    for number in sorted({each["partitionId"] for view in known for each in view["partitions"]}):
        best = best_view(known, number)
        behind = [
            records
            for view in known
            for each in view["partitions"]
            if each["partitionId"] == number and view["nodeId"] != best.get("primaryNodeId")
            if (records := records_behind(best, each)) is not None
        ]
        found[number] = (best.get("primaryNodeId"), max(behind, default=None))
    return found


def _nodes(views: list[dict[str, Any]], places: Mapping[int, str], known: list[dict[str, Any]]) -> Iterator[NodeState]:
    for each in views:
        number, view = each["nodeId"], each.get("view")
        if view is None:
            yield NodeState(f"node {number}", places.get(number, ""), "", UNREACHABLE)
            continue
        behind = [
            records
            for own in view["partitions"]
            if (records := records_behind(best_view(known, own["partitionId"]), own)) is not None
        ]
        yield NodeState(
            f"node {number}", places.get(number, ""), view["role"], view["status"], max(behind, default=None)
        )


def _counted(
    client: AdminClient, cluster: str, number: int, lags: Mapping[int, tuple[int | None, int | None]]
) -> list[Counted]:
    helper = ask_for(client, f"CLUSTERS CLUSTER {cluster} QUEUEHELPER", "clusterQueueHelper")
    partitions = {each["uri"]: each["partitionId"] for each in helper.get("queues", [])}
    own = {uri: lags[each][1] for uri, each in partitions.items() if each in lags and lags[each][0] == number}
    found: list[Counted] = []
    for uri, queue in _statistics(_snapshot(client)).items():
        if uri in own:
            found += _of_queue(uri, queue, f"node {number}", own[uri])
    unseen = sorted(own.keys() - {each.name for each in found})
    infos: dict[str, dict[str, Any]] = {}
    return [*found, *(_unopened(client, uri, f"node {number}", own[uri], infos) for uri in unseen)]


def _unopened(client: AdminClient, uri: str, node: str, lag: int | None, infos: dict[str, dict[str, Any]]) -> Counted:
    """The counters of a queue that nobody has opened since the node started, and that has no statistics."""
    queue = parse_uri(uri)
    domain = queue.qualified_domain
    if domain not in infos:
        infos[domain] = ask_for(client, f"DOMAINS DOMAIN {domain} INFOS", "domainInfo")
    return Counted(uri, "", node, None, None, stored_messages(infos[domain], queue), consumers=0, lag=lag)


def _snapshot(client: AdminClient) -> str:
    """Ask for the statistics, which a node that has just reported them refuses for a moment."""
    for _ in range(SNAPSHOT_TRIES):
        text = client.send("ENCODING JSON_COMPACT STAT SHOW")
        if _TOO_OFTEN not in text[:200]:
            break
        time.sleep(SNAPSHOT_PAUSE_S)
    return text


def _statistics(text: str) -> dict[str, dict[str, Any]]:
    try:
        stats = json.loads(text)["stats"]
        found = json.loads(stats) if isinstance(stats, str) else stats
        domains = found["domainQueues"]["domains"]
        return {uri: queue for queues in domains.values() for uri, queue in queues.items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise Refused(f"no statistics: {text[:120]}") from None


def _of_queue(uri: str, queue: dict[str, Any], node: str, lag: int | None) -> Iterator[Counted]:
    values = queue["values"]
    yield Counted(
        uri,
        "",
        node,
        int(values["queue_put_msgs_abs"]),
        int(values["queue_push_msgs_abs"]),
        int(values["queue_msgs_current"]),
        consumers=int(values["queue_consumers_count"]),
        lag=lag,
    )
    for app, each in queue.get("appIds", {}).items():
        own = each["values"]
        backlog = int(own["queue_msgs_current"])
        put = int(values["queue_put_msgs_abs"])
        yield Counted(uri, app, node, put, int(own["queue_push_msgs_abs"]), backlog, lag=lag)


def _with_oldest(client: AdminClient, counted: list[Counted], oldest_max: int) -> list[Counted]:
    waiting = sorted((each for each in counted if each.backlog), key=lambda each: -(each.backlog or 0))
    # By one clock, so that rows sorted by age do not change places.
    now = datetime.now(UTC)
    arrivals: dict[str, str] = {}
    ages = {each[:2]: _oldest_s(client, each, now, arrivals) for each in waiting[:oldest_max]}
    return [each._replace(oldest_s=ages.get(each[:2])) for each in counted]


def _oldest_s(client: AdminClient, counted: Counted, now: datetime, arrivals: dict[str, str]) -> float | None:
    queue = parse_uri(counted.name)
    app = f"{counted.part} " if counted.part else ""
    command = f"DOMAINS DOMAIN {queue.qualified_domain} QUEUE {queue.queue} LIST {app}0 1"
    try:
        messages = ask_for(client, command, "queueContents").get("messages", [])
    except Refused:
        return None
    if not messages:
        return 0.0
    # One message may be the oldest of several apps, for which brokers report slightly different times.
    arrived = datetime.fromisoformat(arrivals.setdefault(messages[0]["guid"], messages[0]["arrivalTimestamp"]))
    return round(max(0.0, (now - arrived).total_seconds()), 3)


def purge(host: str, port: int, asking: Connects, uri: str, app: str) -> str:
    """Remove all messages of a queue, or those of one app, at its primary; return a report.

    Raises `AdminLost` if a broker is unreachable, `Refused` if it refuses.
    """
    removed = purge_queue(host, port, asking, parse_uri(uri)._replace(app_id=app))
    return f"{removed.messages:,} messages removed from {uri}" + (f" for app {app}" if app else "")
