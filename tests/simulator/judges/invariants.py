"""Invariants of messages at every step, checked by the traffic on the wires.

A message is *acked* when an ACK with SUCCESS leaves a node; an app has *confirmed* it *durably* when a node has handled
the CONFIRM without crashing. In between, a confirm that is on its way may count or not. The promise of an ack depends
on the queue: see `Promise`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Protocol

from broker.bmq.core.messages import Message
from broker.bmq.node.node import Node
from broker.bmq.queue.backlog import Part
from broker.bmq.queue.queue import App, Queue
from broker.bmq.relay.relay import RelayQueue
from formats.bmq.codes import AckStatus, PropertyType
from formats.bmq.wire.properties import Property, encode_properties
from tests.simulator.machines.clock import Clock

__all__ = [
    "SHAPES",
    "WINDOW_PART",
    "X_LOW",
    "AppView",
    "Post",
    "Promise",
    "Reader",
    "Records",
    "Violation",
    "check_queue",
    "name_of",
    "payload_of",
]

WINDOW_PART = 0.98  # of a deduplication time by the true clock, as clocks drift
# The names of the other properties of messages that have one, by shape.
SHAPES = ("", "", "y", "wy")
X_LOW = 2  # what consumers that take a part of the messages part them by


class Reader(Protocol):
    """A receiver of messages."""

    @property
    def name(self) -> str: ...

    @property
    def sessions(self) -> int:
        """The number of connections that it has had, with the one over which it receives."""
        ...


class Promise(Enum):
    """The promise of an ack."""

    KEPT = "every app gets the message"
    COPIED = "so it does, once a majority of the nodes has it"
    PASSED = "whoever is there gets it now, and nobody later"


class Violation(Exception):
    """A violated invariant; the text says which."""


@dataclass(slots=True)
class Post:
    """A message as its producer made it; `number` counts the producer's posts to the queue."""

    guid: bytes
    uri: str
    producer: str
    number: int
    size: int
    made_us: int = 0
    x: int | None = None  # a property
    shape: int = 0  # the other properties, see `_area`; 0 for none, in the older encoding
    acked: bool = False
    # A broker has refused it. Its producer may not know that yet, and post it again after later ones.
    refused: bool = False
    # Its producer had no ack and sent it again after an app had confirmed it: not every node can know.
    again: bool = False
    # It was sent when there was little room: it may have been refused, later ones not, and the answer been lost.
    unsure: bool = False
    # Its payload had rotted, and no node that could be reached had it whole: later ones have passed it.
    withheld: bool = False
    # Its payload rotted at its primary, which had no copy elsewhere, and had to refuse it when it left its office.
    rotted: bool = False
    # An operator had it removed, or may have.
    purged: bool = False
    # When an app that is there to stay sent its confirm last, or an operator had it removed.
    done_us: int = 0
    # It came again after its queue's deduplication time: it is another message since then.
    renewed: bool = False

    @property
    def line(self) -> str:
        """The posts with which it must come in order: consumers of another part of a queue's messages see others."""
        return self.producer if self.x is None else f"{self.producer} {'low' if self.x < X_LOW else 'high'}"


@dataclass
class AppView:
    """The messages that one app of one queue has received, is owed, and has confirmed, by GUID."""

    owes: bool = True
    begun_us: int = 0  # what was posted before may be gone with an app of this name that was removed
    pushed: set[bytes] = field(default_factory=set)
    owed: dict[bytes, None] = field(default_factory=dict)
    confirm_sent: set[bytes] = field(default_factory=set)
    unasked: set[bytes] = field(default_factory=set)  # the messages that its domain keeps from it
    confirmed: dict[bytes, int] = field(default_factory=dict)  # and `Records.forgets` then
    last: dict[str, int] = field(default_factory=dict)


def payload_of(post: Post) -> bytes:
    """The payload, which tells who made it, and that it is whole."""
    text = f"{post.producer} {post.uri} {post.number} ".encode()
    payload = (text * (post.size // len(text) + 1))[: max(len(text), post.size)]
    return payload if post.x is None else _area(post.x, post.shape) + payload


@cache
def _area(x: int, shape: int) -> bytes:
    others = [Property(name, PropertyType.STRING, name * shape) for name in SHAPES[shape]]
    return encode_properties([Property("x", PropertyType.INT32, x), *others], int(shape > 0))


class Records:
    """All that was posted, and what became of it. `apps` are those of each queue, `promises` what is promised there."""

    def __init__(self, apps: Mapping[str, tuple[str, ...]], promises: Mapping[str, Promise]) -> None:
        self.posts: dict[bytes, Post] = {}
        self.promises = promises
        self.views = {
            uri: {app: AppView(promises[uri] is not Promise.PASSED) for app in names} for uri, names in apps.items()
        }
        # Messages that were with somebody of an app before, of whom nobody knows whether it has them.
        self.again: set[tuple[bytes, str]] = set()
        self.forgets = 0  # how often nodes had reason not to know what was removed before
        self.refusals: tuple[AckStatus, ...] = (AckStatus.STORAGE_FAILURE,)
        self.is_short = self.was_short = False  # a disk has little room left, or had at any time
        # Consumers of one app are at several brokers: each gets its messages in order while it is with one of them.
        self.by_consumer = False
        self.clock = Clock()
        self.windows_us: dict[str, int] = {}  # how long a queue recognises repetitions, where it is a matter of seconds
        self.lives_us: dict[str, int] = {}  # how long messages of a queue must be there, while clocks are right
        self.are_clocks_right: Callable[[], bool] = lambda: True
        self.wants: dict[tuple[str, str], Callable[[int | None], bool]] = {}  # by URI and app, of a part of them
        self._step: dict[tuple[str, str, str, str], int] = {}
        self.acked = self.delivered = self.redelivered = self.forgiven = self.judged = 0

    # -- what clients do

    def posted(self, post: Post) -> None:
        self.posts[post.guid] = post
        for (uri, app), wants in self.wants.items():
            if uri == post.uri and not wants(post.x):
                self.views[uri][app].unasked.add(post.guid)

    def confirm_sent(self, uri: str, app: str, guid: bytes) -> None:
        view = self.views[uri][app]
        post = self.posts[guid]
        if view.owes and guid not in view.confirm_sent:
            # A confirm of what was purged, or confirmed before, removes nothing.
            post.done_us = self.clock.us
        view.confirm_sent.add(guid)
        view.owed.pop(guid, None)
        if post.again:
            # This may be another message, while the first one ended long ago.
            self.is_past_window(post)

    def confirmed(self, uri: str, app: str, guids: Iterable[bytes]) -> None:
        """A node has handled the confirms."""
        self.views[uri][app].confirmed.update(dict.fromkeys(guids, self.forgets))

    def sent(self, post: Post) -> None:
        """A post goes on its way."""
        post.unsure |= self.is_short

    def runs_short(self) -> None:
        """A disk has little room from now on; what is on its way may be refused there, and sent again by a broker."""
        self.is_short = self.was_short = True
        for post in self.posts.values():
            post.unsure |= not post.acked

    def posted_again(self, post: Post) -> None:
        """An unacked post is retransmitted, maybe after an app was done with it."""
        if any(post.guid in view.confirm_sent for view in self.views[post.uri].values()):
            post.again = True
        if self.promises[post.uri] is Promise.COPIED:
            # It may have been acknowledged and lost, and later ones not.
            self.again |= {(post.guid, app) for app in self.views[post.uri]}

    def purged(self, uri: str, guids: Iterable[bytes], app_id: str = "") -> None:
        """An operator has messages removed, for all apps or for one."""
        for guid in guids:
            post = self.posts[guid]
            post.purged |= not app_id
            # Its producer may have sent it again already.
            post.again |= not post.acked
            for app in (app_id,) if app_id else self.views[uri]:
                self.confirm_sent(uri, app, guid)
                self.again.add((guid, app))

    # -- what nodes say

    def ack(self, guid: bytes, status: int) -> None:
        """An ACK leaves a node."""
        post = self.posts.get(guid)
        if post is None:
            raise Violation(f"{guid.hex()} is acknowledged, and nobody has posted it")
        if status != AckStatus.SUCCESS:
            post.refused = True
            if status not in self.refusals:
                raise Violation(f"{name_of(post)} is refused with {AckStatus(status).name}")
            return
        if not post.acked:
            post.acked = True
            self.acked += 1
            for view in self.views[post.uri].values():
                if view.owes and not post.purged and guid not in view.confirm_sent and guid not in view.unasked:
                    view.owed[guid] = None

    def refused(self, guid: bytes) -> None:
        """A broker has refused a post, by a record, to another broker or for its age: its producer may never know."""
        post = self.posts.get(guid)
        if post is not None:
            post.refused = True

    def push(self, consumer: Reader, uri: str, app: str, guid: bytes, payload: bytes, *, is_heard: bool = True) -> None:
        """A PUSH leaves a node; `is_heard` unless the consumer has left that link."""
        post = self.posts.get(guid)
        if post is None or post.uri != uri:
            raise Violation(f"{guid.hex()} is delivered from {uri}, and nobody has posted it there")
        if payload != payload_of(post):
            raise Violation(f"{name_of(post)} is delivered with another payload: {payload[:80]!r}")
        view = self.views[uri][app]
        if guid in view.unasked:
            raise Violation(f"{name_of(post)} is delivered to '{app}', which its domain keeps it from")
        if guid in view.confirmed:
            if not self._may_be_new(post, view):
                raise Violation(f"{name_of(post)} is delivered to '{app}', which had confirmed it")
            self.forgiven += 1
            return
        if guid in view.pushed:
            self.redelivered += 1
            return
        if not is_heard:
            return
        if self.is_unordered(post, app):
            view.pushed.add(guid)
            self.delivered += 1
            return
        line = f"{post.line} at {consumer.name} {consumer.sessions}" if self.by_consumer else post.line
        last = max(view.last.get(line, 0), self._step.get((uri, app, line, consumer.name), 0))
        if post.unsure and post.number < last:
            self.forgiven += 1
            last = post.number
        if post.number < last:
            raise Violation(f"{name_of(post)} is delivered to '{app}' after number {last}")
        self._step[uri, app, line, consumer.name] = post.number
        view.pushed.add(guid)
        self.delivered += 1
        self.judged += 1

    def is_unordered(self, post: Post, app: str) -> bool:
        """Return whether a message may come to an app after later ones. To be asked only when it comes."""
        is_again = (post.guid, app) in self.again or post.purged or post.refused or post.withheld
        # A repetition that may be another message may be the first that an app without a claim gets.
        is_another = not self.views[post.uri][app].owes and (self.is_past_window(post) or post.again)
        # It may have expired at a primary whose record of that was lost.
        may_be_over = not self.is_kept(post)
        return is_again or is_another or may_be_over or self.promises[post.uri] is Promise.PASSED

    def is_durable(self, app: str, guid: bytes) -> bool:
        """Return whether a majority has it that an app is done with a message."""
        return False

    def may_be_new(self, post: Post, app: str) -> bool:
        """Return whether a node may rightly take a message that an app is done with for another."""
        view = self.views[post.uri].get(app)
        return view is not None and self._may_be_new(post, view)

    def is_kept(self, post: Post) -> bool:
        """Return whether a message that is acked must be there."""
        life_us = self.lives_us.get(post.uri)
        return life_us is None or (self.clock.us - post.made_us < life_us and self.are_clocks_right())

    def missing(self, view: AppView) -> Iterator[Post]:
        """Yield the posts that an app must still receive."""
        return filter(self.is_kept, map(self.posts.__getitem__, view.owed))

    def _may_be_new(self, post: Post, view: AppView) -> bool:
        """Return whether a node may rightly take a message for a new one, having forgotten that it was confirmed."""
        is_forgotten = post.again and view.confirmed.get(post.guid, self.forgets) < self.forgets
        return is_forgotten or self.is_past_window(post)

    def is_past_window(self, post: Post) -> bool:
        """Return whether all apps were done with a message for longer than its queue recognises repetitions.

        To be asked only when it has come again.
        """
        window_us = self.windows_us.get(post.uri)
        if window_us is not None and self.clock.us - post.done_us > window_us * WINDOW_PART:
            views = [view for view in self.views[post.uri].values() if view.owes and post.guid not in view.unasked]
            post.renewed |= all(post.guid in view.confirm_sent for view in views)
        return post.renewed

    def step_ends(self) -> None:
        """End a step: its messages to several consumers are ordered only for each of them."""
        for (uri, app, line, _), number in self._step.items():
            last = self.views[uri][app].last
            last[line] = max(last.get(line, 0), number)
        self._step.clear()

    # -- what nodes hold

    def check_node(self, node: Node, uris: Iterable[str] | None = None) -> None:
        """A node that has everything (of some queues): what is owed is there, what is done with is not."""
        for uri in self.views if uris is None else uris:
            views = self.views[uri]
            queue = node.queues.get(uri)
            kept = {} if queue is None else {message.guid: message for message in queue.messages.peek()}
            for app_id, view in views.items():
                app = queue.apps.get(app_id) if queue is not None else None
                for post in self.missing(view):
                    message = kept.get(post.guid)
                    if message is None or app is None or not message.outstanding & app.bit:
                        raise Violation(f"{name_of(post)} was acked and is lost to '{app_id}'")
                if queue is None or app is None:
                    continue
                for guid in view.confirmed.keys() & kept.keys():
                    wanted = kept[guid].outstanding & app.bit
                    post = self.posts[guid]
                    if wanted and not self._may_be_new(post, view):
                        raise Violation(f"{name_of(post)} is there again for '{app_id}', which confirmed it")

    def power_lost(self) -> None:
        """A node without copies elsewhere has lost power: what was not written back may be gone, acked or not."""
        for views in self.views.values():
            for view in views.values():
                view.owed.clear()
                view.confirmed.clear()

    def check_all_delivered(self) -> None:
        """Check at the end that every acknowledged message has reached every app."""
        for uri, views in self.views.items():
            for app, view in views.items():
                for post in self.missing(view):
                    raise Violation(f"{name_of(post)} of {uri} was never delivered to '{app}'")


def name_of(post: Post) -> str:
    return f"number {post.number} of {post.producer} to {post.uri} ({post.guid.hex().upper()})"


def check_queue(queue: Queue) -> None:
    """Check the invariant of `broker.bmq.queue.queue`: each kept message is in one place for each app that wants it.

    Messages that a relay is discarding, one by one, are in none.
    """
    discarded = queue.discarded_bits if isinstance(queue, RelayQueue) else ()
    # Packed messages are looked at as they are: unpacked, they would all be objects after each check.
    kept = {message.guid: message for message in queue.messages.peek()}
    if len(kept) != len(queue.messages) or list(kept) != list(queue.messages):
        raise Violation(f"{queue.uri}: its messages are not those that it lists")
    for app in queue.apps.values():
        places: dict[bytes, int] = dict.fromkeys(app.aside, 1)
        for stream in app.streams:
            for guid in stream.unconfirmed:
                places[guid] = places.get(guid, 0) + 1
        for waiting in (app.redelivery, app.returning or (), _waiting_by_themselves(queue, app)):
            for message in waiting:
                if message.outstanding & app.bit and kept.get(message.guid) is message:
                    places[message.guid] = places.get(message.guid, 0) + 1
        for part in app.pending:
            for message in part.peek() if isinstance(part, Part) else ():
                if message.outstanding & app.bit:
                    places[message.guid] = places.get(message.guid, 0) + 1
        for guid, message in kept.items():
            wanted = 1 if message.outstanding & app.bit and guid not in queue.awaiting else 0
            found = places.pop(guid, 0)
            if found != wanted and (found or app.bit not in discarded):
                raise Violation(f"{queue.uri}: {guid.hex().upper()} is not in {wanted} place(s) of '{app.app_id}'")
        if places:
            raise Violation(f"{queue.uri}: '{app.app_id}' holds {next(iter(places)).hex().upper()}, which is gone")


def _waiting_by_themselves(queue: Queue, app: App) -> Iterator[Message]:
    """Yield what waits for an app by itself; check that parts know how many apps wait for them."""
    for item in app.pending:
        if not isinstance(item, Part):
            yield item
        elif not queue.ghosts:
            waits = sum(item is other for each in queue.apps.values() for other in each.pending)
            if item.waits != waits:
                raise Violation(f"{queue.uri}: {waits} apps wait for a part that {item.waits} are said to wait for")
