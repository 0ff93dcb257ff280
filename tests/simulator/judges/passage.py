"""The way of messages through brokers: in which order each hands them out, and to whom again.

Each broker is judged by what it knows itself, so no rule asks for time to pass: who hands out a message for the first
time keeps the order in which it got them, and who has taken a confirm does not hand out that message again. A primary
besides hands out nothing that a majority knows to be confirmed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from broker.bmq.core.messages import Message
from broker.bmq.node.node import Node
from broker.bmq.queue.queue import Queue
from broker.bmq.queue.routing import App, Group, Stream, Subscription
from broker.bmq.relay.relay import RelayQueue
from broker.bmq.relay.upstream import UpstreamState
from broker.bmq.store.chunked import Chunked
from tests.simulator.actors.clients import wants
from tests.simulator.actors.operator import EXTRA_APP
from tests.simulator.judges.invariants import Post, Records, Violation, name_of

if TYPE_CHECKING:
    from tests.simulator.machines.hosts import Host

__all__ = ["Passage"]

# The time for which a hop sends confirms to its next upstream, too; see `broker.bmq.relay.confirms`.
CONFIRMS_KEPT_US = 40_000_000
# A consumer with room gets a message within this number of rounds.
ROUNDS_MAX = 4

Owed = tuple[bytes, str]  # a message, and the app that is to get it
Entries = dict[bytes, tuple[Message, Subscription]]


class Handing:
    """One app of a queue at one broker: what it has handed out, and of each line the last that was in order."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self.seen: dict[Stream, Entries] = {}
        self.groups: dict[str, Group] = {}  # of its consumers at the last look
        # The messages that consumers hold from before this broker had the queue, and get again later.
        self.inherited: dict[Stream, set[bytes]] = {}
        # For each consumer with room at the last look: how often others of its group have had a turn since.
        self.passed: dict[Subscription, int] = {}


class Broker:
    """The observed deliveries of one process; `handings` are by queue and app."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.queues: dict[str, Queue] = {}
        self.handings: dict[tuple[str, str], Handing] = {}
        self.confirmed: dict[Owed, int] = {}  # when it took the confirm
        self.last_confirm_us = 0
        self.ways: dict[str, object] = {}  # the upstream of each queue, if it is open there
        self.opened_us: dict[str, int] = {}  # since when
        self.posted: dict[str, dict[bytes, int]] = {}  # when each post came that a relay of a queue keeps


class Passage:
    """All brokers of a world; `leads` says whether one is the newest primary of a queue."""

    def __init__(self, records: Records, leads: Callable[[Host, str], bool]) -> None:
        self._records = records
        self._leads = leads
        self._brokers: dict[str, Broker] = {}
        self._handed: set[tuple[Owed, str]] = set()
        self.judged = self.exempt = 0

    def _broker(self, host: Host, node: Node) -> Broker:
        broker = self._brokers.get(host.name)
        if broker is None or broker.node is not node:
            broker = self._brokers[host.name] = Broker(node)
        return broker

    def confirmed(self, host: Host, app: str, guid: bytes, now_us: int) -> None:
        """A broker has taken the confirm of one of its own clients, and lives on."""
        if host.node is not None:
            broker = self._broker(host, host.node)
            broker.confirmed[guid, app] = broker.last_confirm_us = now_us

    def last_confirm_us(self, host: Host) -> int:
        """The time at which a broker took the last confirm of one of its own clients."""
        broker = self._brokers.get(host.name)
        return broker.last_confirm_us if broker is not None else 0

    def look(self, host: Host, now_us: int) -> None:
        """Check a broker after its step."""
        node = host.node
        if node is None:
            return
        broker = self._broker(host, node)
        for partition in node.partitions.values():
            # One that is asked for again may have been withheld, and passed by others, since the last look.
            for _, guid in chain(partition.payloads.wanted, partition.payloads.withheld):
                self._records.posts[guid].withheld = True
        for uri, queue in node.queues.items():
            if uri not in self._records.views or queue.broadcast:
                continue
            if broker.queues.get(uri) is not queue:
                # The hop, or the root, that was here before has left its consumers with what they had.
                broker.queues[uri] = queue
                for app in queue.apps.values():
                    broker.handings[uri, app.app_id] = self._taken_over(host, queue, app)
            if isinstance(queue, RelayQueue):
                self._note_expired(broker, queue)
                opens = queue.opens
                way = opens.upstream if opens.state is UpstreamState.OPEN else None
                if broker.ways.get(uri) is not way:
                    broker.ways[uri] = way
                    if way is not None:
                        broker.opened_us[uri] = now_us
                    else:
                        self._check_lost(host, queue)
            for app in queue.apps.values():
                handing = broker.handings.get((uri, app.app_id))
                if handing is None:
                    handing = broker.handings[uri, app.app_id] = Handing()
                self._look_at(host, broker, queue, app, handing, now_us)

    def _note_expired(self, broker: Broker, queue: RelayQueue) -> None:
        """Note the posts that a relay has given up for their age: the link of a producer may be gone by then."""
        kept, was = queue.posts.unacknowledged, broker.posted.get(queue.uri, {})
        if kept.keys() == was.keys():
            return
        limit_ms = queue.now.ms - queue.config.deduplication_time_ms
        for guid in was.keys() - kept.keys():
            if was[guid] <= limit_ms:
                self._records.refused(guid)
        broker.posted[queue.uri] = {guid: post.posted_ms for guid, post in kept.items()}

    def _check_lost(self, host: Host, queue: RelayQueue) -> None:
        """Check that a hop without an upstream keeps nothing for consumers: the next may give it to others."""
        for app in queue.apps.values():
            # An app that lags discards its messages in slices.
            for message in app.waiting() if not app.is_behind else ():
                what = f"{message.guid.hex().upper()} for '{app.app_id}'"
                raise Violation(f"{host.name} keeps {what}, and has no upstream")

    def _taken_over(self, host: Host, queue: Queue, app: App) -> Handing:
        handing = Handing()
        for stream in app.streams:
            handing.seen[stream] = dict(stream.unconfirmed)
            later = set(queue.delivery.inherited.get(stream, ()))
            handing.inherited[stream] = later
            for guid in chain(stream.unconfirmed, later):
                self._note((guid, app.app_id), host, queue)
        return handing

    def _note(self, owed: Owed, host: Host, queue: Queue) -> None:
        """A message goes on its way from a broker: for the first time, or again."""
        for level in (host.name, "root") if queue.is_root else (host.name,):
            if (owed, level) in self._handed:
                self._records.again.add(owed)
            self._handed.add((owed, level))

    def _look_at(self, host: Host, broker: Broker, queue: Queue, app: App, handing: Handing, now_us: int) -> None:
        # In one step several consumers are served by turns: each in order.
        after = handing.last
        served: Counter[Subscription] = Counter()
        for stream in app.streams:
            entries = stream.unconfirmed
            seen = handing.seen.get(stream)
            if not entries or (seen and next(_newest_first(entries)) == next(reversed(seen.items()))):
                continue
            new = []
            for guid, entry in _newest_first(entries):
                if seen and seen.get(guid) is entry:
                    break
                if guid not in handing.inherited.get(stream, ()):
                    new.append(entry[0])
                    # Merged subscriptions leave other entries for messages that were handed out before.
                    if handing.groups is app.groups and entry[0].sent_ms == broker.node.now.ms:
                        self._judge_priority(host, app, *entry)
                        served[entry[1]] += 1
            handing.seen[stream] = dict(entries)
            last = dict(handing.last)
            for message in reversed(new):
                self._judge(host, broker, queue, app, message, last, now_us)
            if after is handing.last:
                after = last
            else:
                after = {line: max(last.get(line, 0), after.get(line, 0)) for line in last | after}
        handing.last = after
        if queue.attempts_max is None:
            # Messages of which consumers have died are handed out by other rules.
            self._judge_turns(host, app, handing, served)
        handing.groups = app.groups

    def _judge_turns(self, host: Host, app: App, handing: Handing, served: Counter[Subscription]) -> None:
        """Check that no consumer with room is passed over by others of its priority for much longer than their turns.

        A message that it got may have been removed in the same step, and then its turn is not seen.
        """
        before, handing.passed = handing.passed, {}
        if handing.groups is not app.groups:
            return
        for group in app.groups.values():
            turns = sum(each.count for each in group.subscriptions)
            total = sum(served[each] for each in group.subscriptions)
            for each in group.subscriptions:
                if each.messages_left <= 0 or each.bytes_left <= 0 or not each.stream.sink.ready:
                    continue
                # One without room before may have none in this step.
                is_passed = each in before and not served[each]
                handing.passed[each] = passed = before[each] + total if is_passed else 0
                if passed > ROUNDS_MAX * (turns - each.count):
                    what = f"{passed} messages in a row, and others of its priority have {turns - each.count} turns"
                    raise Violation(f"{host.name} passes a consumer of '{app.app_id}' over for {what}")

    def _judge_priority(self, host: Host, app: App, message: Message, subscription: Subscription) -> None:
        """Check that no consumer of a higher priority wants a message, unless consumers have changed in the step."""
        x = self._records.posts[message.guid].x
        for group in app.groups.values():
            if group.priority > subscription.priority and wants(group.text, x):
                what = f"one of priority {subscription.priority}, and one of {group.priority} wants it"
                raise Violation(f"{host.name} hands {message.guid.hex().upper()} for '{app.app_id}' to {what}")

    def _judge(
        self, host: Host, broker: Broker, queue: Queue, app: App, message: Message, last: dict[str, int], now_us: int
    ) -> None:
        """A broker hands out a message."""
        guid = message.guid
        owed = guid, app.app_id
        post = self._records.posts.get(guid)
        if post is None:
            raise Violation(f"{host.name} hands out {guid.hex().upper()}, which nobody has posted")
        self._note(owed, host, queue)
        if app.app_id != EXTRA_APP and not self._records.may_be_new(post, app.app_id):
            self._judge_again(host, broker, queue, post, owed, now_us)
        if post.unsure or self._records.is_unordered(post, app.app_id):
            self.exempt += 1
            return
        self.judged += 1
        newest = last.get(post.line, 0)
        if post.number < newest:
            raise Violation(f"{host.name} hands {name_of(post)} to '{app.app_id}' after number {newest}")
        last[post.line] = post.number

    def _judge_again(self, host: Host, broker: Broker, queue: Queue, post: Post, owed: Owed, now_us: int) -> None:
        """Check that no app gets a message again with which it is known to be done."""
        guid, app_id = owed
        taken_us = broker.confirmed.get(owed, 0)
        is_kept = max(0, now_us - CONFIRMS_KEPT_US) < taken_us
        # A new upstream hears of it before it is asked for messages; the one that was there may have sent it before.
        if is_kept and taken_us < (now_us + 1 if queue.is_root else broker.opened_us.get(queue.uri, 0)):
            raise Violation(f"{host.name} hands {name_of(post)} to '{app_id}', whose confirm it has taken")
        if queue.is_root and self._records.is_durable(app_id, guid) and self._leads(host, queue.uri):
            raise Violation(f"{host.name} hands {name_of(post)} to '{app_id}', which had confirmed it")


def _newest_first(held: Chunked[tuple[Message, Subscription]]) -> Iterator[tuple[bytes, tuple[Message, Subscription]]]:
    return chain.from_iterable(reversed(chunk.items()) for chunk in reversed(held.chunks))
