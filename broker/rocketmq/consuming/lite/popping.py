"""Requests for messages of the lite topics that a client is subscribed to (source: PopLiteMessageProcessor).

A group consumes each lite topic in order: while messages of it are under way, no client of the group gets others. They
are known in memory only; after a restart, unacknowledged messages are delivered again at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from broker.rocketmq.consuming.filters import Filter, make_subscription
from broker.rocketmq.consuming.lite.attributes import is_lite_topic, lite_group
from broker.rocketmq.consuming.lite.events import Events
from broker.rocketmq.consuming.lite.placing import check_staying
from broker.rocketmq.consuming.lite.registry import Registry
from broker.rocketmq.consuming.pop.checks import HIDDEN_MS_MAX, check_topic, first_offset, with_born_time
from broker.rocketmq.consuming.pop.order import Orders
from broker.rocketmq.consuming.pop.waiting import Place, Waiting, Waits, until_ms
from broker.rocketmq.consuming.pulling import find_messages
from broker.rocketmq.remoting.requests import Handlers, Refused, Request
from broker.rocketmq.tables.services import Services
from formats.rocketmq.lite import QUEUE_ID
from formats.rocketmq.remoting.bodies.popping import MESSAGES_MAX
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import codec_of
from formats.rocketmq.remoting.headers.consuming import PopLiteMessageRequest, PopLiteMessageResponse
from formats.rocketmq.remoting.receipts import ORDERED

__all__ = ["LitePopper"]

_REQUEST = codec_of(PopLiteMessageRequest)
_RESPONSE = codec_of(PopLiteMessageResponse)
_EVERYTHING: Final = Filter(make_subscription("", "*"))
_LATE_MS: Final = 500
_FROM_LAST: Final = 1
_SHIFTED: Final = ("OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_BADLY", "NO_MATCHED_LOGIC_QUEUE")


class _Asked(NamedTuple):
    header: PopLiteMessageRequest
    connection: object
    answer: Callable[[Frame], None]


@dataclass
class _LitePopped:
    records: list[bytes] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)


class LitePopper:
    """Answers POP requests, at once or when a queue is assigned to the client.

    `failed` gets the connection of a waiting request that was dropped because answering it failed. `pass_on` gets a
    queue whose client is no longer subscribed to it, and the client's group.
    """

    pass_on: Callable[[str, str, int], None]

    def __init__(
        self,
        services: Services,
        registry: Registry,
        orders: Orders,
        failed: Callable[[object, Exception], None],
    ) -> None:
        self._services = services
        self._registry = registry
        self._orders = orders
        self._failed = failed
        self._waits: Waits[_Asked] = Waits(services.scheduler)
        self.events = Events()
        self.handlers: Handlers = {RequestCode.POP_LITE_MESSAGE: self._pop}

    def waits(self, client_id: str) -> bool:
        return self._waits.count(_place(client_id)) > 0

    def _pop(self, request: Request) -> None:
        frame = request.frame.bare
        answer = partial(request.peer.answer, frame)
        now_ms = request.now_ms
        try:
            header = _REQUEST.read(with_born_time(request.fields, now_ms))
            self._check(header, request)
        except Refused as refused:
            fields = _RESPONSE.write(PopLiteMessageResponse(0, 0, 0))
            answer(Frame(refused.code, 0, remark=refused.text, ext_fields=fields))
            return
        asked = _Asked(header, request.peer, answer)
        self._try(asked, until_ms(header.born_ms, header.poll_ms, now_ms), now_ms)

    def _check(self, header: PopLiteMessageRequest, request: Request) -> None:
        """Raise `Refused` for a request that must not be carried out."""
        broker, group, topic = self._services.options.address.address, header.consumer_group, header.topic
        if request.now_ms - header.born_ms - header.poll_ms > _LATE_MS:
            raise Refused(ResponseCode.POLLING_TIMEOUT, f"the broker[{broker}] pop message is timeout too much")
        if header.messages_max > MESSAGES_MAX:
            text = f"the broker[{broker}] pop message's num is greater than {MESSAGES_MAX}"
            raise Refused(ResponseCode.INVALID_PARAMETER, text)
        if header.messages_max < 1 or not 0 <= header.invisible_ms <= HIDDEN_MS_MAX:
            text = f"the broker[{broker}] pops one message at least, for a time of {HIDDEN_MS_MAX} ms at most"
            raise Refused(ResponseCode.INVALID_PARAMETER, text)
        config = check_topic(self._services, topic, group, -1, request.peer, request.now_ms, "pop")
        if not is_lite_topic(config):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"the topic [{topic}] message type not match")
        check_staying(self._services.leaving, topic)
        if lite_group(self._services.groups.table.get(group)).bound_topic != topic:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"subscription bind topic not match, {group}")

    def _try(self, asked: _Asked, until: int | None, now_ms: int) -> bool:
        """Answer a request, or let it wait until a time; return True if it was answered with messages."""
        header = asked.header
        popped = self._take(header, now_ms)
        code = ResponseCode.SUCCESS
        if not popped.records:
            code = ResponseCode.POLLING_TIMEOUT
            place = _place(header.client_id)
            if until is not None and not self._waits.is_full(place):
                self._waits.add(place, Waiting(asked, asked.connection, until))
                return False
            if until is not None:
                code = ResponseCode.POLLING_FULL
        else:
            size = sum(map(len, popped.records))
            self._services.statistics.sent(header.topic, header.consumer_group, len(popped.records), size)
        asked.answer(_frame(code, header, popped, now_ms))
        return bool(popped.records)

    # -- messages

    def _take(self, header: PopLiteMessageRequest, now_ms: int) -> _LitePopped:
        client_id, popped = header.client_id, _LitePopped()
        subscriber = self._registry.get(client_id)
        if subscriber is None or (subscriber.group, subscriber.parent) != (header.consumer_group, header.topic):
            return popped
        self.events.ask(client_id, now_ms)
        while len(popped.records) < header.messages_max:
            queue = self.events.next(client_id, now_ms)
            if queue is None:
                break
            if subscriber.takes_all or queue in subscriber.queues:
                self._take_queue(header, queue, popped, now_ms)
            else:
                # The subscription has ended since the queue was assigned.
                self.pass_on(queue, subscriber.group, now_ms)
        return popped

    def _take_queue(self, header: PopLiteMessageRequest, queue: str, popped: _LitePopped, now_ms: int) -> None:
        services, group = self._services, header.consumer_group
        key = (queue, group, QUEUE_ID)
        if (queue, QUEUE_ID) not in services.store.queues or self._orders.is_blocked(key, header.attempt_id, now_ms):
            return
        offset = first_offset(services, queue, group, QUEUE_ID, _FROM_LAST)
        left = header.messages_max - len(popped.records)
        found = find_messages(services, queue, QUEUE_ID, offset, left, _EVERYTHING)
        if found.status in _SHIFTED:
            services.offsets.commit(queue, group, QUEUE_ID, found.next_offset)
            offset = found.next_offset
            found = find_messages(services, queue, QUEUE_ID, offset, left, _EVERYTHING)
        if not found.messages:
            return
        offsets = list(range(offset, offset + len(found.messages)))
        counts = self._orders.note(key, header.attempt_id, now_ms, header.invisible_ms, offsets)
        services.offsets.commit(queue, group, QUEUE_ID, offset)
        popped.records += [bytes(each) for each in found.messages]
        popped.counts += [counts.get(each, 0) for each in offsets]

    # -- waiting requests

    def wake(self, client_id: str, now_ms: int) -> None:
        waiting = self._waits.take(_place(client_id))
        if waiting is not None:
            self._again(waiting, waiting.until_ms, now_ms)

    def tick(self, now_ms: int) -> None:
        self._waits.end_over(now_ms, lambda waiting: self._again(waiting, None, self._services.scheduler.now_ms))

    def end_waits(self) -> None:
        nothing = Frame(ResponseCode.POLLING_TIMEOUT, 0, ext_fields=_RESPONSE.write(PopLiteMessageResponse(0, 0, 0)))
        self._waits.end_all(lambda waiting: waiting.request.answer(nothing))

    def disconnected(self, connection: object) -> None:
        self._waits.forget(connection)

    def _again(self, waiting: Waiting[_Asked], until: int | None, now_ms: int) -> None:
        try:
            self._try(waiting.request, until, now_ms)
        except Exception as error:
            self._failed(waiting.request.connection, error)


def _place(client_id: str) -> Place:
    """Return the key of a client's waiting requests; its id contains its group."""
    return Place(client_id, "", -1)


def _frame(code: ResponseCode, header: PopLiteMessageRequest, popped: _LitePopped, now_ms: int) -> Frame:
    counts = ";".join(map(str, popped.counts))
    response = PopLiteMessageResponse(now_ms, header.invisible_ms, ORDERED, order_count_info=counts)
    remark = "FOUND" if popped.records else "NO_MESSAGE_IN_QUEUE"
    return Frame(code, 0, remark=remark, ext_fields=_RESPONSE.write(response), body=b"".join(popped.records))
