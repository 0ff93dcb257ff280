"""Messages of which consumers die: each app gets them as often as the domain allows, and never again after that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from zlib import crc32

from broker.bmq.queue.queue import Queue
from broker.bmq.queue.routing import App, Stream
from broker.bmq.relay.downstream import Downstream
from broker.bmq.relay.relay import RelayQueue
from broker.bmq.relay.relay_links import PeerUpstream
from broker.bmq.relay.upstream import UpstreamState
from tests.simulator.actors.clients import wants
from tests.simulator.judges.invariants import Violation, name_of
from tests.simulator.machines.network import Link
from tests.simulator.worlds.features import Feature, own_random

if TYPE_CHECKING:
    from tests.simulator.machines.hosts import Host
    from tests.simulator.worlds.world import World

__all__ = ["Attempts"]

ATTEMPTS = (2, 3, 4)
LIMITED = ("priority", "fanout")
ODD_PART = 5  # one in five messages kills its consumers, or is held for long
DIES_PART = 0.8
AWAY_US_MAX = 50_000
HOLD_US_MAX = 2_000_000

Owed = tuple[bytes, str]  # a message, and the app that is to get it


class Attempts:
    """The deliveries of one world's messages. Without the feature no queue has a limit.

    A primary counts in memory, and learns of deaths elsewhere over links: what was counted before a link or a process
    was lost counts for nothing. Yet each delivery may have been counted.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = own_random(Feature.ATTEMPTS, world.seed)
        self.held: set[str] = set()  # the queues of which consumers hold each message for long
        self._hold_random = own_random(Feature.HOLDERS, world.seed)
        self._limits: dict[str, int] = {}  # by URI
        self._links: dict[Owed, set[Link]] = {}  # over which each was delivered
        self._held: dict[Link, set[Owed]] = {}
        self._deaths: dict[str, dict[Owed, int]] = {}  # by URI, since the ways of its messages have changed
        self._ways: dict[tuple[str, str], tuple[Queue, object]] = {}  # by host and URI
        # By host and URI of relays: the attempts left of the messages that consumers hold there.
        self._left: dict[tuple[str, str], dict[tuple[Stream, bytes], int]] = {}
        # By host, URI and app of relays: the expressions that they tell their upstreams of.
        self._texts: dict[tuple[str, str, str], set[str]] = {}
        # By host: what consumers hold there, and no expression of theirs matches any longer.
        self._dropped: dict[str, set[Owed]] = {}
        for name in LIMITED if Feature.ATTEMPTS in world.features else ():
            limit = self._random.choice(ATTEMPTS)
            world.domains[name] = replace(world.domains[name], delivery_attempts_max=limit)
            self._limits |= {uri: limit for uri in world.promises if uri.startswith(f"bmq://{name}/")}

    def kills(self, uri: str, guid: bytes) -> bool:
        """Return whether the consumer of a message dies of it."""
        is_deadly = uri in self._limits and self._world.is_busy and _is_odd(guid)
        return is_deadly and self._random.random() < DIES_PART

    def hold_us(self, uri: str, guid: bytes) -> int:
        """Draw for how long a consumer that has not died of a message holds it before it confirms it like others."""
        world = self._world
        is_held = Feature.HOLDERS in world.features and world.is_busy and (uri in self.held or _is_odd(guid))
        return self._hold_random.randrange(HOLD_US_MAX) if is_held else 0

    def away_us(self) -> int:
        """Draw the time until a consumer that has died is back."""
        return self._random.randrange(1, AWAY_US_MAX)

    def pushed(self, link: Link, host: Host | None, uri: str, app: str, guid: bytes) -> None:
        """Check a message that leaves a broker for a consumer, which has left it if there is no broker.

        A hop that stood still may hand out what its upstream has long given to others.
        """
        limit = self._limits.get(uri)
        if limit is None:
            return
        owed = guid, app
        deaths = self._deaths.get(uri, {}).get(owed, 0)
        post = self._world.records.posts[guid]
        if deaths >= limit and self._world.records.is_past_window(post):
            # A repetition of a removed message is another message, whose deliveries count from the beginning.
            self._deaths[uri].pop(owed)
        elif deaths >= limit and self._has_one_root(uri) and self._is_handed_out(host, uri, owed):
            name = name_of(post)
            raise Violation(f"{name} is delivered to '{app}' after {deaths} consumers have died of it, and {limit} may")
        self._held.setdefault(link, set()).add(owed)
        if host is not None:
            self._dropped.get(host.name, set()).discard(owed)
        links = self._links.setdefault(owed, set())
        links.add(link)
        if len(links) >= limit:
            self._may_be_removed(uri, owed)

    def _may_be_removed(self, uri: str, owed: Owed) -> None:
        guid, app = owed
        self._world.records.confirm_sent(uri, app, guid)

    def confirmed(self, link: Link, app: str, guid: bytes) -> None:
        """A consumer sends a confirm."""
        self._held.get(link, set()).discard((guid, app))

    def died(self, link: Link, host: Host) -> None:
        """A broker, which lives on, has heard that a consumer is gone."""
        for owed in self._held.pop(link, ()):
            uri = self._world.records.posts[owed[0]].uri
            if len(self._links[owed]) >= self._limits[uri]:
                self._may_be_removed(uri, owed)
            queue = host.node.queues.get(uri) if host.node is not None else None
            if not self._has_one_root(uri):
                self._deaths.pop(uri, None)
            elif queue is None or queue.delivery.inherited or owed in self._dropped.get(host.name, ()):
                continue
            elif self._is_counted(host, queue, owed):
                deaths = self._deaths.setdefault(uri, {})
                deaths[owed] = deaths.get(owed, 0) + 1

    def _is_handed_out(self, host: Host | None, uri: str, owed: Owed) -> bool:
        queue = host.node.queues.get(uri) if host is not None and host.node is not None else None
        return host is not None and queue is not None and self._is_counted(host, queue, owed)

    def _is_counted(self, host: Host, queue: Queue, owed: Owed) -> bool:
        """Return whether each broker up to the primary has a message with the one below: others ignore its rejection.

        A hop may still hold it from an upstream that it has lost, and that has given it to another hop since.
        """
        guid, app_id = owed
        while isinstance(queue, RelayQueue):
            upstream = queue.opens.upstream if queue.opens.state is UpstreamState.OPEN else None
            if not isinstance(upstream, PeerUpstream):
                return False
            peer = host.peer(upstream.node_id)
            above = peer.node.queues.get(queue.uri) if peer.node is not None else None
            app = above.apps.get(app_id) if above is not None else None
            streams = [stream for stream in app.streams if _is_for(peer, stream, host)] if app is not None else []
            if above is None or not any(guid in stream.unconfirmed for stream in streams):
                return False
            host, queue = peer, above
        return True

    def _has_one_root(self, uri: str) -> bool:
        """Return whether one node alone takes itself for the primary of a queue: each counts for itself."""
        queues = [host.node.queues.get(uri) for host in self._world.hosts if host.node is not None]
        return sum(queue is not None and queue.is_root for queue in queues) == 1

    def look(self, host: Host) -> None:
        """Look after a broker's step whether its queues have the roots and the upstreams that they had."""
        for uri in self._limits if host.node is not None else ():
            queue = host.node.queues.get(uri) if host.node is not None else None
            if queue is not None:
                self._look_at_held(host, queue)
            if isinstance(queue, RelayQueue):
                self._look_at_texts(host, queue)
            if queue is not None and self._ways.get((host.name, uri)) != (queue, self._way(queue)):
                self._ways[host.name, uri] = queue, self._way(queue)
                self._deaths.pop(uri, None)

    def _look_at_held(self, host: Host, queue: Queue) -> None:
        """Check that a relay that becomes the root gives messages which consumers hold no attempts back."""
        held = [(stream, app) for app in queue.apps.values() for stream in app.streams]
        if isinstance(queue, RelayQueue):
            self._left[host.name, queue.uri] = {
                (stream, guid): app.attempts[guid]
                for stream, app in held
                for guid in (stream.unconfirmed if app.attempts else ())
                if guid in app.attempts
            }
        elif not queue.delivery.inherited:
            before = self._left.pop((host.name, queue.uri), {})
            for stream, app in held:
                for guid in stream.unconfirmed if before else ():
                    had, left = before.get((stream, guid)), app.attempts.get(guid, self._limits[queue.uri])
                    if had is not None and left > had:
                        name = name_of(self._world.records.posts[guid])
                        raise Violation(
                            f"{host.name} gives {name} {left} attempts for '{app.app_id}', and it had {had}"
                        )

    def _look_at_texts(self, host: Host, queue: RelayQueue) -> None:
        """Note what a relay's consumers hold when none of them wants it any longer.

        Its upstream takes such a message back when it hears of the expressions, and gives it to others.
        """
        for app in queue.apps.values():
            key, texts = (host.name, queue.uri, app.app_id), queue._asked.texts(app)
            if not texts or self._texts.get(key) == texts:
                continue
            self._texts[key] = texts
            for guid in _held_by(app):
                x = self._world.records.posts[guid].x
                if not any(wants(text, x) for text in texts):
                    self._dropped.setdefault(host.name, set()).add((guid, app.app_id))

    def _way(self, queue: Queue) -> object:
        """Return what a queue's deliveries come from; None for a hop that has no upstream."""
        if not isinstance(queue, RelayQueue):
            return queue
        return queue.opens.upstream if queue.opens.state is UpstreamState.OPEN else None

    def link_lost(self) -> None:
        """A link between brokers, or a broker, is lost."""
        self._deaths.clear()


def _held_by(app: App) -> list[bytes]:
    """Return the messages that consumers of an app hold."""
    return [guid for stream in app.streams for guid in stream.unconfirmed]


def _is_for(host: Host, stream: Stream, below: Host) -> bool:
    """Return whether a stream of a broker is that of the other broker below it."""
    sink = stream.sink
    if not isinstance(sink, Downstream):
        return False
    if sink.member:
        return sink.number == -1 - below.node_id
    links = [end.link for session, end in host.ends.items() if session.handles is sink.handles]
    return any(end.machine == below.name for link in links if link is not None for end in link.ends)


def _is_odd(guid: bytes) -> bool:
    return crc32(guid) % ODD_PART == 0
