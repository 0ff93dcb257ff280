# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The relay of a queue whose root is elsewhere.

It has the same tree of apps, streams and subscriptions as the root. It sends the sum of its clients' opens and
subscriptions to its upstream (`HandleRequests`). Posts are forwarded, and kept until they are acknowledged. Messages
arrive with the subscriptions that they are for, and are delivered here; confirms and rejects are forwarded.

Invariant: a message is in `messages` until every app that it came for has confirmed it; until then it is held by this
relay at the root. Messages that no consumer here has are discarded when the upstream is lost: the next one resends
them.
Source: mqbblp::RelayQueueEngine, mqbblp::RemoteQueue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Final

from broker.bmq.core.config import DomainConfig
from broker.bmq.core.messages import (
    NO_PLACE,
    PENDING,
    Buffer,
    Content,
    Message,
    MessagePoster,
    Posted,
    content_of,
    message_of,
)
from broker.bmq.core.redelivery import Wanted
from broker.bmq.core.work import UNIT_BYTES_BITS, Task
from broker.bmq.queue.capacity import Usage
from broker.bmq.queue.handles import Handle, Refusal, app_id_of
from broker.bmq.queue.purges import strip, take_all
from broker.bmq.queue.queue import App, Queue, Stream, Subscription, Surroundings
from broker.bmq.queue.queue_requests import Opened
from broker.bmq.queue.rejects import REJECT_LINES_MAX, note_attempts
from broker.bmq.relay.confirms import Confirms
from broker.bmq.relay.handles.client_handles import ClientHandles
from broker.bmq.relay.handles.handle_counts import COUNT_MAX
from broker.bmq.relay.handles.handle_requests import HandleRequests
from broker.bmq.relay.pending_pushes import PendingPushes
from broker.bmq.relay.pending_work import PendingWork
from broker.bmq.relay.posts import Posts, Unacknowledged
from broker.bmq.relay.put_room import PutRoom
from broker.bmq.relay.relay_log import RelayLog, relay_config
from broker.bmq.relay.takeover import Unconfirmed
from broker.bmq.relay.upstream import Upstream, UpstreamState
from broker.bmq.store.chunked import Chunked
from broker.common.faults import Change, Inconsistent
from formats.bmq.codes import DEFAULT_APP_ID, DEFAULT_SUBSCRIPTION_ID, RDA_COUNTER_MAX, QueueFlag
from formats.bmq.control.messages import (
    ConsumerInfo,
    Expression,
    ExpressionVersion,
    OpenQueueResponse,
    QueueHandleParameters,
    StatusCategory,
)
from formats.bmq.control.messages import Subscription as SubscriptionInfo
from formats.bmq.expressions import ExpressionError, compile_expression
from formats.bmq.wire.event import EventType, Frame
from formats.bmq.wire.options import SubQueueInfo
from formats.bmq.wire.push import Push, PushFlag
from formats.bmq.wire.rda import RDA_INFO, UNLIMITED, RdaInfo
from formats.bmq.wire.reject import REJECT_HEADER_BYTES, pack_reject

__all__ = ["RelayQueue", "StoreReader"]

log: Final = logging.getLogger("broker.relay")

_OPEN: Final = UpstreamState.OPEN
_PUSH_PROPERTIES: Final = int(PushFlag.MESSAGE_PROPERTIES)
_IMPLICIT_PAYLOAD: Final = int(PushFlag.IMPLICIT_PAYLOAD)
_OUT_OF_ORDER: Final = int(PushFlag.OUT_OF_ORDER)
POISONOUS: Final = RDA_INFO.pack(RdaInfo(0, 1, 0))[0]
INT64_MAX: Final = (1 << 63) - 1
DEFAULT_INFO: Final = SubQueueInfo(DEFAULT_SUBSCRIPTION_ID, UNLIMITED)

# Reads the message of a GUID in this node's own store, or None.
StoreReader = Callable[[bytes], Content | None]


class RelayQueue(Queue):
    """A queue of this node's clients whose root is elsewhere.

    `queue_id` is its number on links to upstreams. `read` finds messages in this node's own store. `unused` is called
    when no client has the queue open any longer. `lacks` is called when the store lacks a message that it may get, to
    have `go_on` called when the store is healed, and `out_of_step` when it lacks one that it should have. Without
    `lacks` it should have each. `room` limits the posts in flight; further ones are refused.
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
        self._read = read
        self._unused = unused
        self._out_of_step = out_of_step
        self.lacking = PendingPushes(None if lacks is None else lambda: lacks(self))
        self._attempts_max: int | None = None
        super().__init__(uri, key, config, app_keys, RelayLog(read), Usage(), around)
        self.queue_id = queue_id
        self.upkeep.was_opened = True
        self.opens = ClientHandles(uri, queue_id)
        self.openings = HandleRequests(self.opens, self.now, self.around.timers, self, around.reopen_pace)
        self.posts = Posts(self, queue_id, self.opens, room or PutRoom())
        self.confirms = Confirms(queue_id, self.opens, self.now, self.around.timers)
        self._wanted: dict[Stream, list[Subscription]] = {}
        self._ids: dict[tuple[str, str], int] = {}  # of subscriptions upstream, by app id and expression
        self._app_ids: dict[int, str] = {}  # by those numbers
        self._last_id = 0
        self.pushed = 0
        self._is_stored = False  # True if its messages are in this node's own store, too
        self._root: Queue | None = None
        self._unsettled = PendingWork(self, self.hold, self.found)

    @property
    def asked_bytes_max(self) -> int:
        """Limit of unconfirmed bytes in a subscription upstream."""
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

    @property
    def attempts_max(self) -> int | None:
        return self._attempts_max

    def learn(self, response: OpenQueueResponse) -> None:
        """Take the parameters in an upstream's response; a member of the cluster knows the domain itself."""

    # -- the upstream

    @property
    def upstream(self) -> Upstream | None:
        """The upstream, or the next one while the last one's messages are still being discarded."""
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
        self.lacking.clear()
        if not self.opens.writers:
            self.posts.forget_all()
        for app in self.apps.values():
            self._unsettled.forgetting.forget_waiting(app)
            for stream in app.streams:
                # Another root may use the same numbers for other schemas of properties.
                stream.schemas_sent.clear()
        self._unsettled.later.finish()

    def move(self) -> None:
        """Prepare for a root at this node: no further upstream will come, and work that waits for one is finished."""
        self._unsettled.upstream = None
        self.openings.lost()
        self.lacking.clear()
        self._unsettled.later.finish()

    def send_kept(self, sent: Callable[[], None]) -> None:
        """Send the kept posts and confirms, in slices, to an upstream that knows the opens; then call `sent`.

        Subscriptions come first at an upstream that discards the data until it has them, and of a broadcast queue,
        whose consumers would miss posts that the root has before. Otherwise they come last: what was confirmed is not
        pushed again.
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
        """Handle an app opened by the upstream, before its first push."""
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
                self._give_back(parameters)
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

    def _give_back(self, parameters: QueueHandleParameters) -> None:
        """Give back an open for which its client does not wait any longer."""
        if parameters.flags & QueueFlag.READ:
            self.give_back_reads(app_id_of(parameters), parameters.read_count)
        if parameters.flags & QueueFlag.WRITE:
            self.give_back_writes(parameters.write_count)

    def hand_over(self, root: Queue) -> None:
        """Pass waiting clients on to the root, which is here now and has all posts."""
        self._root = root
        self.openings.finish()
        self.posts.forget_all()

    def reconfigure(self, stream: Stream, subscriptions: list[Subscription], configured: Callable[[], None]) -> None:
        for each in subscriptions:
            # As in `Queue.configure`.
            if each.text:
                with suppress(ExpressionError):
                    compile_expression(each.text)

        def answered() -> None:
            # Not earlier, since a client does not know these subscriptions before it has its answer.
            if (subscriptions or self.broadcast) and self._wanted.get(stream) is subscriptions:
                self.configure(stream, subscriptions)
                # Messages returned by a broker below are for others, too.
                self._forget_unwanted(stream.app)
            configured()

        with Change(f"the configuration of a consumer of queue '{self.uri}'"):
            self._wanted[stream] = subscriptions
            self._forget_unwanted(stream.app)
            # A broadcast queue's consumer gets all that the root has sent before it knows.
            if not (subscriptions or self.broadcast):
                self.configure(stream, subscriptions)
            self._tell(stream.app, answered)

    def _tell(self, app: App, answered: Callable[[], None]) -> None:
        """Send an app's subscriptions to the upstream, after all earlier messages to it."""
        # In the current state: messages not wanted in between are discarded here, so the upstream must redeliver them.
        summed = self._summed(app)
        self._unsettled.later.add(app, lambda: self.openings.configure(app.app_id, summed, answered))

    def detach(self, stream: Stream, *, lost: bool = False) -> None:
        app = stream.app
        with Change(f"the end of a consumer of queue '{self.uri}'"):
            self._wanted.pop(stream, None)
            self._unsettled.inherited.leave(stream)
            super().detach(stream, lost=lost)
            self._forget_unwanted(app)
            self._tell(app, lambda: None)

    def taken_back(self, app: App, wanted: Wanted | None) -> Wanted | None:
        """Return a filter of messages that go to other consumers here, without those removed by the root meanwhile.

        Messages that no consumer here wants any longer are discarded: the root delivers them to others.
        """
        texts = self._texts(app)
        if "" in texts:
            texts = set()
        if not (self._is_stored or texts):
            return wanted

        def is_kept(message: Message) -> bool:
            is_here = not self._is_stored or self._is_kept(message)
            if is_here and wanted is not None and not wanted(message):
                return False
            if is_here and (not texts or self.is_wanted(message, texts)):
                return True
            self._forget(app, message)
            return False

        return is_kept

    def _is_kept(self, message: Message) -> bool:
        content = self._read(message.guid)
        if content is not None and message.payload is None:
            # The root may remove it while the next consumer has it.
            message.payload = bytes(content.data)
        return content is not None

    def _forget(self, app: App, message: Message) -> None:
        app.forget(message)
        if not message.outstanding:
            self.gone((message,))

    def _drop_app(self, app_id: str) -> None:
        """Drop an app that no client has open or is opening: for the upstream this relay holds no message of it."""
        app = self.apps.get(app_id)
        if app is not None and not app.streams and app_id not in self.opens.consumers:
            strip(self, app)
            if not app.key:
                del self.apps[app_id]

    def _forget_unwanted(self, app: App) -> None:
        """Discard waiting messages that no consumer wants any longer: the root redelivers them once it knows."""
        texts = self._texts(app)
        if not texts or "" in texts:
            return

        def wanted(message: Message) -> bool:
            is_wanted = self.is_wanted(message, texts)
            if not is_wanted:
                self._forget(app, message)
            return is_wanted

        app.sift(wanted)
        self.delivery.take_back(app)

    def _texts(self, app: App) -> set[str]:
        """Return the expressions that were sent to the upstream."""
        return {each.text for stream in app.streams for each in self._wanted.get(stream, ())}

    def give_back_reads(self, app_id: str, count: int) -> None:
        app = self.apps.get(app_id)
        if app is None:
            self._give_back_reads(app_id, count)
        else:
            self._unsettled.later.add(app, lambda: self._give_back_reads(app_id, count))

    def _give_back_reads(self, app_id: str, count: int) -> None:
        self.openings.give_back_reads(app_id, count)
        self._drop_unread(app_id)

    def asked(self, app_id: str) -> None:
        """See `HandleRequestsListener`."""
        self._drop_unread(app_id)

    def _drop_unread(self, app_id: str) -> None:
        """Drop an app, or the queue, if no client has it open, or is opening it."""
        if app_id not in self.opens.consumers:
            for app, text in [key for key in self._ids if key[0] == app_id]:
                del self._app_ids[self._ids.pop((app, text))]
            self._drop_app(app_id)
        if self.openings.is_unused:
            self._unused(self)

    def after_closing(self, app_id: str, closed: Callable[[], None]) -> None:
        app = self.apps.get(app_id)
        if app is None:
            self.openings.after_closing(closed)
        else:
            self._unsettled.later.add(app, lambda: self.openings.after_closing(closed))

    def give_back_writes(self, count: int) -> None:
        self.openings.give_back_writes(count)
        if not self.opens.writers:
            # In any state: a broker further up may have dropped them, and a returning client sends them again.
            self.posts.forget_all()
        if self.openings.is_unused:
            self._unused(self)

    def _summed(self, app: App) -> tuple[SubscriptionInfo, ...]:
        """Combine all streams of an app: a subscription for each expression, with a consumer for each priority."""
        summed: dict[str, dict[int, ConsumerInfo]] = {}
        for stream in app.streams:
            for each in self._wanted.get(stream, ()):
                by_priority = summed.setdefault(each.text, {})
                so_far = by_priority.get(each.priority) or ConsumerInfo(consumer_priority=each.priority)
                by_priority[each.priority] = ConsumerInfo(
                    max_unconfirmed_messages=min(so_far.max_unconfirmed_messages + each.messages_max, INT64_MAX),
                    max_unconfirmed_bytes=min(so_far.max_unconfirmed_bytes + each.bytes_max, self.asked_bytes_max),
                    consumer_priority=each.priority,
                    consumer_priority_count=min(so_far.consumer_priority_count + each.count, COUNT_MAX),
                )
        found = []
        for text, by_priority in summed.items():
            version = ExpressionVersion.VERSION_1 if text else ExpressionVersion.UNDEFINED
            consumers = tuple(by_priority[priority] for priority in sorted(by_priority, reverse=True))
            subscription_id = self._subscription_id(app, text)
            expression = Expression(version=version, text=text)
            found.append(SubscriptionInfo(s_id=subscription_id, expression=expression, consumers=consumers))
        return tuple(found)

    def _subscription_id(self, app: App, text: str) -> int:
        """Return the number of an app's expression upstream; kept while the app is open, for messages in flight."""
        known = self._ids.get((app.app_id, text))
        if known is None:
            self._last_id += 1
            known = self._ids[app.app_id, text] = self._last_id
            self._app_ids[known] = app.app_id
        return known

    # -- posts up

    @property
    def unacknowledged(self) -> dict[bytes, Unacknowledged]:
        """The posts in flight to the upstream, by GUID."""
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

    # -- messages down

    def on_push(self, push: Push, infos: Sequence[SubQueueInfo]) -> None:
        """Deliver a message from the upstream, after the messages that wait for their content."""
        if self.broadcast:
            message = self._taken(push)
            if message is not None:
                self.delivery.broadcast(message, self.log.read(message))
            else:
                self._miss(push)
        elif self.lacking.waiting:
            self._wait(push, infos)
        elif not self._hand_out_push(push, infos):
            if self.lacking.begin is None:
                self._miss(push)
                return
            self._wait(push, infos)
            self.lacking.begin()

    def _wait(self, push: Push, infos: Sequence[SubQueueInfo]) -> None:
        """Have a push wait for this node's store, or give up on them all."""
        if not self.lacking.add(push, infos):
            self._miss(self.lacking.waiting[0][0])

    def go_on(self) -> None:
        """Deliver the pushes that waited for this node's store, which is healed.

        If it has a message that was dropped, the queue is opened again: the root holds it to be here.
        """
        if any(self._read(guid) is not None for guid in self.lacking.take_dropped()):
            self._out_of_step(self)
        elif self.lacking.waiting and not self.lacking.is_going_on:
            self.work.start(self._go_on())

    def _go_on(self) -> Task:
        lacking, work = self.lacking, self.work
        lacking.is_going_on = True
        try:
            while lacking.waiting:
                while not work.may_go_on():
                    yield
                if not lacking.waiting:
                    break
                push, infos = lacking.waiting[0]
                work.left -= 1 + (len(push.data) >> UNIT_BYTES_BITS)
                is_gone = push.guid in lacking.removed and self._read(push.guid) is None
                if not (is_gone or self._hand_out_push(push, infos)):
                    self._miss(push)
                    break
                lacking.pop()
        finally:
            lacking.is_going_on = False

    def _miss(self, push: Push) -> None:
        """Log that this node's store lacks a message that it should have, and reopen the queue at the upstream."""
        log.error(
            "#QUEUE_UNKNOWN_MESSAGE queue '%s': message %s came from the primary, and is not in the store",
            self.uri,
            push.guid.hex().upper(),
        )
        self._out_of_step(self)

    def _hand_out_push(self, push: Push, infos: Sequence[SubQueueInfo]) -> bool:
        """Deliver a message from the upstream; return False if its content is missing."""
        try:
            found = self._found(push)
            if found is None:
                return False
            data = found.payload
            assert data is not None
            for info in infos or (DEFAULT_INFO,):
                app = self.apps.get(self._app_ids.get(info.sub_queue_id, DEFAULT_APP_ID))
                if app is None:
                    log.error(
                        "#QUEUE_UNKNOWN_SUBSCRIPTION_ID queue '%s': message %s came for an unknown subscription, %d",
                        self.uri,
                        push.guid.hex().upper(),
                        info.sub_queue_id,
                    )
                    continue
                self._hand_out(app, found, data, info.rda_info)
            if not found.outstanding:
                self.gone((found,))
        except Exception as error:
            raise Inconsistent(f"handing out a message of queue '{self.uri}'", error) from error
        return True

    def _found(self, push: Push) -> Message | None:
        """Return the message of a push, which may be here for another app; None if its content is missing."""
        found = self.messages.get(push.guid)
        if found is not None and self.ghosts and self._is_forgotten(found):
            found = None
        if found is None:
            found = self._taken(push)
            if found is None:
                return None
            self.messages[found.guid] = found
            self.usage.add(found.size)
        elif found.payload is None:
            content = self._content(push)
            if content is None:
                return None
            found.payload = bytes(content.data)
        if push.flags & _OUT_OF_ORDER:
            found.offset = NO_PLACE
        return found

    def _is_forgotten(self, message: Message) -> bool:
        """Discard a resent message if a task has yet to do that; return True if so. Its place is after all others."""
        ghosts = 0
        for bit in self.ghosts:
            ghosts |= bit
        if message.outstanding & ~ghosts:
            return False
        self.gone((message,))
        return True

    def only_app(self, infos: Sequence[SubQueueInfo]) -> App | None:
        """Return the only app that gets messages with these subscriptions; None if the common case does not apply."""
        if len(infos) > 1 or self.lacking.waiting:
            return None
        info = infos[0] if infos else DEFAULT_INFO
        rda = info.rda_info
        if not rda & UNLIMITED and (rda & POISONOUS or rda & RDA_COUNTER_MAX > (self._attempts_max or 0)):
            return None
        return self.apps.get(self._app_ids.get(info.sub_queue_id, DEFAULT_APP_ID))

    def _content(self, push: Push) -> Content | None:
        """Return the content of a message from the upstream, which may be in this node's own store.

        Returns None if the store lacks it.
        """
        if not push.flags & _IMPLICIT_PAYLOAD:
            has_properties = push.flags & _PUSH_PROPERTIES != 0
            return Content(push.data, 0, push.compression, has_properties, push.schema_id)
        self._is_stored = True
        return self._read(push.guid)

    def _taken(self, push: Push) -> Message | None:
        """Make a new message for a push, or None if its content is missing (see `_content`)."""
        content = self._content(push)
        if content is None:
            return None
        message = message_of(push.guid, len(content.data), content, 0, self.now.ms)
        # From this node's own store, too: the root may remove the message while a consumer here has it.
        message.payload = bytes(content.data)
        self.pushed += 1
        message.offset = self.pushed
        return message

    def _hand_out(self, app: App, message: Message, data: Buffer, rda: int) -> None:
        """Send a message to a consumer of the app, or append it to the waiting ones.

        The upstream sends each app its messages in order. The flag for a message out of order means that another app
        has got a newer one, or that this app has got it before.
        """
        guid = message.guid
        counter = rda & RDA_COUNTER_MAX
        if not rda & UNLIMITED:
            self._attempts_max = max(counter, self._attempts_max or 0)
        if message.outstanding & app.bit:
            return  # it came before, from an upstream that was lost: brokers below count on from there
        if not app.streams and app.app_id not in self.opens.consumers:
            return  # as in `_drop_app`: it was in flight
        if app.only is None and (texts := self._texts(app)) and not self.is_wanted(message, texts):
            return  # as in `_forget_unwanted`: likewise
        message.outstanding |= app.bit
        app.messages += 1
        app.bytes += message.size
        if rda & POISONOUS and not rda & UNLIMITED:
            app.attempts[guid] = counter
            app.redelivery.append(message)
            self.deliver(app)
        else:
            self.give(app, message, data)

    def give(self, app: App, message: Message, data: Buffer) -> None:
        """Send a message that has just come to a consumer of the app, or append it to the waiting ones."""
        if app.redelivery or app.pending or app.is_behind:
            app.pending.append(message)
        else:
            self.offer(app, message, data)

    def purged(self, guids: Sequence[Container[bytes]], *, heals: bool) -> None:
        """Drop the messages that the root has purged, even from consumers.

        `guids` are those of them that this node's store had. While it `heals`, it learns of a purge late: messages that
        were posted afterwards may be here already.
        """
        self.lacking.note_removed(guids)
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
        self.lacking.note_removed(({guid},))
        if self._unsettled.inherited.held:
            self._unsettled.inherited.take(guid)
        message = self.messages.get(guid)
        if message is not None:
            wanting = [app for app in self.apps.values() if message.outstanding & app.bit]
            self.forget(message)
            self.lacking.note_dropped(guid)
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
        if self._unsettled.inherited.held:
            self._unsettled.inherited.take(guid)
        if guid not in stream.unconfirmed or self._attempts_max is None:
            return
        app = stream.app
        left = self._reject_up(app, guid)
        if told:
            self._tell_reject(stream, guid, left + 1)
        note_attempts(self.uri, stream, guid, left, lambda message: self._give_up(app, message))

    def _reject_up(self, app: App, guid: bytes) -> int:
        """Send a reject to the upstream; return the number of attempts left."""
        assert self._attempts_max is not None
        self.statistics.rejects += 1
        consumer = self.opens.consumers.get(app.app_id)
        if self.opens.state is _OPEN and consumer is not None and self.opens.upstream is not None:
            try:
                out = self.opens.upstream.event(EventType.REJECT, REJECT_HEADER_BYTES)
                out += pack_reject(self.queue_id, guid, consumer.sub_id)
            except Exception as error:
                self.opens.upstream.fail(error)
        return app.attempts.get(guid, self._attempts_max) - 1

    def _give_up(self, app: App, message: Message) -> None:
        """Drop a message whose last attempt has failed.

        An upstream that did not get all rejects of it has counted fewer attempts. It gets a confirm, too: otherwise it
        would wait for one from here.
        """
        self._forget(app, message)
        if self.opens.state is not _OPEN or message.arrived_ms <= self.opens.found_ms:
            self.confirms.send(app.app_id, (message.guid,))

    def _tell_reject(self, stream: Stream, guid: bytes, left: int) -> None:
        log.info(
            "[THROTTLED] Queue '%s' rejecting PUSH [GUID: '%s', subQueueId: %d] with the counter: [%d]",
            self.uri,
            guid.hex().upper(),
            stream.sub_queue_id,
            left,
        )

    def reject_all(self, stream: Stream) -> Wanted | None:
        """Reject like the root. The rejects are sent to the upstream before the end of the consumer: see `_tell`."""
        attempts_max = self._attempts_max
        if attempts_max is None:
            return None
        app = stream.app
        for guid in islice(stream.unconfirmed, REJECT_LINES_MAX):
            self._tell_reject(stream, guid, app.attempts.get(guid, attempts_max))

        def wanted(message: Message) -> bool:
            left = self._reject_up(app, message.guid)
            if left > 0:
                app.attempts[message.guid] = left
            else:
                self._give_up(app, message)
            return left > 0

        return wanted

    # -- clients that come from elsewhere

    def follow(self, root: Queue) -> None:
        """Take over the consumers and messages of a former root at this node."""
        self._attempts_max = root.attempts_max
        self._is_stored = root.log.is_replicated

    def inherit(self, before: dict[Stream, Unconfirmed], attempts: dict[str, Chunked[int]]) -> None:
        """Take over the messages of new consumers, before there is an upstream; see `Takeover.begin`."""
        self._unsettled.inherited.begin(before, attempts)

    def hold(self, app: App, message: Message) -> None:
        """Add a message that a consumer of the app has from before."""
        if message.guid not in self.messages:
            self.messages[message.guid] = message
            self.usage.add(message.size)
            self.pushed += 1
            message.offset = self.pushed
        message.outstanding |= app.bit
        app.messages += 1
        app.bytes += message.size

    def adopt(self, handle: Handle) -> None:
        """Adopt a handle; while there is no upstream."""
        if handle.writes:
            self.opens.adopt_writes(handle.writes)
        for stream in handle.streams.values():
            consumer = self.opens.adopt_reads(stream.app.app_id, stream.readers)
            self._wanted[stream] = stream.subscriptions
            consumer.subscriptions = self._summed(stream.app)
