"""An administrator: has nodes list and count what they have, show messages and roll over, and compares the answers."""

from __future__ import annotations

import json
from base64 import b64decode
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.bmq.admin.answers.results import ClusterInfo, ClusterNode
from broker.bmq.admin.environment import CommandContext, Environment
from broker.bmq.admin.service import Admin
from broker.bmq.node.node import Node
from formats.bmq.uri import parse_uri
from tests.simulator.judges.invariants import Promise, Violation, payload_of
from tests.simulator.machines.hosts import Host
from tests.simulator.worlds.features import Feature, own_random

if TYPE_CHECKING:
    from tests.simulator.worlds.world import World

__all__ = ["Administrator", "command", "on_queue"]

INTERVAL_US = 100_000
_CLUSTER = ClusterInfo("local", "local", (ClusterNode("host", 0, "UNSPECIFIED"),))
_ENVIRONMENT = Environment({}, (_CLUSTER,), "host", "/store", lambda name: True)


def command(node: Node, line: str) -> dict[str, Any]:
    """Have a node carry out a command; return its answer, by what it is."""
    _, text = Admin(CommandContext(node, _ENVIRONMENT)).run(f"ENCODING JSON_COMPACT {line}", "the simulator")
    answer: dict[str, Any] = json.loads(text)
    return answer


def on_queue(uri: str, words: str) -> str:
    """Make a command about a queue."""
    parsed = parse_uri(uri)
    return f"DOMAINS DOMAIN {parsed.qualified_domain} QUEUE {parsed.queue} {words}"


def _lists_all(node: Node, uri: str) -> bool:
    """Return whether a node lists what is in its store, rather than what it holds for its own clients."""
    return uri not in node.queues or node.queues[uri].is_root


class Administrator:
    """Asks nodes of a world, drawn by a generator of its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = own_random(Feature.COMMANDS, world.seed)
        self._uris = [uri for uri, promise in world.promises.items() if promise is not Promise.PASSED]

    def next(self) -> None:
        """Ask one node, and again after a while."""
        if not self._world.is_busy:
            return
        self._world.clock.after(int(self._random.expovariate(1) * INTERVAL_US) + 1, self.next)
        host = self._random.choice(self._world.hosts)
        uris = self._uris
        if host.node is not None and self._random.random() < 0.5:
            # A queue that no client has open here is listed from the copy of it.
            uris = [uri for uri in uris if uri not in host.node.queues] or uris
        ask = self._random.choice((self._look, self._look, self._look, self._count, self._count, self._roll_over))
        host.step(partial(ask, host, self._random.choice(uris)))

    def check_copies(self) -> None:
        """Check that all nodes list the same messages, where nobody reads or writes any longer."""
        for uri in self._uris:
            nodes = [host.node for host in self._world.hosts if host.node is not None]
            lists = [self._listed(node, uri) for node in nodes if _lists_all(node, uri)]
            if any(each != lists[0] for each in lists):
                raise Violation(f"nodes list {list(map(len, lists))} messages of {uri}, not all alike")

    def _listed(self, node: Node, uri: str, words: str = "0 UNLIMITED") -> list[bytes]:
        contents = command(node, on_queue(uri, f"LIST {words}")).get("queueContents", {})
        return [bytes.fromhex(message["guid"]) for message in contents.get("messages", ())]

    def _look(self, host: Host, uri: str) -> None:
        """List a queue's messages: all, some, and those of an app; and show one."""
        node, random = host.node, self._random
        assert node is not None
        whole = self._listed(node, uri)
        first, count = random.randint(-len(whole), len(whole)), random.randint(1, len(whole) + 1)
        begin = first if first >= 0 else len(whole) + first
        self._compare(host, uri, self._listed(node, uri, f"{first} {count}"), whole[begin : begin + count])
        queue = node.queues.get(uri)
        if queue is None or not queue.is_root:
            return
        self._compare(host, uri, whole, list(queue.messages))
        app = random.choice(list(queue.apps.values()))
        wanted = [guid for guid, message in queue.messages.items() if message.outstanding & app.bit]
        self._compare(host, uri, self._listed(node, uri, f"{app.app_id} 0 UNLIMITED"), wanted)
        if whole:
            guid = random.choice(whole)
            shown = command(node, on_queue(uri, f"MESSAGE {guid.hex()}")).get("messageContents")
            if shown is not None and b64decode(shown["data"]) != payload_of(self._world.records.posts[guid]):
                raise Violation(f"{host.name} shows another message of {uri} than it has")

    def _compare(self, host: Host, uri: str, found: list[bytes], wanted: list[bytes]) -> None:
        if found != wanted:
            raise Violation(f"{host.name} lists {len(found)} messages of {uri}, of which it has these {len(wanted)}")

    def _count(self, host: Host, uri: str) -> None:
        """Ask for the number of messages in each queue of all partitions."""
        node = host.node
        assert node is not None
        summary = command(node, "CLUSTERS CLUSTER local STORAGE SUMMARY")["clusterStorageSummary"]
        for store in summary["fileStores"]:
            for each in store["summary"]["storageContent"].get("storages", ()):
                if each["queueUri"] == uri and _lists_all(node, uri):
                    listed = len(self._listed(node, uri))
                    if each["numMessages"] != listed:
                        raise Violation(
                            f"{host.name} counts {each['numMessages']} messages of {uri}, and lists {listed}"
                        )

    def _roll_over(self, host: Host, uri: str) -> None:
        """Roll over all partitions that the node serves, at any time."""
        assert host.node is not None
        command(host.node, "CLUSTERS CLUSTER local STORAGE PARTITION ALL ROLLOVER")
