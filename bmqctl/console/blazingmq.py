"""A BlazingMQ cluster as one person sees it: by the administration commands of its nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bmqctl.blazingmq_status.asking import Asking, Refused, ask_for
from bmqctl.blazingmq_status.queues import ask_about_queue
from bmqctl.client.admin import AdminLost
from bmqctl.client.admin import NotAdmitted as BrokerRefuses
from bmqctl.client.authentication import Credentials
from bmqctl.console.cluster import ClusterFault, Login, NotAdmitted, Seen
from bmqctl.console.connections import KeptConnections
from bmqctl.console.map import blazingmq_map
from bmqctl.explaining.blazingmq import causes_of_queue, causes_of_unopened
from bmqctl.watching.blazingmq import take_look
from formats.bmq.uri import QueueUri, parse_uri
from formats.errors import FormatError

__all__ = ["BlazingmqCluster", "connector"]

SYSTEM: Final = "BlazingMQ"


def connector(
    host: str, port: int, timeout_s: float, tls_authority: Path | None, mechanism: str
) -> Callable[[Login | None], BlazingmqCluster]:
    """Return what makes a cluster for a person, by a node of it; who logs in authenticates by `mechanism`."""

    def connect(login: Login | None) -> BlazingmqCluster:
        credentials = None if login is None else Credentials(mechanism, f"{login.user}:{login.password}".encode())
        return BlazingmqCluster(host, port, Asking(timeout_s, tls_authority, credentials))

    return connect


class BlazingmqCluster:
    """A cluster of which one node is known, asked with one person's credentials."""

    def __init__(self, host: str, port: int, asking: Asking) -> None:
        self._host = host
        self._port = port
        self._connections = KeptConnections(asking.client)

    def look(self) -> Seen:
        """Ask all nodes. Raises `ClusterFault`."""
        with _for_people():
            found = take_look(self._host, self._port, self._connections)
        return Seen(blazingmq_map(found.views), found.sample)

    def detail(self, name: str) -> dict[str, Any]:
        """Return a queue's capacity, consumers and causes to wait, as its primary has them. Raises `ClusterFault`."""
        queue = queue_of(name)
        with _for_people():
            answers = ask_about_queue(self._host, self._port, self._connections, queue)
        internals = answers.internals
        if internals is None:
            causes = causes_of_unopened(answers.messages)
            return {"causes": [each._asdict() for each in causes], "facts": [], "consumers": []}
        causes = causes_of_queue(internals, answers.view)
        return {
            "causes": [each._asdict() for each in causes],
            "facts": list(_facts(internals["state"])),
            "consumers": list(_consumers(internals["state"])),
        }

    def domain(self, name: str) -> dict[str, Any]:
        """Return a domain's configuration and how full it is, as the first node has it. Raises `ClusterFault`."""
        with _for_people(), self._connections.client(self._host, self._port) as client:
            info = ask_for(client, f"DOMAINS DOMAIN {domain_of(name)} INFOS", "domainInfo")
        return {"config": str(info["configJson"]), "room": _room(info["capacityMeter"])}

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()


def queue_of(name: str) -> QueueUri:
    """Parse a queue's URI. Raises `ClusterFault`."""
    try:
        return parse_uri(name)
    except FormatError as fault:
        raise ClusterFault(f"{name[:200]}: {fault}") from None


def domain_of(name: str) -> str:
    """Check a domain's name, which becomes a word of a command. Raises `ClusterFault`."""
    return queue_of(f"bmq://{name}/q").qualified_domain


@contextmanager
def _for_people() -> Iterator[None]:
    """Raise faults of brokers as the console's."""
    try:
        yield
    except BrokerRefuses as fault:
        raise NotAdmitted(str(fault)) from None
    except (AdminLost, Refused) as fault:
        raise ClusterFault(str(fault)) from None


def _facts(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    meter = state["capacityMeter"]
    yield {"name": "Partition", "value": str(state["partitionId"])}
    for room, what in ((meter, "queue"), (meter.get("parent"), "domain")):
        if room is not None:
            yield {"name": f"Messages of the {what}", **_of(room["numMessages"], room["messageCapacity"])}
            yield {"name": f"Bytes of the {what}", **_of(room["numBytes"], room["byteCapacity"])}


def _room(meter: dict[str, Any]) -> dict[str, Any]:
    return {
        "messages": _of(meter["numMessages"], meter["messageCapacity"]),
        "bytes": _of(meter["numBytes"], meter["byteCapacity"]),
    }


def _of(used: object, limit: object) -> dict[str, Any]:
    """Return a number and its limit, which is None if there is none."""
    used_number, limit_number = int(str(used)), int(str(limit))
    return {"used": used_number, "limit": limit_number if 0 < limit_number < 1 << 62 else None}


def _consumers(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for handle in state.get("handles", []):
        for stream in handle.get("subStreams", []):
            app = stream.get("appId", "")
            for monitor in stream.get("unconfirmedMonitors", []):
                yield {
                    "client": str(handle["clientDescription"]),
                    "app": "" if app == "__default" else str(app),
                    "unconfirmed": int(monitor["numMessages"]),
                    "limit": int(monitor["messagesCapacity"]),
                    "is_full": monitor["state"] == "STATE_FULL",
                }
