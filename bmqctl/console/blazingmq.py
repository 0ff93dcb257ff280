"""A BlazingMQ cluster as one person sees it, through the administration commands of its nodes."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bmqctl.carrying.messages.ends import CannotBegin
from bmqctl.carrying.messages.listing import contents_command, list_command, read_contents, read_listing
from bmqctl.client.admin import AdminClient, AdminLost
from bmqctl.client.admin import NotAdmitted as BrokerRefuses
from bmqctl.client.protocol.authentication import Credentials
from bmqctl.console.cluster import ClusterFault, Login, LoginNeeded, Plan, Seen, Words
from bmqctl.console.contents import contents_value
from bmqctl.console.map import blazingmq_map
from bmqctl.systems.blazingmq.status.asking import Asking, Refused, ask_for, endpoint_parts, own_cluster
from bmqctl.systems.blazingmq.status.queues import ask_about_queue, primary_of
from bmqctl.systems.explaining.blazingmq import causes_of_queue, causes_of_unopened
from bmqctl.systems.watching.blazingmq import OLDEST_MAX, purge, take_look
from bmqctl.systems.watching.model import Row
from bmqctl.systems.watching.watcher import purge_text
from formats.bmq.codes import CompressionAlgorithm
from formats.bmq.uri import QueueUri, parse_uri
from formats.errors import FormatError

__all__ = ["BlazingmqCluster", "Entries", "connector"]

SYSTEM: Final = "BlazingMQ"
_GUID: Final = re.compile(r"[0-9A-F]{32}", re.ASCII)
_COMPRESSIONS: Final = {int(CompressionAlgorithm.NONE): "none", int(CompressionAlgorithm.ZLIB): "zlib"}


# A broker's heartbeats are only answered during a question, so an older connection may be lost.
_IDLE_S: Final = 5.0


Place = tuple[str, int]

_LEARNED_MAX: Final = 64


class Entries:
    """Nodes in the order of asking, shared by all sessions of a console.

    The node that answered last comes first, so that requests do not wait for a lost one again and again.
    """

    def __init__(self, named: Sequence[Place]) -> None:
        self._named = tuple(dict.fromkeys(named))
        self._learned: tuple[Place, ...] = ()
        self._answered: Place = self._named[0]

    def in_order(self) -> list[Place]:
        return list(dict.fromkeys((self._answered, *self._named, *self._learned)))

    def answered(self, place: Place) -> None:
        self._answered = place

    def learn(self, places: Iterable[Place]) -> None:
        self._learned = tuple(dict.fromkeys(places))[:_LEARNED_MAX]


class KeptConnections:
    """Connections of one person that are kept between questions, each used by one thread at a time."""

    def __init__(
        self, connect: Callable[[str, int], AdminClient], clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._connect = connect
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, int], list[tuple[float, AdminClient]]] = {}
        self._is_closed = False

    @contextmanager
    def client(self, host: str, port: int) -> Iterator[AdminClient]:
        """Use a connection; it is kept unless the use raises. Raises `AdminLost`."""
        client = self._take(host, port) or self._connect(host, port)
        try:
            yield client
        except BaseException:
            client.close()
            raise
        self._keep(host, port, client)

    def close(self) -> None:
        """Close the idle connections now, and the others as their use ends."""
        with self._lock:
            self._is_closed = True
            idle = [client for clients in self._idle.values() for _, client in clients]
            self._idle.clear()
        for client in idle:
            client.close()

    def _take(self, host: str, port: int) -> AdminClient | None:
        while True:
            with self._lock:
                known = self._idle.get((host, port))
                if not known:
                    return None
                since_s, client = known.pop()
            if self._clock_s() - since_s < _IDLE_S and client.is_quiet():
                return client
            client.close()

    def _keep(self, host: str, port: int, client: AdminClient) -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.setdefault((host, port), []).append((self._clock_s(), client))
                return
        client.close()


def connector(
    places: Sequence[Place], timeout_s: float, tls_authority: Path | None, mechanism: str
) -> Callable[[Login | None], BlazingmqCluster]:
    """Return the maker of a person's cluster, from some of its nodes; logins authenticate by `mechanism`."""
    entries = Entries(places)

    def connect(login: Login | None) -> BlazingmqCluster:
        credentials = None if login is None else Credentials(mechanism, f"{login.user}:{login.password}".encode())
        return BlazingmqCluster(entries, Asking(timeout_s, tls_authority, credentials))

    return connect


class BlazingmqCluster:
    """A cluster with some known nodes, asked with one person's credentials."""

    def __init__(self, entries: Entries, asking: Asking) -> None:
        self._entries = entries
        self._connections = KeptConnections(asking.client)
        self._has_looked = False

    def look(self) -> Seen:
        """Ask all nodes. Raises `ClusterFault`."""
        with _for_people():
            # The first look is faster without a question for each queue.
            found = take_look(*self._entry(), self._connections, OLDEST_MAX if self._has_looked else 0)
            self._learn(found.views)
        self._has_looked = True
        return Seen(blazingmq_map(found.views), found.sample)

    def ask(self, question: str, words: Words) -> dict[str, Any]:
        """Answer a question. Raises `ClusterFault`."""
        with _for_people():
            match question:
                case "detail":
                    return self._detail(queue_of(words["name"]))
                case "domain":
                    return self._domain(domain_of(words["name"]))
                case "messages":
                    offset, count = number_of(words, "offset"), number_of(words, "count")
                    return self._messages(words["name"], words.get("part", ""), offset, count)
                case "message":
                    return self._message(queue_of(words["name"]), words["id"])
        raise ClusterFault(f"BlazingMQ has no {question[:40]}")

    def plan(self, action: str, words: Words) -> Plan:
        """The effects of an action, without carrying it out. Raises `ClusterFault`."""
        with _for_people():
            match action:
                case "purge":
                    return self._plan_purge(words["name"], words.get("part", ""))
                case "reconfigure":
                    return self._plan_reconfiguration(domain_of(words["name"]))
        raise ClusterFault(f"BlazingMQ has no action {action[:40]}")

    def act(self, action: str, words: Words) -> str:
        """Carry out an action. Raises `ClusterFault`."""
        with _for_people():
            match action:
                case "purge":
                    queue_of(words["name"])
                    part = app_of(words.get("part", ""))
                    return purge(*self._entry(), self._connections, words["name"], part)
                case "reconfigure":
                    return self._reconfigure(domain_of(words["name"]))
        raise ClusterFault(f"BlazingMQ has no action {action[:40]}")

    def close(self) -> None:
        self._connections.close()

    def _entry(self) -> Place:
        """A node that answers. Raises `AdminLost` if none does."""
        places = self._entries.in_order()
        if len(places) == 1:
            return places[0]
        faults = []
        for host, port in places:
            try:
                with self._connections.client(host, port) as client:
                    own_cluster(client, f"{host}:{port}")
            except BrokerRefuses:
                raise
            except AdminLost as fault:
                faults.append(str(fault))
                continue
            self._entries.answered((host, port))
            return host, port
        raise AdminLost("; ".join(faults))

    def _learn(self, views: Sequence[dict[str, Any]]) -> None:
        nodes = next(each["view"] for each in views if "view" in each)["nodes"]
        if len(nodes) > 1:
            self._entries.learn(endpoint_parts(node["endpoint"]) for node in nodes)

    def _detail(self, queue: QueueUri) -> dict[str, Any]:
        answers = ask_about_queue(*self._entry(), self._connections, queue)
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

    def _domain(self, name: str) -> dict[str, Any]:
        with self._connections.client(*self._entry()) as client:
            info = ask_for(client, f"DOMAINS DOMAIN {name} INFOS", "domainInfo")
        return {"config": str(info["configJson"]), "room": _room(info["capacityMeter"])}

    def _messages(self, name: str, part: str, offset: int, count: int) -> dict[str, Any]:
        """List messages of a queue, or of an app that has yet to confirm them, oldest first."""
        queue = queue_of(name)._replace(app_id=app_of(part))
        with self._at_primary(queue) as client:
            answer = client.send(list_command(str(queue), offset, max(1, count)))
        try:
            listing = read_listing(name, answer)
        except CannotBegin as fault:
            raise ClusterFault(_of_unopened(str(fault))) from None
        rows = [
            {"id": each.guid, "size": each.size, "stored_at": each.arrived_at, "where": str(number)}
            for number, each in enumerate(listing.messages, listing.offset)
        ]
        return {"messages": rows, "offset": listing.offset, "total": listing.total}

    def _message(self, queue: QueueUri, guid: str) -> dict[str, Any]:
        if not _GUID.fullmatch(guid):
            raise ClusterFault(f"{guid[:40]!r} is no GUID of a message")
        with self._at_primary(queue) as client:
            found = ask_for(client, contents_command(str(queue), guid), "messageContents")
        apps = [str(each) for each in found.get("apps", [])]
        facts = [
            {"name": "Stored", "value": str(found["arrivalTimestamp"])},
            {"name": "Size", "value": f"{int(found['sizeBytes']):,} B"},
            {"name": "Compression", "value": _COMPRESSIONS.get(int(found["compression"]), str(found["compression"]))},
        ]
        if apps and apps != ["__default"]:
            facts.append({"name": "Not confirmed by", "value": ", ".join(apps)})
        return {"facts": facts, **contents_value(read_contents(found))}

    def _plan_purge(self, name: str, part: str) -> Plan:
        queue = queue_of(name)._replace(app_id=app_of(part))
        with self._at_primary(queue) as client:
            answer = client.send(list_command(str(queue), 0, 1))
        try:
            total: int | None = read_listing(name, answer).total
        except CannotBegin:
            total = None
        row = Row(name, part, "", None, None, total, None, None, None)
        what = f"app {part} of {name}" if part else name
        return Plan(f"Purge {what}?", purge_text(row), "Purge" if total is None else f"Purge {total:,} messages")

    def _plan_reconfiguration(self, name: str) -> Plan:
        places = self._places()
        return Plan(
            f"Reconfigure domain {name}?",
            f"Each of the {len(places)} nodes reads the file of {name} again, as it is on its own disk, and applies it "
            "to all queues of the domain that exist: limits, time to live, apps. An app that the file has no longer is "
            "removed from fan-out queues, with the messages that only it had yet to confirm.",
            f"Reconfigure {name}",
        )

    def _reconfigure(self, name: str) -> str:
        done, faults = [], []
        for node, host, port in self._places():
            try:
                with self._connections.client(host, port) as client:
                    ask_for(client, f"DOMAINS RECONFIGURE {name}", "success")
                done.append(node)
            except BrokerRefuses:
                raise
            except (AdminLost, Refused) as fault:
                faults.append(f"{node}: {fault}")
        if faults:
            reached = f" Done at {', '.join(done)}." if done else ""
            raise ClusterFault(f"{name} is not reconfigured at {'; '.join(faults)}.{reached}")
        return f"{name} is reconfigured at {', '.join(done)}"

    def _places(self) -> list[tuple[str, str, int]]:
        host, port = self._entry()
        with self._connections.client(host, port) as client:
            cluster = own_cluster(client, f"{host}:{port}")
            view = ask_for(client, f"CLUSTERS CLUSTER {cluster} HEALTH", "clusterHealth")["view"]
        return [
            (f"node {each['nodeId']}", host, port)
            if each["isSelf"]
            else (f"node {each['nodeId']}", *endpoint_parts(each["endpoint"]))
            for each in view["nodes"]
        ]

    @contextmanager
    def _at_primary(self, queue: QueueUri) -> Iterator[AdminClient]:
        host, port = self._entry()
        with self._connections.client(host, port) as client:
            primary = primary_of(client, f"{host}:{port}", queue)
        if primary is not None:
            host, port = endpoint_parts(primary)
        with self._connections.client(host, port) as client:
            yield client


def queue_of(name: str) -> QueueUri:
    """Parse a queue's URI. Raises `ClusterFault`."""
    try:
        return parse_uri(name)
    except FormatError as fault:
        raise ClusterFault(f"{name[:200]}: {fault}") from None


def domain_of(name: str) -> str:
    """Check a domain's name, which becomes a word of a command. Raises `ClusterFault`."""
    return queue_of(f"bmq://{name}/q").qualified_domain


def app_of(text: str) -> str:
    """Check an app's id, which becomes a word of a command; empty for none. Raises `ClusterFault`."""
    return queue_of(f"bmq://d/q?id={text}").app_id if text else ""


def number_of(words: Words, name: str) -> int:
    """A number sent by a browser. Raises `ClusterFault`."""
    text = words.get(name, "0")
    if not re.fullmatch(r"-?[0-9]{1,9}", text, re.ASCII):
        raise ClusterFault(f"{name}: {text[:40]!r} is no number")
    return int(text)


def _of_unopened(reason: str) -> str:
    if "was not found on domain" not in reason:
        return reason
    return "Nobody has opened the queue since its primary started: its messages can be listed once somebody has."


@contextmanager
def _for_people() -> Iterator[None]:
    try:
        yield
    except BrokerRefuses as fault:
        raise LoginNeeded(str(fault)) from None
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
    """A number and its limit, None for no limit."""
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
