"""Requests that ask whether there are messages to pop, and which (source: NotificationProcessor, PeekMessageProcessor).

A NOTIFICATION request may wait. The original wakes one waiting request per message; here all are woken, as one step of
the loop brings many messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from broker.rocketmq.consuming.filters import Filter, make_subscription
from broker.rocketmq.consuming.pop.checks import NO_CODE_SET, check_topic, peek_offset, with_born_time
from broker.rocketmq.consuming.pop.order import Orders
from broker.rocketmq.consuming.pop.waiting import Place, Waiting, Waits, until_ms
from broker.rocketmq.consuming.pulling import find_messages
from broker.rocketmq.remoting.requests import Handlers, Refused, Request
from broker.rocketmq.tables.services import Services
from formats.rocketmq.remoting.bodies.popping import MESSAGES_MAX
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import read_header, write_header
from formats.rocketmq.remoting.headers.consuming import (
    NotificationRequest,
    NotificationResponse,
    PeekMessageRequest,
    PollingInfoRequest,
    PollingInfoResponse,
    PopMessageResponse,
)
from formats.rocketmq.remoting.receipts import retry_topic

__all__ = ["Inquiries"]


# One in _RETRY_FIRST requests looks into the retry topic first.
_RETRY_FIRST: Final = 5
_SHIFTED: Final = ("OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_BADLY")


class _Asked(NamedTuple):
    header: NotificationRequest
    answer: Callable[[Frame], None]


class Inquiries:
    """Answers the requests. `count_waiting` counts the POP requests that wait at a place."""

    def __init__(
        self,
        services: Services,
        orders: Orders,
        choose: Callable[[int], int],
        count_waiting: Callable[[Place], int],
        failed: Callable[[object, Exception], None],
    ) -> None:
        self._services = services
        self._orders = orders
        self._choose = choose
        self._count_waiting = count_waiting
        self._failed = failed
        self._waits: Waits[_Asked] = Waits(services.scheduler)
        self.handlers: Handlers = {
            RequestCode.NOTIFICATION: self._notify,
            RequestCode.POLLING_INFO: self._polling_info,
            RequestCode.PEEK_MESSAGE: self._peek,
        }

    # -- notifications

    def _notify(self, request: Request) -> None:
        frame = request.frame.bare
        answer = partial(request.peer.answer, frame)
        now_ms = request.now_ms
        try:
            header = read_header(NotificationRequest, with_born_time(request.fields, now_ms))
            place = _place(header.topic, header.consumer_group, header.queue_id)
            check_topic(self._services, *place, request.peer, now_ms, "peeking")
        except Refused as refused:
            answer(_notified(refused.code, refused.text))
            return
        until = until_ms(header.born_ms, header.poll_ms, now_ms)
        has_messages = self._has_messages(header, now_ms)
        if has_messages or until is None or self._waits.is_full(place):
            is_full = not has_messages and until is not None
            answer(_notified(ResponseCode.SUCCESS, NO_CODE_SET, has_messages, is_full))
            return
        self._waits.add(place, Waiting(_Asked(header, answer), request.peer, until))

    def _has_messages(self, header: NotificationRequest, now_ms: int) -> bool:
        group, services = header.consumer_group, self._services
        topic, retry = services.topics.get(header.topic), services.topics.get(retry_topic(header.topic, group))
        if topic is None:
            return False
        numbers = range(topic.read_queue_nums) if header.queue_id < 0 else (header.queue_id,)
        if any(self._has_queue(header, header.topic, number, now_ms) for number in numbers):
            return True
        numbers = range(retry.read_queue_nums if retry is not None else 0)
        return any(self._has_queue(header, retry_topic(header.topic, group), number, now_ms) for number in numbers)

    def _has_queue(self, header: NotificationRequest, topic: str, queue_id: int, now_ms: int) -> bool:
        group = header.consumer_group
        # The original asks whether the topic's queue of that number is blocked, for a retry topic too.
        key = (header.topic, group, queue_id)
        if header.is_ordered and self._orders.is_blocked(key, header.attempt_id, now_ms):
            return False
        return self._services.store.span(topic, queue_id)[1] > peek_offset(self._services, topic, group, queue_id)

    def places(self, topic: str, queue_id: int) -> list[Place]:
        """Return the places where requests wait for a message in a queue."""
        return self._waits.places(topic, queue_id)

    def waking(self, places: list[Place]) -> Iterator[None]:
        """Answer the requests that wait at places, if there are messages."""
        for place in places:
            for waiting in self._waits.at(place):
                if self._waits.remove(place, waiting) and not self._again(waiting):
                    self._waits.add(place, waiting)
                yield

    def tick(self, now_ms: int) -> None:
        """Answer the requests whose time is over."""
        self._waits.end_over(now_ms, partial(self._again, is_over=True))

    def end_waits(self) -> None:
        """Answer all waiting requests with no messages."""
        nothing = _notified(ResponseCode.SUCCESS, NO_CODE_SET, False)
        self._waits.end_all(lambda waiting: waiting.request.answer(nothing))

    def disconnected(self, connection: object) -> None:
        """Forget the waiting requests of a closed connection."""
        self._waits.forget(connection)

    def _again(self, waiting: Waiting[_Asked], *, is_over: bool = False) -> bool:
        """Answer a request if there are messages or its time is over; return True if it was answered."""
        header, answer = waiting.request
        try:
            has_messages = self._has_messages(header, self._services.scheduler.now_ms)
            if not has_messages and not is_over:
                return False
            answer(_notified(ResponseCode.SUCCESS, NO_CODE_SET, has_messages))
        except Exception as error:
            self._failed(waiting.connection, error)
        return True

    # -- polling information

    def _polling_info(self, request: Request) -> Frame:
        header = read_header(PollingInfoRequest, request.fields)
        place = _place(header.topic, header.consumer_group, header.queue_id)
        try:
            check_topic(self._services, *place, request.peer, request.now_ms, "peeking")
        except Refused as refused:
            fields = write_header(PollingInfoResponse(0))
            return Frame(refused.code, 0, remark=refused.text, ext_fields=fields)
        fields = write_header(PollingInfoResponse(self._count_waiting(place)))
        return Frame(ResponseCode.SUCCESS, 0, remark=NO_CODE_SET, ext_fields=fields)

    def _peek(self, request: Request) -> Frame:
        header = read_header(PeekMessageRequest, request.fields)
        group = header.consumer_group
        try:
            config = check_topic(
                self._services, header.topic, group, header.queue_id, request.peer, request.now_ms, "peeking"
            )
            if not 1 <= header.messages_max <= MESSAGES_MAX:
                text = f"{header.messages_max} messages cannot be asked for, but 1 to {MESSAGES_MAX}"
                raise Refused(ResponseCode.INVALID_PARAMETER, text)
        except Refused as refused:
            fields = write_header(PopMessageResponse(0, 0, 0, 0))
            return Frame(refused.code, 0, remark=refused.text, ext_fields=fields)
        luck = self._choose(100)
        numbers = range(config.read_queue_nums) if header.queue_id < 0 else (header.queue_id,)
        queues = [(header.topic, (luck + number) % config.read_queue_nums) for number in numbers]
        if header.queue_id >= 0:
            queues = [(header.topic, header.queue_id)]
        name = retry_topic(header.topic, group)
        retry = self._services.topics.get(name)
        again = [(name, number) for number in range(retry.read_queue_nums if retry is not None else 0)]
        queues = again + queues if luck % _RETRY_FIRST == 0 else queues + again
        messages: list[bytes] = []
        rest = 0
        for topic, queue_id in queues:
            if topic == name and len(messages) >= header.messages_max:
                break
            offset = peek_offset(self._services, topic, group, queue_id)
            rest += max(0, self._services.store.span(topic, queue_id)[1] - offset)
            messages += self._look(topic, queue_id, offset, header.messages_max - len(messages))
        if messages:
            self._services.statistics.sent(header.topic, group, len(messages), sum(map(len, messages)))
        fields = write_header(PopMessageResponse(0, 0, 0, rest))
        if not messages:
            return Frame(ResponseCode.PULL_NOT_FOUND, 0, remark="NO_MESSAGE_IN_QUEUE", ext_fields=fields)
        return Frame(ResponseCode.SUCCESS, 0, remark="FOUND", ext_fields=fields, body=b"".join(messages))

    def _look(self, topic: str, queue_id: int, offset: int, most: int) -> list[bytes]:
        if most <= 0:
            return []
        services, everything = self._services, Filter(make_subscription(topic, "*"))
        found = find_messages(services, topic, queue_id, offset, most, everything)
        if found.status in _SHIFTED:
            found = find_messages(services, topic, queue_id, found.next_offset, most, everything)
        return [bytes(each) for each in found.messages]


def _place(topic: str, group: str, queue_id: int) -> Place:
    return Place(topic, group, max(queue_id, -1))


def _notified(code: ResponseCode, remark: str, has_message: bool = False, polling_full: bool = False) -> Frame:
    return Frame(code, 0, remark=remark, ext_fields=write_header(NotificationResponse(has_message, polling_full)))
