# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The messages that a relay gets from its upstream, each with the subscriptions that it is for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from broker.bmq.core.messages import NO_PLACE, Buffer, Content, Message, message_of
from broker.bmq.core.schemas import UPSTREAM, SchemaMultiplexer
from broker.bmq.core.work import UNIT_BYTES_BITS, Task
from broker.bmq.queue.queue import Queue
from broker.bmq.queue.routing import App
from broker.bmq.relay.asked_subscriptions import AskedSubscriptions
from broker.bmq.relay.handles.client_handles import ClientHandles
from broker.bmq.relay.pending_pushes import PendingPushes
from broker.bmq.relay.relay_rejects import RelayRejects
from broker.common.faults import Inconsistent
from formats.bmq.codes import DEFAULT_APP_ID, DEFAULT_SUBSCRIPTION_ID, RDA_COUNTER_MAX
from formats.bmq.wire.options import SubQueueInfo
from formats.bmq.wire.push import Push, PushFlag
from formats.bmq.wire.rda import RDA_INFO, UNLIMITED, RdaInfo

__all__ = ["Arrivals", "StoreReader"]

log: Final = logging.getLogger("broker.relay")

_PUSH_PROPERTIES: Final = int(PushFlag.MESSAGE_PROPERTIES)
_IMPLICIT_PAYLOAD: Final = int(PushFlag.IMPLICIT_PAYLOAD)
_OUT_OF_ORDER: Final = int(PushFlag.OUT_OF_ORDER)
POISONOUS: Final = RDA_INFO.pack(RdaInfo(0, 1, 0))[0]
DEFAULT_INFO: Final = SubQueueInfo(DEFAULT_SUBSCRIPTION_ID, UNLIMITED)

# Finds a message in this node's own store.
StoreReader = Callable[[bytes], Content | None]


class Arrivals:
    """The arrivals of one queue, `pushed` in number; it delivers them.

    `lacking` are the arrivals that wait for this node's store, which `read` reads. `is_stored` is True if the messages
    are in that store, too. `out_of_step` is called when it lacks a message that it should have.
    """

    __slots__ = (
        "_asked",
        "_opens",
        "_out_of_step",
        "_queue",
        "_rejects",
        "is_stored",
        "lacking",
        "pushed",
        "read",
        "schemas",
    )

    def __init__(
        self,
        queue: Queue,
        opens: ClientHandles,
        asked: AskedSubscriptions,
        rejects: RelayRejects,
        lacking: PendingPushes,
        read: StoreReader,
        out_of_step: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._opens = opens
        self._asked = asked
        self._rejects = rejects
        self._out_of_step = out_of_step
        self.lacking = lacking
        self.read = read
        self.pushed = 0
        self.is_stored = False
        # This relay's numbers: the next upstream may use those of the last one for other shapes, and only some readers
        # get the message by which an upstream announces a number again.
        self.schemas = SchemaMultiplexer()

    def number(self, message: Message) -> None:
        self.pushed += 1
        message.offset = self.pushed

    def on_push(self, push: Push, infos: Sequence[SubQueueInfo]) -> None:
        """Deliver a message from the upstream, after messages that wait for their content."""
        if self._queue.broadcast:
            message = self._taken(push)
            if message is not None:
                self._queue.delivery.broadcast(message, self._queue.log.read(message))
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
        if not self.lacking.add(push, infos):
            self._miss(self.lacking.waiting[0][0])

    def go_on(self) -> None:
        """Deliver the pushes that waited for this node's store, which is healed.

        If it has a message that was dropped, the queue is opened again: the root holds it to be here.
        """
        if any(self.read(guid) is not None for guid in self.lacking.take_dropped()):
            self._out_of_step()
        elif self.lacking.waiting and not self.lacking.is_going_on:
            self._queue.work.start(self._go_on())

    def _go_on(self) -> Task:
        lacking, work = self.lacking, self._queue.work
        lacking.is_going_on = True
        try:
            while lacking.waiting:
                while not work.may_go_on():
                    yield
                if not lacking.waiting:
                    break
                push, infos = lacking.waiting[0]
                work.left -= 1 + (len(push.data) >> UNIT_BYTES_BITS)
                is_gone = push.guid in lacking.removed and self.read(push.guid) is None
                if not (is_gone or self._hand_out_push(push, infos)):
                    self._miss(push)
                    break
                lacking.pop()
        finally:
            lacking.is_going_on = False

    def _miss(self, push: Push) -> None:
        log.error(
            "#QUEUE_UNKNOWN_MESSAGE queue '%s': message %s came from the primary, and is not in the store",
            self._queue.uri,
            push.guid.hex().upper(),
        )
        self._out_of_step()

    def _hand_out_push(self, push: Push, infos: Sequence[SubQueueInfo]) -> bool:
        """Deliver a message; return False if its content is missing."""
        try:
            found = self._found(push)
            if found is None:
                return False
            data = found.payload
            assert data is not None
            for info in infos or (DEFAULT_INFO,):
                app = self._queue.apps.get(self._asked.app_ids.get(info.sub_queue_id, DEFAULT_APP_ID))
                if app is None:
                    log.error(
                        "#QUEUE_UNKNOWN_SUBSCRIPTION_ID queue '%s': message %s came for an unknown subscription, %d",
                        self._queue.uri,
                        push.guid.hex().upper(),
                        info.sub_queue_id,
                    )
                    continue
                self._hand_out(app, found, data, info.rda_info)
            if not found.outstanding:
                self._queue.gone((found,))
        except Exception as error:
            raise Inconsistent(f"handing out a message of queue '{self._queue.uri}'", error) from error
        return True

    def _found(self, push: Push) -> Message | None:
        """Return the message of a push, which may be here for another app; None if its content is missing."""
        found = self._queue.messages.get(push.guid)
        if found is not None and self._queue.ghosts and self._is_forgotten(found):
            found = None
        if found is None:
            found = self._taken(push)
            if found is None:
                return None
            self._queue.messages[found.guid] = found
            self._queue.usage.add(found.size)
        elif found.payload is None:
            content = self._content(push)
            if content is None:
                return None
            found.payload = bytes(content.data)
        if push.flags & _OUT_OF_ORDER:
            found.offset = NO_PLACE
        return found

    def _is_forgotten(self, message: Message) -> bool:
        """Discard a resent message, and return True, if a task has yet to do that. Its place is after all others."""
        ghosts = 0
        for bit in self._queue.ghosts:
            ghosts |= bit
        if message.outstanding & ~ghosts:
            return False
        self._queue.gone((message,))
        return True

    def only_app(self, infos: Sequence[SubQueueInfo]) -> App | None:
        """Return the only app that gets messages with these subscriptions; None if the common case does not apply."""
        if len(infos) > 1 or self.lacking.waiting:
            return None
        info = infos[0] if infos else DEFAULT_INFO
        rda = info.rda_info
        if not rda & UNLIMITED and (rda & POISONOUS or rda & RDA_COUNTER_MAX > (self._rejects.limit or 0)):
            return None
        return self._queue.apps.get(self._asked.app_ids.get(info.sub_queue_id, DEFAULT_APP_ID))

    def _content(self, push: Push) -> Content | None:
        """Return the content of a message; None if this node's store should have it, and lacks it."""
        if not push.flags & _IMPLICIT_PAYLOAD:
            has_properties = push.flags & _PUSH_PROPERTIES != 0
            return Content(push.data, 0, push.compression, has_properties, self.schema(push.schema_id))
        self.is_stored = True
        content = self.read(push.guid)
        if content is not None and content.schema_id > 1:
            content = content._replace(schema_id=self.schema(content.schema_id))
        return content

    def schema(self, wire_id: int) -> int:
        """Return this relay's wire id for the one of a message that arrives."""
        return self.schemas.translate(UPSTREAM, wire_id)

    def _taken(self, push: Push) -> Message | None:
        """Make a new message for a push, or None if its content is missing (see `_content`)."""
        content = self._content(push)
        if content is None:
            return None
        message = message_of(push.guid, len(content.data), content, 0, self._queue.now.ms)
        # From this node's own store, too: the root may remove the message while a consumer here has it.
        message.payload = bytes(content.data)
        self.number(message)
        return message

    def _hand_out(self, app: App, message: Message, data: Buffer, rda: int) -> None:
        """Send a message to a consumer of the app, or append it to the waiting ones.

        The upstream sends each app its messages in order. It flags a message as out of order if another app has got a
        newer one, or this app has got it before.
        """
        guid = message.guid
        counter = rda & RDA_COUNTER_MAX
        if not rda & UNLIMITED:
            self._rejects.limit = max(counter, self._rejects.limit or 0)
        if message.outstanding & app.bit:
            # It came before, from an upstream that was lost. Consumers elsewhere may have died of it since.
            if rda & POISONOUS and not rda & UNLIMITED and counter < app.attempts.get(guid, counter + 1):
                app.attempts[guid] = counter
                self._pass_counter_on(app, message, data)
            return
        if not app.streams and app.app_id not in self._opens.consumers:
            return  # it was in flight, see `RelayQueue._drop_app`
        if app.only is None and (texts := self._asked.texts(app)) and not self._queue.is_wanted(message, texts):
            return  # likewise, see `RelayQueue._forget_unwanted`
        message.outstanding |= app.bit
        app.messages += 1
        app.bytes += message.size
        if rda & POISONOUS and not rda & UNLIMITED:
            app.attempts[guid] = counter
            app.redelivery.append(message)
            self._queue.deliver(app)
        else:
            self.give(app, message, data)

    def _pass_counter_on(self, app: App, message: Message, data: Buffer) -> None:
        """Push a message again to the broker below that has it, which counts on from the lower counter."""
        for stream in app.streams:
            held = stream.unconfirmed.get(message.guid) if stream.sink.takes_all else None
            if held is not None:
                try:
                    stream.sink.push(stream.queue_id, message, data, held[1].subscription_id, message.schema_id)
                except Exception as error:
                    stream.sink.fail(error)

    def give(self, app: App, message: Message, data: Buffer) -> None:
        if app.redelivery or app.pending or app.is_behind:
            app.pending.append(message)
        else:
            self._queue.offer(app, message, data)

    def hold(self, app: App, message: Message) -> None:
        if message.guid not in self._queue.messages:
            self._queue.messages[message.guid] = message
            self._queue.usage.add(message.size)
            self.number(message)
        message.outstanding |= app.bit
        app.messages += 1
        app.bytes += message.size

    def is_kept(self, message: Message) -> bool:
        """Return True if this node's store has a message, and so keeps its payload."""
        content = self.read(message.guid)
        if content is not None and message.payload is None:
            # The root may remove it while the next consumer has it.
            message.payload = bytes(content.data)
        return content is not None
