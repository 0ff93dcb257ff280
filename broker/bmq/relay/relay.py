# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The relay of a queue whose root is elsewhere.

It has the same tree of apps, streams and subscriptions as the root. It sends the sum of its clients' opens and
subscriptions to its upstream (`HandleRequests`), and forwards posts, which it keeps until they are acknowledged,
confirms and rejects. Messages arrive with the subscriptions that they are for.

Invariant: a message is in `messages`, and held by this relay at the root, until every app that it came for has
confirmed it. Messages that no consumer here has are discarded when the upstream is lost: the next one resends them.
Source: mqbblp::RelayQueueEngine, mqbblp::RemoteQueue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Final

from broker.bmq.core.config import DomainConfig
from broker.bmq.core.messages import (
    PENDING,
    Buffer,
    Message,
    MessagePoster,
    Posted,
    content_of,
)
from broker.bmq.core.redelivery import Wanted
from broker.bmq.core.schemas import UPSTREAM
from broker.bmq.core.work import Task
from broker.bmq.queue.capacity import Usage
from broker.bmq.queue.handles import Handle, Refusal, app_id_of, give_back
from broker.bmq.queue.purges import strip, take_all
from broker.bmq.queue.queue import App, Queue, Stream, Subscription, Surroundings
from broker.bmq.queue.queue_requests import Opened
from broker.bmq.relay.arrivals import Arrivals, StoreReader
from broker.bmq.relay.asked_subscriptions import INT64_MAX, AskedSubscriptions
from broker.bmq.relay.confirms import Confirms
from broker.bmq.relay.handles.client_handles import ClientHandles
from broker.bmq.relay.handles.handle_requests import HandleRequests
from broker.bmq.relay.pending_pushes import PendingPushes
from broker.bmq.relay.pending_work import PendingWork
from broker.bmq.relay.posts import Posts, Unacknowledged
from broker.bmq.relay.put_room import PutRoom
from broker.bmq.relay.relay_log import RelayLog, relay_config
from broker.bmq.relay.relay_rejects import RelayRejects
from broker.bmq.relay.takeover import Unconfirmed
from broker.bmq.relay.upstream import Upstream, UpstreamState
from broker.bmq.store.chunked import Chunked
from broker.common.faults import Change, Inconsistent
from formats.bmq.codes import QueueFlag
from formats.bmq.control.messages import (
    OpenQueueResponse,
    QueueHandleParameters,
    StatusCategory,
)
from formats.bmq.expressions import ExpressionError, compile_expression
from formats.bmq.wire.event import Frame

__all__ = ["RelayQueue"]

log: Final = logging.getLogger("broker.relay")

_OPEN: Final = UpstreamState.OPEN


class RelayQueue(Queue):
    """A queue of this node's clients whose root is elsewhere.

    `queue_id` is its number on links to upstreams. `read` finds messages in this node's own store. `unused` is called
    when no client has the queue open any longer. `lacks` is called when the store lacks a message that it may get, to
    have `arrivals.go_on` called when the store is healed, and `out_of_step` when it lacks one that it should have;
    without `lacks` it should have each. `room` limits the posts in flight.
    """

    def __init__(
        self,
        uri: str,
        key: bytes,
        config: DomainConfig,
        app_keys: Iterable[tuple[str, bytes]],
        around: Surroundings,
        queue_id: int,
        read: StoreReader,
        unused: Callable[[RelayQueue], None],
        lacks: Callable[[RelayQueue], None] | None,
        out_of_step: Callable[[RelayQueue], None],
        room: PutRoom | None = None,
    ) -> None:
        self._unused = unused
        self.opens = ClientHandles(uri, queue_id)
        self.confirms = Confirms(queue_id, self.opens, around.now, around.timers)
        self._rejects = RelayRejects(self, self.opens, self.confirms)
        super().__init__(uri, key, config, app_keys, RelayLog(read), Usage(), around, self._rejects)
        self.queue_id = queue_id
        self.upkeep.was_opened = True
        self.openings = HandleRequests(self.opens, self.now, self.around.timers, self, around.reopen_pace)
        self.posts = Posts(self, queue_id, self.opens, room or PutRoom())
        self._asked = AskedSubscriptions(self.asked_bytes_max)
        lacking = PendingPushes(None if lacks is None else lambda: lacks(self))
        self.arrivals = Arrivals(self, self.opens, self._asked, self._rejects, lacking, read, lambda: out_of_step(self))
        self._root: Queue | None = None
        self._unsettled = PendingWork(self, self.arrivals.hold, self.found)

    @property
    def asked_bytes_max(self) -> int:
        return INT64_MAX

    def app(self, app_id: str) -> App:
        """Return the app of that name; the root checks that the domain names it."""
        app = self.apps.get(app_id)
        if app is None:
            app = self.apps[app_id] = App(app_id, b"", self.free_bit())
        return app

    @property
    def discarded_bits(self) -> Sequence[int]:
        """The bits of apps whose waiting messages are being discarded, for the next upstream to send them again."""
        return self._unsettled.forgetting.bits

    def free_bit(self) -> int:
        taken = 0
        for bit in chain([app.bit for app in self.apps.values()], self.ghosts, self.discarded_bits):
            taken |= bit
        return ~taken & (taken + 1)

    def name_app(self, app_id: str, key: bytes) -> None:
        """Add an app from the cluster's state; existing readers keep their messages."""
        self.app(app_id).key = key
        self.apps_changed()

    def unname_app(self, app: App) -> None:
        """Remove an app. The root has taken its messages back, or will send them again."""
        app.key = b""
        if not app.streams:
            strip(self, app)
            del self.apps[app.app_id]
        self.apps_changed()

    def configure_domain(self, config: DomainConfig) -> None:
        super().configure_domain(relay_config(config))
        # Duplicates are removed where the messages are stored.
        self.history.window_ms = 0

    def learn(self, response: OpenQueueResponse) -> None:
        """Take the parameters in an upstream's response; a member of the cluster knows the domain itself."""

    # -- the upstream

    @property
    def upstream(self) -> Upstream | None:
        """The upstream, or the next one while the last one's messages are being discarded."""
        return self._unsettled.upstream or self.opens.upstream

    def found(self, upstream: Upstream) -> None:
        """Set the upstream, which takes effect when no messages are left to be discarded or taken over."""
        if self._unsettled.is_busy:
            self._unsettled.upstream = upstream
            return
        log.info("queue '%s' has an upstream: %s", self.uri, upstream.description)
        self.openings.found(upstream)

    def leave(self, answered: Callable[[], None]) -> int:
        """Prepare to leave the upstream: received messages are delivered and confirmed. See `HandleRequests.leave`."""
        return self.openings.leave(answered)

    def lost(self) -> None:
        """Remove the upstream: outgoing data is kept, and messages without a consumer will be sent again."""
        self._unsettled.upstream = None
        self.openings.lost()
        self.arrivals.lacking.clear()
        if not self.opens.writers:
            self.posts.forget_all()
        for app in self.apps.values():
            self._unsettled.forgetting.forget_waiting(app)
        # Another root may use the same numbers for other schemas of properties.
        self.arrivals.schemas.forget(UPSTREAM)
        self._unsettled.later.finish()

    def move(self) -> None:
        """Prepare for a root at this node: no further upstream will come, and work that waits for one is finished."""
        self._unsettled.upstream = None
        self.openings.lost()
        self.arrivals.lacking.clear()
        self._unsettled.later.finish()

    def send_kept(self, sent: Callable[[], None]) -> None:
        """Send the kept posts and confirms, in slices, to an upstream that knows the opens; then call `sent`.

        Subscriptions come first at an upstream that discards the data until it has them, and for a broadcast queue,
        whose consumers would miss earlier posts. Otherwise they come last: confirmed messages are not pushed again.
        """

        def send() -> None:
            self.work.start(self._send_slowly(sent))

        upstream = self.opens.upstream
        if self.broadcast or (upstream is not None and not upstream.takes_early):
            self.openings.configure_all(send)
        else:
            send()

    def _send_slowly(self, sent: Callable[[], None]) -> Task:
        posts, confirms, work = self.posts, self.confirms, self.work
        generation, upstream = self.opens.generation, self.opens.upstream
        posts.begin_resending()
        confirms.begin_resending()
        while posts.has_unsent or confirms.has_unsent:
            while not work.may_go_on():
                yield
            if self.opens.generation != generation or (self.broadcast and self.opens.is_leaving):
                return
            work.left -= posts.send_some() if posts.has_unsent else confirms.send_some()
        sent()
        if upstream is not None:
            upstream.knows_opens()

    def reads(self, app_id: str) -> None:
        self.confirms.opened(app_id)

    # -- opening, configuring, closing

    def open(self, parameters: QueueHandleParameters, opened: Opened) -> None:
        """Open the queue upstream for a client, which gets an answer within the time limit."""
        waits = True

        def answered(refusal: Refusal | None) -> None:
            nonlocal waits
            if waits:
                waits = False
                opened((self._root or self) if refusal is None else refusal)
            elif refusal is None and self._root is None:
                give_back(self, parameters)
            if refusal is not None and parameters.flags & QueueFlag.READ:
                self._drop_app(app_id_of(parameters))
            if self.openings.is_unused:
                self._unused(self)

        def give_up() -> None:
            nonlocal waits
            if waits:
                waits = False
                opened(Refusal(StatusCategory.TIMEOUT, "the open request was not answered in time", -1))
                self.openings.withdraw(opening)

        with Change(f"opening queue '{self.uri}' upstream"):
            opening = self.openings.open(parameters, answered)
            self.around.timers.at(self.now.ms + self.around.open_timeout_ms, give_up)

    def hand_over(self, root: Queue) -> None:
        """Pass waiting clients on to the root, which is here now and has all posts."""
        self._root = root
        self.openings.finish()
        self.posts.forget_all()

    def reconfigure(self, stream: Stream, subscriptions: list[Subscription], configured: Callable[[], None]) -> None:
        for each in subscriptions:
            if each.text:
                with suppress(ExpressionError):
                    compile_expression(each.text)

        def answered() -> None:
            # Not earlier: a client knows these subscriptions only after its answer.
            if (subscriptions or self.broadcast) and self._asked.wanted.get(stream) is subscriptions:
                self.configure(stream, subscriptions)
                # Messages returned by a broker below are for others, too.
                self._forget_unwanted(stream.app)
            configured()

        with Change(f"the configuration of a consumer of queue '{self.uri}'"):
            self._asked.wanted[stream] = subscriptions
            self._forget_unwanted(stream.app)
            # A broadcast queue's consumer gets everything until the root knows.
            if not (subscriptions or self.broadcast):
                self.configure(stream, subscriptions)
            self._tell(stream.app, answered)

    def _tell(self, app: App, answered: Callable[[], None]) -> None:
        """Send an app's subscriptions to the upstream, after all earlier messages to it."""
        # In the current state: messages not wanted in between are discarded here, so the upstream must redeliver them.
        summed = self._asked.summed(app)
        self._unsettled.later.add(app, lambda: self.openings.configure(app.app_id, summed, answered))

    def detach(self, stream: Stream, *, lost: bool = False) -> None:
        app = stream.app
        with Change(f"the end of a consumer of queue '{self.uri}'"):
            self._asked.wanted.pop(stream, None)
            self._unsettled.inherited.leave(stream)
            super().detach(stream, lost=lost)
            self._forget_unwanted(app)
            self._tell(app, lambda: None)

    def taken_back(self, app: App, wanted: Wanted | None) -> Wanted | None:
        """Return a filter of messages that go to other consumers here, without those removed by the root meanwhile.

        Messages that no consumer here wants any longer are discarded: the root delivers them to others.
        """
        texts = self._asked.texts(app)
        if "" in texts:
            texts = set()
        if not (self.arrivals.is_stored or texts):
            return wanted

        def is_kept(message: Message) -> bool:
            is_here = not self.arrivals.is_stored or self.arrivals.is_kept(message)
            if is_here and wanted is not None and not wanted(message):
                return False
            if is_here and (not texts or self.is_wanted(message, texts)):
                return True
            self._forget(app, message)
            return False

        return is_kept

    def _forget(self, app: App, message: Message) -> None:
        app.forget(message)
        if not message.outstanding:
            self.gone((message,))

    def _drop_app(self, app_id: str) -> None:
        """Drop an app that no client has open or is opening: the upstream knows of no messages of it here."""
        app = self.apps.get(app_id)
        if app is not None and not app.streams and app_id not in self.opens.consumers:
            strip(self, app)
            if not app.key:
                del self.apps[app_id]

    def _forget_unwanted(self, app: App) -> None:
        """Discard waiting messages that no consumer wants any longer: the root redelivers them once it knows."""
        texts = self._asked.texts(app)
        if not texts or "" in texts:
            return

        def wanted(message: Message) -> bool:
            is_wanted = self.is_wanted(message, texts)
            if not is_wanted:
                self._forget(app, message)
            return is_wanted

        app.sift(wanted)
        self.delivery.take_back(app)

    def _later(self, app_id: str, action: Callable[[], None]) -> None:
        app = self.apps.get(app_id)
        if app is None:
            action()
        else:
            self._unsettled.later.add(app, action)

    def give_back_reads(self, app_id: str, count: int) -> None:
        self._later(app_id, lambda: self._give_back_reads(app_id, count))

    def _give_back_reads(self, app_id: str, count: int) -> None:
        self.openings.give_back_reads(app_id, count)
        self._drop_unread(app_id)

    def asked(self, app_id: str) -> None:
        self._drop_unread(app_id)

    def _drop_unread(self, app_id: str) -> None:
        if app_id not in self.opens.consumers:
            self._asked.forget(app_id)
            self._drop_app(app_id)
        if self.openings.is_unused:
            self._unused(self)

    def after_closing(self, app_id: str, closed: Callable[[], None]) -> None:
        self._later(app_id, lambda: self.openings.after_closing(closed))

    def give_back_writes(self, count: int) -> None:
        self.openings.give_back_writes(count)
        if not self.opens.writers:
            # In any state: a broker further up may have dropped them, and a returning client sends them again.
            self.posts.forget_all()
        if self.openings.is_unused:
            self._unused(self)

    # -- posts up

    @property
    def unacknowledged(self) -> dict[bytes, Unacknowledged]:
        return self.posts.unacknowledged

    def post(
        self,
        messages: Sequence[Message],
        payloads: Sequence[Buffer],
        options: Buffer = b"",
        waiting: tuple[MessagePoster, int, int] | None = None,
    ) -> Posted | None:
        """Send a message up. Raises `Full` if too many are in flight already."""
        if len(messages) > 1:
            return None
        message = messages[0]
        posted = self.posts.post(message.guid, content_of(message, payloads[0], options))
        if posted is PENDING and waiting is not None:
            self.posts.acknowledge_later(message.guid, *waiting)
        return posted

    def forward(
        self, poster: MessagePoster, number: int, queue_id: int, data: memoryview, frames: Sequence[Frame]
    ) -> bool:
        return self.posts.forward(poster, number, queue_id, data, frames)

    def acknowledge_later(self, guid: bytes, poster: MessagePoster, queue_id: int, correlation_id: int) -> None:
        self.posts.acknowledge_later(guid, poster, queue_id, correlation_id)

    def purged(self, guids: Sequence[Container[bytes]], *, heals: bool) -> None:
        """Drop the messages that the root has purged, even from consumers.

        `guids` are the ones that this node's store had. While it `heals`, it learns of a purge late: later posts may be
        here already.
        """
        self.arrivals.lacking.note_removed(guids)
        if not heals:
            self._unsettled.inherited.purge()
            take_all(self)
            return
        here = [*self.messages, *chain.from_iterable(self._unsettled.inherited.held.values())]
        for guid in here:
            if any(guid in each for each in guids):
                self.removed(guid)

    def removed(self, guid: bytes) -> None:
        """Drop a message that the root has removed, even from consumers."""
        self.arrivals.lacking.note_removed(({guid},))
        if self._unsettled.inherited.held:
            self._unsettled.inherited.take(guid)
        message = self.messages.get(guid)
        if message is not None:
            wanting = [app for app in self.apps.values() if message.outstanding & app.bit]
            self.forget(message)
            self.arrivals.lacking.note_dropped(guid)
            for app in wanting:
                self.deliver(app)

    # -- confirms and rejects up

    def confirm(self, stream: Stream, guids: Sequence[bytes]) -> int:
        app, has_room = stream.app, self.confirms.has_room_for(len(guids))
        if len(guids) > 1 and not (has_room and app.is_at_rest):
            return self._confirm_each(stream, guids)
        if self._unsettled.inherited.held:
            for guid in guids:
                self._unsettled.inherited.take(guid)
        known = super().confirm(stream, guids)
        try:
            if known or has_room:
                self.confirms.send(app.app_id, guids)
        except Exception as error:
            raise Inconsistent(f"the confirmation of a message of queue '{self.uri}'", error) from error
        return known

    def reject(self, stream: Stream, guid: bytes, *, told: bool = True) -> None:
        self._unsettled.inherited.take(guid)
        super().reject(stream, guid, told=told)

    # -- clients that come from elsewhere

    def follow(self, root: Queue) -> None:
        self._rejects.limit = root.attempts_max
        self.arrivals.is_stored = root.log.is_replicated
        # The root's messages keep their numbers.
        self.arrivals.schemas = root.schemas

    def inherit(self, before: dict[Stream, Unconfirmed], attempts: dict[str, Chunked[int]]) -> None:
        """Take over the messages of new consumers, before there is an upstream; see `Takeover.begin`."""
        self._unsettled.inherited.begin(before, attempts)

    def adopt(self, handle: Handle) -> None:
        if handle.writes:
            self.opens.adopt_writes(handle.writes)
        for stream in handle.streams.values():
            consumer = self.opens.adopt_reads(stream.app.app_id, stream.readers)
            self._asked.wanted[stream] = stream.subscriptions
            consumer.subscriptions = self._asked.summed(stream.app)
