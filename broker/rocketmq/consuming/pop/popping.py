"""Requests that pop messages of any queue and hide them from others for a while (source: PopMessageProcessor).

A checkpoint notes the popped messages before they are sent; the group's offset is then after them. Ordered pops write
none: the group's offset stays until they are acknowledged.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from broker.rocketmq.consuming.filters import SQL92, TAG, Filter, subscription_of
from broker.rocketmq.consuming.pop.checks import HIDDEN_MS_MAX, check_topic, find_retries, first_offset, with_born_time
from broker.rocketmq.consuming.pop.order import Orders
from broker.rocketmq.consuming.pop.revive_log import ReviveLog
from broker.rocketmq.consuming.pop.waiting import Place, Waiting, Waits, until_ms
from broker.rocketmq.consuming.pulling import find_messages
from broker.rocketmq.consuming.sql import SqlError
from broker.rocketmq.remoting.requests import Handlers, Refused, Request
from broker.rocketmq.tables.properties import encode
from broker.rocketmq.tables.services import Services
from formats.rocketmq.files.record import Magic, Record, decode_record, encode_record
from formats.rocketmq.grpc.codes import MessageType
from formats.rocketmq.message_types import topic_type
from formats.rocketmq.numbers import read_digits
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.bodies.popping import MESSAGES_MAX, CheckPoint
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import codec_of
from formats.rocketmq.remoting.headers.consuming import PopMessageRequest, PopMessageResponse
from formats.rocketmq.remoting.receipts import (
    ORDERED,
    RETRY_PREFIX,
    Receipt,
    kind_of_topic,
    offsets_info,
    start_info,
)

__all__ = ["Popper"]

log = logging.getLogger("broker.rocketmq.popping")

_REQUEST = codec_of(PopMessageRequest)
_RESPONSE = codec_of(PopMessageResponse)
_NOTHING: Final = PopMessageResponse(0, 0, 0, 0)

# The attribute of a group with the percentage of its requests that begin with the highest priority.
_FACTOR: Final = "priority.factor"
_FACTOR_DEFAULT: Final = 100
_LATE_MS: Final = 500
# Units of examining a queue; see `Scheduler`.
_QUEUE_UNITS: Final = 5_000
_QUEUE_OFFSET: Final = struct.Struct(">q")
_QUEUE_OFFSET_AT: Final = 20
_SHIFTED: Final = ("OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_BADLY")


class _Asked(NamedTuple):
    header: PopMessageRequest
    # None until the expression is compiled, perhaps in a later step.
    wanted: Filter | None
    connection: object
    answer: Callable[[Frame], None]


@dataclass
class _Popped:
    now_ms: int
    revive_queue: int
    records: list[bytes] = field(default_factory=list)
    count: int = 0
    rest: int = 0
    starts: list[str] = field(default_factory=list)
    offsets: list[str] = field(default_factory=list)
    counts: list[str] = field(default_factory=list)


class Popper:
    """Answers POP requests, at once or when there are messages.

    `failed` gets the connection of a waiting request that was dropped because answering it failed. `choose(n)` returns
    a number from 0 to n - 1.
    """

    def __init__(
        self,
        services: Services,
        orders: Orders,
        revive_log: ReviveLog,
        choose: Callable[[int], int],
        failed: Callable[[object, Exception], None],
    ) -> None:
        self._services = services
        self._orders = orders
        self._log = revive_log
        self._choose = choose
        self._failed = failed
        self._scheduler = services.scheduler
        self._waits: Waits[_Asked] = Waits(services.scheduler)
        self._checkpoints = 0
        self._is_full = False
        self.handlers: Handlers = {RequestCode.POP_MESSAGE: self._pop}

    @property
    def waits(self) -> Waits[_Asked]:
        return self._waits

    # -- requests

    def _pop(self, request: Request) -> None:
        frame = request.frame.bare
        answer = partial(request.peer.answer, frame)
        now_ms = request.now_ms
        try:
            header = _REQUEST.read(with_born_time(request.fields, now_ms))
            topic = self._check(header, request)
            is_later = header.expression_type == SQL92 and self._scheduler.is_spent
            if is_later and self._waits.is_full(_place(header)):
                raise Refused(ResponseCode.POLLING_FULL, "too many requests wait for messages")
            wanted = None if is_later else self._filter(header)
        except Refused as refused:
            answer(_refusal(refused))
            return
        until = until_ms(header.born_ms, header.poll_ms, now_ms)
        asked = _Asked(header, wanted, request.peer, answer)
        if wanted is not None:
            self._try(asked, wanted, topic, until, now_ms)
            return
        waiting = Waiting(asked, request.peer, now_ms if until is None else until)
        self._waits.add(_place(header), waiting)
        self._scheduler.add(request.peer, self._look_later(waiting))

    def _check(self, header: PopMessageRequest, request: Request) -> TopicConfig:
        broker = self._services.options.address.address
        if request.now_ms - header.born_ms - header.poll_ms > _LATE_MS:
            text = f"the broker[{broker}] pop message is timeout too much"
            raise Refused(ResponseCode.POLLING_TIMEOUT, text)
        if header.messages_max > MESSAGES_MAX:
            text = f"the broker[{broker}] pop message's num is greater than {MESSAGES_MAX}"
            raise Refused(ResponseCode.INVALID_PARAMETER, text)
        if header.messages_max < 1 or not 0 <= header.invisible_ms <= HIDDEN_MS_MAX:
            text = f"the broker[{broker}] pops one message at least, for a time of {HIDDEN_MS_MAX} ms at most"
            raise Refused(ResponseCode.INVALID_PARAMETER, text)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        return check_topic(self._services, topic, group, queue_id, request.peer, request.now_ms, "pop")

    def _try(self, asked: _Asked, wanted: Filter, topic: TopicConfig, until: int | None, now_ms: int) -> bool:
        """Answer a request, or let it wait until a time; True if it was answered, and there are more messages."""
        header = asked.header
        popped = self._take(header, wanted, topic, now_ms)
        place = _place(header)
        code = ResponseCode.SUCCESS
        if not popped.records:
            code = ResponseCode.POLLING_TIMEOUT
            if until is not None and not self._waits.is_full(place):
                self._waits.add(place, Waiting(asked._replace(wanted=wanted), asked.connection, until))
                self._give_rest(place, popped)
                return False
            if until is not None:
                code = ResponseCode.POLLING_FULL
        if popped.records:
            size = sum(map(len, popped.records))
            self._services.statistics.sent(header.topic, header.consumer_group, popped.count, size)
        self._give_rest(place, popped)
        asked.answer(_frame(code, header, popped))
        return popped.rest > 0 and code == ResponseCode.SUCCESS

    def _give_rest(self, place: Place, popped: _Popped) -> None:
        if popped.rest > 0 and place in self._waits:
            self._scheduler.again(place, lambda: self.waking([place]))

    # -- messages

    def _take(self, header: PopMessageRequest, wanted: Filter, topic: TopicConfig, now_ms: int) -> _Popped:
        luck, options = self._choose(100), self._services.options
        popped = _Popped(now_ms, ORDERED if header.is_ordered else self._next_revive_queue())
        by_priority = not header.is_ordered and self._is_by_priority(topic, header.consumer_group, luck)
        retry = None if header.is_ordered else self._choose_retry(header, luck)
        # If the group's factor has decided on the queues, it must not decide on the retry topic, too.
        chance = self._choose(100) if _has_priorities(topic) else luck
        retry_first = chance < (options.priority_retry_percent if by_priority else options.retry_percent)
        if by_priority:
            luck = 0
        if retry is not None and retry_first:
            self._take_topic(header, wanted, retry, luck, popped)
        if header.queue_id < 0:
            self._take_topic(header, wanted, topic, luck, popped)
        else:
            self._take_queue(header, wanted, topic.topic_name, header.queue_id, popped)
        if retry is not None and not retry_first and popped.count < header.messages_max:
            self._take_topic(header, wanted, retry, luck, popped)
        return popped

    def _choose_retry(self, header: PopMessageRequest, luck: int) -> TopicConfig | None:
        """Choose a retry topic, preferably one with messages: an answer has messages of at most one."""
        found = find_retries(self._services, header.topic, header.consumer_group)
        if len(found) > 1:
            group = header.consumer_group
            waiting = [
                each
                for each in found
                if any(self.has_more(each.topic_name, group, number) for number in range(each.read_queue_nums))
            ]
            found = waiting or found
        return found[luck % len(found)] if found else None

    def _is_by_priority(self, topic: TopicConfig, group: str, luck: int) -> bool:
        """Return whether a request begins with the queue of the highest priority, by the group's factor in percent."""
        if not _has_priorities(topic):
            return False
        config = self._services.groups.table.get(group)
        factor = read_digits(config.attributes.get(_FACTOR)) if config is not None else None
        return luck < (_FACTOR_DEFAULT if factor is None else factor)

    def _next_revive_queue(self) -> int:
        number = self._checkpoints % self._services.options.revive_queues
        self._checkpoints += 1
        return number

    def _take_topic(
        self, header: PopMessageRequest, wanted: Filter, topic: TopicConfig, luck: int, popped: _Popped
    ) -> None:
        count = topic.read_queue_nums
        numbers = range(count)
        for number in reversed(numbers) if self._services.options.highest_first else numbers:
            self._take_queue(header, wanted, topic.topic_name, (luck + number) % count, popped)

    def _take_queue(
        self, header: PopMessageRequest, wanted: Filter, topic: str, queue_id: int, popped: _Popped
    ) -> None:
        services = self._services
        self._scheduler.spend(_QUEUE_UNITS)
        group, now_ms = header.consumer_group, popped.now_ms
        offset = first_offset(services, topic, group, queue_id, header.init_mode)
        key = (topic, group, queue_id)
        if header.is_ordered and self._orders.is_blocked(key, header.attempt_id, now_ms):
            return
        left = header.messages_max - popped.count
        if left <= 0:
            popped.rest += max(0, services.store.span(topic, queue_id)[1] - offset)
            return
        found = find_messages(services, topic, queue_id, offset, left, wanted)
        if found.status in _SHIFTED:
            offset = found.next_offset
            services.offsets.commit(topic, group, queue_id, offset)
            found = find_messages(services, topic, queue_id, offset, left, wanted)
        if found.messages:
            # Copied, as the log may begin a new file, or grow, while the checkpoint is written.
            records = [bytes(each) for each in found.messages]
            found.messages.clear()
            offsets = [_QUEUE_OFFSET.unpack_from(each, _QUEUE_OFFSET_AT)[0] for each in records]
            if not self._note(header, key, offset, found.next_offset, offsets, popped):
                return
            popped.starts.append(start_info(topic, queue_id, offset))
            popped.offsets.append(offsets_info(topic, queue_id, offsets))
            if topic.startswith(RETRY_PREFIX) and topic != header.topic:
                records = [self._as_original(header, offset, record, popped) for record in records]
            popped.records += records
            popped.count += len(records)
        elif found.status == "NO_MATCHED_MESSAGE":
            services.offsets.commit(topic, group, queue_id, found.next_offset)
        popped.rest += max(0, found.end - found.next_offset)

    def _note(
        self,
        header: PopMessageRequest,
        key: tuple[str, str, int],
        offset: int,
        next_offset: int,
        offsets: list[int],
        popped: _Popped,
    ) -> bool:
        """Note the popped messages of a queue; return False if that is impossible now, and nothing is popped."""
        topic, group, queue_id = key
        services = self._services
        if header.is_ordered:
            popped.counts += self._orders.popped(key, header.attempt_id, popped.now_ms, header.invisible_ms, offsets)
            services.offsets.commit(topic, group, queue_id, offset)
            return True
        differences = [each - offset for each in offsets]
        point = CheckPoint(
            offset,
            popped.now_ms,
            header.invisible_ms,
            len(offsets),
            queue_id,
            topic,
            group,
            services.options.name,
            differences,
        )
        try:
            self._log.put_checkpoint(popped.revive_queue, point, popped.now_ms)
        except Refused as refused:
            if not self._is_full:
                log.error("nothing is popped, as no checkpoint can be stored: %s", refused.text)
            self._is_full = True
            return False
        self._is_full = False
        services.offsets.commit(topic, group, queue_id, next_offset)
        return True

    def _as_original(self, header: PopMessageRequest, offset: int, data: bytes, popped: _Popped) -> bytes:
        """Return the record of a retry topic's message as in its original topic, with its receipt handle."""
        try:
            record = decode_record(data)
            assert isinstance(record, Record)
            kind, name = kind_of_topic(record.topic), self._services.options.name
            terms = (popped.now_ms, header.invisible_ms, popped.revive_queue, kind, name)
            properties = decode_properties(record.properties)
            properties["POP_CK"] = str(Receipt(offset, *terms, record.queue_id, record.queue_offset))
            return encode_record(record._replace(version=Magic.V1, topic=header.topic, properties=encode(properties)))
        except ValueError as error:
            log.error("a message of the retry topic of %s is delivered unchanged: %s", header.topic, error)
            return data

    # -- waiting requests

    def waking(self, places: list[Place]) -> Iterator[None]:
        """Answer the requests that wait at places while there are messages at each."""
        for place in places:
            while (waiting := self._waits.take(place)) is not None:
                has_more = self._again(waiting, waiting.until_ms)
                yield
                if not has_more:
                    break

    def has_more(self, topic: str, group: str, queue_id: int) -> bool:
        begin, end = self._services.store.span(topic, queue_id)
        return end > (self._services.offsets.get(topic, group, queue_id) or begin)

    def tick(self, now_ms: int) -> None:
        self._waits.end_over(now_ms, lambda waiting: self._again(waiting, None))

    def end_waits(self) -> None:
        nothing = Frame(ResponseCode.POLLING_TIMEOUT, 0, ext_fields=_RESPONSE.write(_NOTHING))
        self._waits.end_all(lambda waiting: waiting.request.answer(nothing))

    def disconnected(self, connection: object) -> None:
        self._waits.forget(connection)

    def _look_later(self, waiting: Waiting[_Asked]) -> Iterator[None]:
        if self._waits.remove(_place(waiting.request.header), waiting):
            self._again(waiting, waiting.until_ms if waiting.until_ms > self._scheduler.now_ms else None)
        yield

    def _again(self, waiting: Waiting[_Asked], until: int | None) -> bool:
        asked = waiting.request
        try:
            topic = self._services.topics.get(asked.header.topic)
            if topic is None:
                raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{asked.header.topic}] not exist")
            wanted = self._filter(asked.header) if asked.wanted is None else asked.wanted
            return self._try(asked, wanted, topic, until, self._scheduler.now_ms)
        except Refused as refused:
            asked.answer(_refusal(refused))
        except Exception as error:
            self._failed(asked.connection, error)
        return True

    def _filter(self, header: PopMessageRequest) -> Filter:
        """Return the filter of a request. Raises `Refused`."""
        text, kind = header.expression or "*", header.expression_type
        try:
            if header.expression and kind not in (None, "", TAG, SQL92):
                raise SqlError(f"{kind} is no kind of expression")
            return Filter(subscription_of(header.topic, text, kind if header.expression else TAG), self._scheduler)
        except SqlError as error:
            log.info("group %s: the expression of a POP cannot be used: %s", header.consumer_group, error)
            text = "parse the consumer's subscription failed"
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, text) from None


def _has_priorities(topic: TopicConfig) -> bool:
    return topic_type(topic.attributes) == MessageType.PRIORITY.name


def _refusal(refused: Refused) -> Frame:
    return Frame(refused.code, 0, remark=refused.text, ext_fields=_RESPONSE.write(_NOTHING))


def _place(header: PopMessageRequest) -> Place:
    return Place(header.topic, header.consumer_group, max(header.queue_id, -1))


def _frame(code: ResponseCode, header: PopMessageRequest, popped: _Popped) -> Frame:
    response = PopMessageResponse(
        popped.now_ms,
        header.invisible_ms,
        popped.revive_queue,
        popped.rest,
        ";".join(popped.starts),
        ";".join(popped.offsets),
        ";".join(popped.counts) if header.is_ordered else None,
    )
    remark = "FOUND" if popped.records else "NO_MESSAGE_IN_QUEUE"
    return Frame(code, 0, remark=remark, ext_fields=_RESPONSE.write(response), body=b"".join(popped.records))
