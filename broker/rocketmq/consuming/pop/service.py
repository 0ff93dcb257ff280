"""The broker's interface to POP consumption."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from broker.rocketmq.consuming.filters import Filter, make_subscription
from broker.rocketmq.consuming.pop.checks import (
    HIDDEN_MS_MAX,
    NO_CODE_SET,
    check_queue,
    check_topic,
    find_retries,
    peek_offset,
    with_born_time,
)
from broker.rocketmq.consuming.pop.order import ILLEGAL, UNCHANGED, Orders
from broker.rocketmq.consuming.pop.popping import Popper
from broker.rocketmq.consuming.pop.revival import Revival
from broker.rocketmq.consuming.pop.revive_log import ReviveLog
from broker.rocketmq.consuming.pop.waiting import ALL_QUEUES, Place, Waiting, Waits, until_ms
from broker.rocketmq.consuming.pulling import find_messages
from broker.rocketmq.delays.levels import Storing
from broker.rocketmq.remoting.requests import Handlers, Refused, Request, failure, success
from broker.rocketmq.tables import names
from broker.rocketmq.tables.services import Services
from formats.rocketmq.remoting.bodies.popping import (
    BATCH_ACK_REQUEST,
    MESSAGES_MAX,
    AckNote,
    BatchAck,
    BatchAckNote,
    CheckPoint,
    bits_of,
)
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import codec_of, read_header, write_header
from formats.rocketmq.remoting.headers.consuming import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    NotificationRequest,
    NotificationResponse,
    PeekMessageRequest,
    PollingInfoRequest,
    PollingInfoResponse,
    PopMessageResponse,
)
from formats.rocketmq.remoting.receipts import ORDERED, Receipt, parse_receipt, real_topic

__all__ = ["PopService"]

log = logging.getLogger("broker.rocketmq.popping")

_ACK = codec_of(AckMessageRequest)
_CHANGE = codec_of(ChangeInvisibleTimeRequest)
_CHANGED = codec_of(ChangeInvisibleTimeResponse)
_UNCHANGED: Final = ChangeInvisibleTimeResponse(0, 0, 0)

# One in _RETRY_FIRST requests looks into the retry topic first.
_RETRY_FIRST: Final = 5
_SHIFTED: Final = ("OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_BADLY")


class _Asked(NamedTuple):
    header: NotificationRequest
    answer: Callable[[Frame], None]


class Inquiries:
    """Answers requests whether there are messages to pop, and which.

    `count_waiting` counts the POP requests that wait at a place. A NOTIFICATION request may wait. The original wakes
    one waiting request per message; here all are woken, as one step of the loop brings many messages. Source:
    NotificationProcessor, PeekMessageProcessor.
    """

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
        topic = services.topics.get(header.topic)
        if topic is None:
            return False
        numbers = range(topic.read_queue_nums) if header.queue_id < 0 else (header.queue_id,)
        if any(self._has_queue(header, header.topic, number, now_ms) for number in numbers):
            return True
        return any(
            self._has_queue(header, retry.topic_name, number, now_ms)
            for retry in find_retries(services, header.topic, group)
            for number in range(retry.read_queue_nums)
        )

    def _has_queue(self, header: NotificationRequest, topic: str, queue_id: int, now_ms: int) -> bool:
        group = header.consumer_group
        # The original checks the topic's queue of that number, for a retry topic too.
        key = (header.topic, group, queue_id)
        if header.is_ordered and self._orders.is_blocked(key, header.attempt_id, now_ms):
            return False
        return self._services.store.span(topic, queue_id)[1] > peek_offset(self._services, topic, group, queue_id)

    def places(self, topic: str, queue_id: int) -> list[Place]:
        return self._waits.places(topic, queue_id)

    def waking(self, places: list[Place]) -> Iterator[None]:
        for place in places:
            for waiting in self._waits.at(place):
                if self._waits.remove(place, waiting) and not self._again(waiting):
                    self._waits.add(place, waiting)
                yield

    def tick(self, now_ms: int) -> None:
        self._waits.end_over(now_ms, partial(self._again, is_over=True))

    def end_waits(self) -> None:
        nothing = _notified(ResponseCode.SUCCESS, NO_CODE_SET, False)
        self._waits.end_all(lambda waiting: waiting.request.answer(nothing))

    def disconnected(self, connection: object) -> None:
        self._waits.forget(connection)

    def _again(self, waiting: Waiting[_Asked], *, is_over: bool = False) -> bool:
        """Answer a request if there are messages or its time is over; return whether it was answered."""
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
        retries = find_retries(self._services, header.topic, group)
        again = [(retry.topic_name, number) for retry in retries for number in range(retry.read_queue_nums)]
        queues = again + queues if luck % _RETRY_FIRST == 0 else queues + again
        messages: list[bytes] = []
        rest = 0
        for topic, queue_id in queues:
            if topic != header.topic and len(messages) >= header.messages_max:
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


class PopAcks:
    """Handles acknowledgements of popped messages, and changes of the time for which they are hidden.

    `freed` gets each queue in which a group may continue in order. Source: AckMessageProcessor,
    ChangeInvisibleTimeProcessor.
    """

    def __init__(
        self, services: Services, orders: Orders, revive_log: ReviveLog, freed: Callable[[str, str, int, int], None]
    ) -> None:
        self._services = services
        self._orders = orders
        self._log = revive_log
        self._freed = freed
        self.handlers: Handlers = {
            RequestCode.ACK_MESSAGE: self._acknowledge,
            RequestCode.BATCH_ACK_MESSAGE: self._acknowledge_batch,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self._change,
        }

    # -- acknowledgements

    def _acknowledge(self, request: Request) -> Frame:
        header = _ACK.read(request.fields)
        topic, group, queue_id, offset = header.topic, header.consumer_group, header.queue_id, header.offset
        check_queue(self._services, topic, queue_id, request.peer)
        begin, end = self._services.store.span(topic, queue_id)
        if not begin <= offset <= end:
            text = f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{begin}~{end}"
            raise Refused(ResponseCode.NO_MESSAGE, text)
        receipt = parse_receipt(header.extra_info)
        _check_group(group)
        if receipt.is_ordered:
            self._acknowledge_ordered(topic, group, queue_id, offset, receipt.popped_ms, request)
        else:
            self._note(topic, group, queue_id, offset, receipt, request.now_ms)
        return success()

    def _note(self, topic: str, group: str, queue_id: int, offset: int, receipt: Receipt, now_ms: int) -> None:
        note = AckNote(offset, receipt.start_offset, group, topic, queue_id, receipt.popped_ms, receipt.broker)
        self._log.put_ack(receipt.revive_queue, note, receipt.visible_ms, now_ms)

    def _acknowledge_ordered(
        self, topic: str, group: str, queue_id: int, offset: int, popped_ms: int, request: Request
    ) -> None:
        """Acknowledge a message that is consumed in order. Raises `Refused`."""
        if group not in self._services.groups.table:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, self._services.groups.missing(group))
        offsets, key = self._services.offsets, (topic, group, queue_id)
        old = offsets.get(topic, group, queue_id)
        if old is not None and offset < old:
            return
        following = self._orders.acknowledge(key, offset, popped_ms)
        if following == ILLEGAL:
            text = (
                f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{-1 if old is None else old}, "
                f"commit:{offset}, next:{following}, /{request.peer.host}"
            )
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, text)
        if following != UNCHANGED:
            offsets.commit(topic, group, queue_id, min(following, self._services.store.span(topic, queue_id)[1]))
            if not self._orders.is_blocked(key, None, request.now_ms):
                self._freed(topic, group, queue_id, request.now_ms)

    def _acknowledge_batch(self, request: Request) -> Frame:
        body = BATCH_ACK_REQUEST.read(request.body) if len(request.body) else None
        if body is None or not body.acks:
            return Frame(ResponseCode.NO_MESSAGE, 0)
        answer = success()
        for batch in body.acks:
            try:
                self._acknowledge_some(batch, body.broker_name or self._services.options.name, request)
            except Refused as refused:
                answer = failure(refused.code, refused.text)
        return answer

    def _acknowledge_some(self, batch: BatchAck, broker: str, request: Request) -> None:
        _check_group(batch.group)
        topic = real_topic(batch.topic, batch.group, batch.kind)
        group, queue_id = batch.group, batch.queue_id
        begin, end = self._services.store.span(topic, queue_id)
        offsets = [batch.start_offset + bit for bit in bits_of(batch.bits)]
        offsets = [offset for offset in offsets if begin <= offset < end]
        if batch.revive_queue == ORDERED:
            for offset in offsets:
                self._acknowledge_ordered(topic, group, queue_id, offset, batch.popped_ms, request)
        elif offsets:
            # The bounds are those of the numbers in a handle.
            terms = (batch.popped_ms, batch.invisible_ms, batch.revive_queue, batch.kind, broker)
            receipt = parse_receipt(str(Receipt(batch.start_offset, *terms)))
            note = BatchAckNote(
                -1, receipt.start_offset, group, topic, queue_id, receipt.popped_ms, receipt.broker, offsets
            )
            self._log.put_ack(receipt.revive_queue, note, receipt.visible_ms, request.now_ms)

    # -- changes of the invisible time

    def _change(self, request: Request) -> Frame:
        try:
            changed = self._change_time(request)
        except Refused as refused:
            return Frame(refused.code, 0, remark=refused.text, ext_fields=_CHANGED.write(_UNCHANGED))
        return Frame(ResponseCode.SUCCESS, 0, remark=NO_CODE_SET, ext_fields=_CHANGED.write(changed))

    def _change_time(self, request: Request) -> ChangeInvisibleTimeResponse:
        header = _CHANGE.read(request.fields)
        topic, group, queue_id, offset = header.topic, header.consumer_group, header.queue_id, header.offset
        check_queue(self._services, topic, queue_id, request.peer)
        begin, end = self._services.store.span(topic, queue_id)
        if not begin <= offset < end:
            raise Refused(ResponseCode.NO_MESSAGE, NO_CODE_SET)
        if not 0 <= header.invisible_ms <= HIDDEN_MS_MAX:
            text = f"a message cannot be hidden for {header.invisible_ms} ms, but for {HIDDEN_MS_MAX} ms at most"
            raise Refused(ResponseCode.INVALID_PARAMETER, text)
        receipt = parse_receipt(header.extra_info)
        _check_group(group)
        if receipt.is_ordered:
            return self._change_ordered(header, receipt, request.now_ms)
        now_ms = request.now_ms
        # The time must differ from that of the previous checkpoint, whose key in the revive log would be the same.
        popped_ms = now_ms + (now_ms == receipt.popped_ms)
        point = CheckPoint(offset, popped_ms, header.invisible_ms, 1, queue_id, topic, group, receipt.broker, [0])
        # The new checkpoint comes first: a crash in between may deliver the message twice, but does not lose it.
        self._log.put_checkpoint(receipt.revive_queue, point, now_ms)
        self._note(topic, group, queue_id, offset, receipt, now_ms)
        return ChangeInvisibleTimeResponse(popped_ms, header.invisible_ms, receipt.revive_queue)

    def _change_ordered(
        self, header: ChangeInvisibleTimeRequest, receipt: Receipt, now_ms: int
    ) -> ChangeInvisibleTimeResponse:
        key = (header.topic, header.consumer_group, header.queue_id)
        old = self._services.offsets.get(*key)
        if old is not None and header.offset < old:
            return _UNCHANGED
        visible_ms = now_ms + header.invisible_ms
        self._orders.change(key, header.offset, receipt.popped_ms, visible_ms)
        return ChangeInvisibleTimeResponse(receipt.popped_ms, visible_ms - receipt.popped_ms, receipt.revive_queue)


def _check_group(group: str) -> None:
    fault = names.fault_of_group(group)
    if fault is not None:
        raise Refused(ResponseCode.INVALID_PARAMETER, fault)


class PopService:
    """Carries out requests and due work."""

    def __init__(
        self,
        services: Services,
        orders: Orders,
        storing: Storing,
        choose: Callable[[int], int],
        failed: Callable[[object, Exception], None],
    ) -> None:
        self._scheduler = services.scheduler
        self._orders = orders
        revive_log = ReviveLog(services.options, storing)
        self._popper = popper = Popper(services, orders, revive_log, choose, failed)
        self._inquiries = Inquiries(services, orders, choose, popper.waits.count, failed)
        acks = PopAcks(services, orders, revive_log, self._freed)
        self._revival = Revival(services, storing)
        self.handlers: Handlers = {**popper.handlers, **self._inquiries.handlers, **acks.handlers}

    def arrived(self, topic: str, queue_id: int, now_ms: int) -> None:
        """Answer the requests that wait for messages of a queue, which has got one."""
        asking, popping = self._inquiries.places(topic, queue_id), self._popper.waits.places(topic, queue_id)
        if asking or popping:
            self._wake(("pop", topic, queue_id), asking, popping)

    def _freed(self, topic: str, group: str, queue_id: int, now_ms: int) -> None:
        places = [Place(topic, group, ALL_QUEUES), Place(topic, group, queue_id)]
        has_messages = self._popper.has_more(topic, group, queue_id)
        self._wake(("freed", topic, group, queue_id), places, places if has_messages else [])

    def _wake(self, key: tuple[str | int, ...], asking: list[Place], popping: list[Place]) -> None:
        # Notifications first: pops take the messages.
        self._scheduler.again(key, lambda: chain(self._inquiries.waking(asking), self._popper.waking(popping)))

    def disconnected(self, connection: object) -> None:
        self._popper.disconnected(connection)
        self._inquiries.disconnected(connection)

    def end_waits(self) -> None:
        """Answer all waiting requests: another broker becomes master, or this one restarts its work."""
        self._popper.end_waits()
        self._inquiries.end_waits()

    def revive(self, now_ms: int, *, is_behind: bool) -> bool:
        """Revive messages that were not acknowledged in time; return True if there is more to do.

        `is_behind`: due notes are not in the log yet.
        """
        return self._revival.give_out(now_ms, is_behind=is_behind)

    def tick(self, now_ms: int) -> None:
        """Answer requests whose time is over, and requests for queues that have become free."""
        for topic, group, queue_id in self._orders.freed(now_ms):
            self._freed(topic, group, queue_id, now_ms)
        self._popper.tick(now_ms)
        self._inquiries.tick(now_ms)
