"""Queries to the nodes of a BlazingMQ cluster: a given node, and the nodes that it names."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from bmqctl.carrying.messages.ends import Reach
from bmqctl.client.admin import AdminClient, AdminLost
from bmqctl.client.protocol.authentication import Credentials

__all__ = [
    "Asking",
    "Connects",
    "NotReported",
    "Refused",
    "ask_all",
    "ask_for",
    "endpoint_parts",
    "own_cluster",
    "problems_of",
    "records_behind",
]

PORT_MAX: Final = 0xFFFF
# The C++ broker's answer to an unknown command begins so, in either encoding.
_NOT_KNOWN = "Unable to decode command"


class Refused(Exception):
    """A broker's refusal; the text is its reason."""


class NotReported(AdminLost):
    """A node, such as the C++ broker, that answers but has no command that reports its state."""


class Connects(Protocol):
    """A source of connections to nodes."""

    def client(self, host: str, port: int) -> AbstractContextManager[AdminClient]:
        """Return a connection to use in a `with` statement. Raises `AdminLost` here or at its beginning."""


class Asking(NamedTuple):
    """The options common to the queries of all nodes."""

    timeout_s: float
    tls_authority: Path | None
    credentials: Credentials | None

    def client(self, host: str, port: int) -> AdminClient:
        """Connect to a node. Raises `AdminLost`."""
        return AdminClient(host, port, *self)


def asking_of(reach: Reach) -> Asking:
    credentials = None if reach.mechanism is None else Credentials(reach.mechanism, reach.data.encode())
    return Asking(reach.timeout_s, reach.authority, credentials)


def ask_all(host: str, port: int, asking: Connects) -> list[dict[str, Any]]:
    """Query all nodes and return their answers by id; an unreachable node has an `error`.

    Raises `AdminLost` if the first one does not answer.
    """
    first = _ask(host, port, asking)
    found = []
    for node in first["view"]["nodes"]:
        if node["isSelf"]:
            found.append(first)
            continue
        try:
            found.append(_ask(*endpoint_parts(node["endpoint"]), asking))
        except AdminLost as lost:
            found.append({"nodeId": node["nodeId"], "error": str(lost)})
    return found


def endpoint_parts(endpoint: str) -> tuple[str, int]:
    """Host and port of an endpoint that a node names. Raises `AdminLost` if it is invalid."""
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or len(port) > 5 or int(port) > PORT_MAX:
        raise AdminLost(f"{endpoint!r} is no endpoint")
    return host.removeprefix("tcp://").strip("[]"), int(port)


def ask_for(client: AdminClient, command: str, field: str) -> dict[str, Any]:
    """Send a command and return the answer under its name. Raises `Refused`, and `AdminLost` for an invalid answer."""
    text = client.send(f"ENCODING JSON_COMPACT {command}")
    if text.startswith(_NOT_KNOWN):
        raise Refused(f"the broker does not know {command}: it is BlazingMQ's own, or an older one of bmqctl")
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        raise AdminLost(f"the broker answers {command.split()[0]} with no JSON: {text[:80]!r}") from None
    if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
        raise Refused(str(answer["error"].get("message")))
    if not isinstance(answer, dict) or not isinstance(answer.get(field), dict):
        raise AdminLost(f"the broker answers {command.split()[0]} without {field}: {text[:80]!r}")
    found: dict[str, Any] = answer[field]
    return found


def own_cluster(client: AdminClient, place: str) -> str:
    """The name of a node's cluster. Raises `AdminLost` if it is in none."""
    clusters = ask_for(client, "CLUSTERS LIST", "clusterList")["clusters"]
    own: str | None = next((each["name"] for each in clusters if each["locality"] != "remote"), None)
    if own is None:
        others = ", ".join(each["name"] for each in clusters)
        raise AdminLost(f"{place} is in no cluster; ask a node of {others}, to which it is a proxy")
    return own


def _ask(host: str, port: int, asking: Connects) -> dict[str, Any]:
    with asking.client(host, port) as client:
        own = own_cluster(client, f"{host}:{port}")
        try:
            health = ask_for(client, f"CLUSTERS CLUSTER {own} HEALTH", "clusterHealth")
        except Refused as refusal:
            raise NotReported(f"{host}:{port} does not report its state: {refusal}") from None
    return {"nodeId": health["view"]["nodeId"], **health}


def problems_of(views: list[dict[str, Any]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for each in views:
        if "error" in each:
            found.setdefault(f"node {each['nodeId']} cannot be asked: {each['error']}", [])
        for problem in each.get("problems", []):
            found.setdefault(problem, []).append(each["nodeId"])
    return found


def records_behind(primary: dict[str, Any], own: dict[str, Any]) -> int | None:
    """The number of records that a replica lacks, by its own answer; None if it is at another lease."""
    if own["leaseId"] != primary["leaseId"]:
        return None
    # A replica, queried later, may have received more.
    return max(0, int(primary["sequenceNumber"]) - int(own["sequenceNumber"]))
