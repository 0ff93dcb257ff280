"""Bounds on time: an ack comes within a second of its quorum, a message within a second of a consumer's room for it.

A message is gone soon after it has expired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from broker.bmq.queue.backlog import Part
from broker.bmq.queue.queue import Queue
from broker.bmq.queue.routing import NEVER_MS, App, Group, Subscription
from tests.simulator.actors.clients import Producer, wants
from tests.simulator.judges.invariants import Post, Records, Violation, name_of
from tests.simulator.machines.hosts import Host
from tests.simulator.machines.network import Link, Network

if TYPE_CHECKING:
    from tests.simulator.worlds.cluster import ClusterWorld

__all__ = ["PromptAcks", "PromptPushes", "follows"]

BOUND_US = 1_000_000
ROUNDED_US = 2_200_000  # of the age of messages that were restored
EXPIRED_US = 400_000  # primaries look for expired messages a few times a second
LOOK_US = 50_000
DELAY_US_MAX = 50_000
LATE_US = 300_000  # a process that takes no step for longer does not run


class PromptPushes:
    """Judges all brokers by what they know: no message waits for long while a consumer has room, or has expired."""

    def __init__(self, records: Records, network: Network) -> None:
        self._records = records
        self._network = network
        self._heals = 0  # the number of healed partitions at the last look
        # By broker: the last look, and since when each queue and app has kept a message from a consumer with room, and
        # each queue one that has expired.
        self._since_us: dict[str, tuple[int, dict[tuple[Queue, App | None], int]]] = {}
        # By URI: the message that was the oldest at the last look at a primary, and since when.
        self._oldest: dict[str, tuple[bytes, int]] = {}

    def look(self, host: Host) -> None:
        """Look at a broker after its step; it may have taken none for a while, which does not count."""
        now_us = self._records.clock.us
        last_us, was = self._since_us.get(host.name, (0, {}))
        if host.node is None or now_us - last_us < LOOK_US:
            return
        lost_us = max(0, now_us - last_us - LATE_US)
        if lost_us or self._heals != self._network.heals:
            # Records reached a node late, which takes messages for younger by as much when it is primary next.
            self._heals = self._network.heals
            self.forget()
        late: list[tuple[Queue, App | None]] = [
            (queue, app)
            for queue in host.node.queues.values()
            for app in queue.apps.values()
            if _keeps_back(queue, app, self._records.posts)
        ]
        late += [(queue, None) for queue in host.node.queues.values() if self._has_expired(host, queue)]
        since_us = {each: was.get(each, now_us - lost_us) + lost_us for each in late}
        self._since_us[host.name] = now_us, since_us
        for (queue, app), begun_us in since_us.items():
            if now_us - begun_us <= (EXPIRED_US if app is None else BOUND_US):
                continue
            if app is None:
                raise Violation(f"{host.name} keeps messages of {queue.uri} that have expired")
            raise Violation(f"{host.name} keeps messages of {queue.uri} from consumers of '{app.app_id}' with room")

    def forget(self) -> None:
        """Forget the ages of messages: a disk may have lost some, which are posted again."""
        self._oldest.clear()

    def _has_expired(self, host: Host, queue: Queue) -> bool:
        """Return whether a primary has a message that has outlived its time, though clocks are right.

        `Violation` if it takes its oldest message for younger than that is. Records have seconds, and so has the time
        since the last one, so a message that was restored may be two seconds younger. One that waits for its copies may
        be lost, and posted again.
        """
        guid = next(iter(queue.messages), None)
        if not queue.is_root or queue.broadcast:
            return False
        if guid is None or guid in queue.awaiting:
            self._oldest.pop(queue.uri, None)
            return False
        now_us = self._records.clock.us
        oldest, since_us = self._oldest.get(queue.uri, (b"", 0))
        if oldest != guid:
            since_us = now_us
            self._oldest[queue.uri] = guid, since_us
        if not self._records.are_clocks_right():
            return False
        age_us = now_us - since_us - ROUNDED_US
        if (queue.now.ms - queue.messages[guid].arrived_ms) * 1000 < age_us:
            raise Violation(f"{host.name} takes the oldest message of {queue.uri} for younger than it is")
        ttl_s, hold = queue.config.message_ttl_s, queue.upkeep.expiry_hold
        is_held = hold is not None and ttl_s is not None and hold.holds(ttl_s)
        return ttl_s is not None and age_us > ttl_s * 1_000_000 and not is_held


def _keeps_back(queue: Queue, app: App, posts: Mapping[bytes, Post]) -> bool:
    """Return whether a message waits for an app, and a consumer that wants it has room."""
    if app.is_behind or app.delayed_until_ms != NEVER_MS or queue.broadcast or queue.delivery.is_over:
        return False
    free = [group for group in app.groups.values() if any(map(_has_room, group.subscriptions))]
    if not free:
        return False
    for item in chain(app.redelivery, app.pending):
        for message in item.peek() if isinstance(item, Part) else (item,):
            if message.outstanding & app.bit:
                # A message that may be poisonous holds up all others until a consumer of its own has room.
                return message.guid not in app.attempts and not queue.log.awaits_payload(message)
    return any(_is_for(app, free, posts.get(guid)) for guid in app.aside)


def _is_for(app: App, free: Sequence[Group], post: Post | None) -> bool:
    """Return whether a message put aside is for one of the groups with room; nobody may get one that has rotted."""
    if post is None or post.withheld:
        return False
    wanting = [group for group in app.groups.values() if wants(group.text, post.x)]
    highest = max((group.priority for group in wanting), default=0)
    return any(group in free for group in wanting if group.priority == highest)


def _has_room(subscription: Subscription) -> bool:
    return subscription.messages_left > 0 and subscription.bytes_left > 0 and subscription.stream.sink.ready


class PromptAcks:
    """Judges producers that are connected to nodes.

    Time counts while the primary, a quorum that has the message and follows it, and the producer's node are sound and
    linked.
    """

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._since_us: dict[tuple[Link, bytes], tuple[int, object]] = {}

    def look(self) -> None:
        """Look at all posts that wait for their acks, and again in a moment."""
        world = self._world
        world.clock.after(LOOK_US, self.look)
        was, self._since_us = self._since_us, {}
        if world.network.delay_us_max > DELAY_US_MAX:
            return
        for link, post, having in self._waiting():
            since_us, had = was.get((link, post.guid), (world.clock.us, having))
            if had != having:
                since_us = world.clock.us
            self._since_us[link, post.guid] = since_us, having
            if world.clock.us - since_us > BOUND_US:
                raise Violation(f"{name_of(post)} has had its quorum for a second, and {post.producer} has no ack")

    def _waiting(self) -> Iterator[tuple[Link, Post, object]]:
        """Yield the posts that have their quorum, each with the processes and links that make it up."""
        world = self._world
        for client in world.clients:
            link, broker = client.link, client.host
            if not isinstance(client, Producer) or client.is_deaf or link is None or not link.is_whole:
                continue
            if broker is None or broker.node is None or not world.network.passes(client.name, broker.name):
                continue
            for uri in client.opened:
                posts = [post for post in client.unacked[uri].values() if not post.refused]
                leading = [host for host in world.hosts if host.node is not None and world.leads(host, uri)]
                linked = self._linked_to(leading[0]) if posts and leading else {}
                # A broker that has not heard of the primary yet sends it nothing.
                is_counted = len(linked) >= world.quorum and broker in linked and follows(broker, leading[0], uri)
                for post in posts if is_counted else ():
                    having = {
                        host: about
                        for host, about in linked.items()
                        if self._has(host, post) and follows(host, leading[0], uri)
                    }
                    if len(having) >= world.quorum and world.records.is_safe(post):
                        yield link, post, having | {broker: linked[broker]}

    def _has(self, host: Host, post: Post) -> bool:
        """Return whether a node has the message where it is there to stay."""
        journals = self._world.journals.values()
        return any(
            each.safe.get(post.guid) in each.views[host.node_id].numbers
            for each in journals
            if host.node_id in each.views
        )

    def _linked_to(self, primary: Host) -> dict[Host, object]:
        """Return the nodes that are sound and linked to the primary, with their processes and links, and itself."""
        network, links = self._world.network, self._world.network.links
        found: dict[Host, object] = {}
        for host in self._world.hosts:
            ends = {host.name, primary.name}
            between = [link for link in links if link.is_held and {end.machine for end in link.ends} == ends]
            is_linked = bool(between) and network.passes(host.name, primary.name)
            is_linked &= all(link.is_whole for link in between)
            if host.is_sound and not host.slow_us and (host is primary or is_linked):
                found[host] = host.node, between
        return found if primary in found else {}


def follows(host: Host, primary: Host, uri: str) -> bool:
    """Return whether a node follows a primary of a queue: one that knows a newer lease sends no receipts."""
    assert host.member is not None
    assert primary.member is not None
    assert primary.node is not None
    partition_id = primary.node.ledger.state.queues[uri].partition_id
    return host.member.metadata.primary_of(partition_id) == primary.member.metadata.primary_of(partition_id)
