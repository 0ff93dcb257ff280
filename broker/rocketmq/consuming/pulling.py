# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Requests for the messages of a queue, with long polling.

Source: PullMessageProcessor, DefaultMessageStore.getMessage, PullRequestHoldService. A request that finds nothing may
be held until a message comes or its time is over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from enum import IntFlag
from functools import partial
from typing import Final, NamedTuple

from broker.rocketmq.consuming.commits import commit_pulled
from broker.rocketmq.consuming.filters import SQL92, TAG, Filter, subscription_of
from broker.rocketmq.consuming.sql import SqlError, SqlFilter
from broker.rocketmq.remoting.held import Held, Waiting
from broker.rocketmq.remoting.requests import Refused
from broker.rocketmq.remoting.scheduler import ITEM_UNITS, Scheduler
from broker.rocketmq.store.message_store import MessageStore
from broker.rocketmq.tables.services import Services
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.bodies.clients import BROADCASTING, GroupConfig, Subscription
from formats.rocketmq.remoting.bodies.routes import Permission, TopicConfig
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import codec_of
from formats.rocketmq.remoting.headers.consuming import PullMessageRequest, PullMessageResponse

__all__ = ["Found", "PullFlag", "Puller", "find_messages"]

log = logging.getLogger("broker.rocketmq.pulling")

_FAQ: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
# Maxima of messages in memory in an answer (maxTransferBytesOnMessageInMemory and its count).
TRANSFER_BYTES_MAX: Final = 256 << 10
TRANSFER_MESSAGES_MAX: Final = 32
# Maximum of entries that one request examines (maxFilterMessageSize).
LOOK_AT_MAX: Final = 16_000 // 20
FILTERS_MAX: Final = 256
HOLD_MS_MAX: Final = 600_000
# Further requests are answered at once.
HELD_MAX: Final = 100_000

REQUEST: Final = codec_of(PullMessageRequest)
RESPONSE: Final = codec_of(PullMessageResponse)


class PullFlag(IntFlag):
    """Bits of a pull request's system flags (source: PullSysFlag)."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16


# Plain integers: an operation on a member of an enumeration creates another member.
_COMMIT_OFFSET: Final = int(PullFlag.COMMIT_OFFSET)
_SUSPEND: Final = int(PullFlag.SUSPEND)
_SUBSCRIPTION: Final = int(PullFlag.SUBSCRIPTION)
_READ: Final = int(Permission.READ)


class Found(NamedTuple):
    """The content of a queue from an offset on. `status` is the original's word for it."""

    status: str
    next_offset: int
    begin: int
    end: int
    messages: list[memoryview] = []


def find_messages(services: Services, topic: str, queue_id: int, offset: int, most: int, wanted: Filter) -> Found:
    """Return messages of a queue from `offset` on, at most an answer's worth, from one file of the consume queue.

    Finds at least one message if one of the next `LOOK_AT_MAX` matches. With an expression, the search ends early when
    the step's budget is spent; `next_offset` is where to continue.
    """
    store = services.store
    queue = store.queues.get((topic, queue_id))
    if queue is None:
        return Found("NO_MATCHED_LOGIC_QUEUE", 0, 0, 0)
    begin, end = queue.begin, queue.end
    if end == 0:
        return Found("NO_MESSAGE_IN_QUEUE", 0, begin, end)
    if offset < begin:
        return Found("OFFSET_TOO_SMALL", begin, begin, end)
    if offset == end:
        return Found("OFFSET_OVERFLOW_ONE", end, begin, end)
    if offset > end:
        return Found("OFFSET_OVERFLOW_BADLY", end, begin, end)
    messages: list[memoryview] = []
    size = 0
    most = min(most, TRANSFER_MESSAGES_MAX)
    number = offset
    last = min(end, queue.file_end(offset), offset + max(LOOK_AT_MAX, most))
    data, codes, sql, scheduler = store.log.data, wanted.codes, wanted.sql, services.scheduler
    for place, record_size, tags_code in queue.entries(offset, last):
        if messages and (len(messages) >= most or size + record_size > TRANSFER_BYTES_MAX):
            break
        if sql is not None and number > offset and scheduler.is_spent:
            break
        number += 1
        if (codes is None or tags_code in codes) and (sql is None or _matches(store, place, sql, scheduler)):
            messages.append(data(place, record_size))
            size += record_size
    return Found("FOUND" if messages else "NO_MATCHED_MESSAGE", number, begin, end, messages)


def _matches(store: MessageStore, offset: int, sql: SqlFilter, scheduler: Scheduler) -> bool:
    properties = store.log.read(offset).record.properties
    scheduler.spend(sql.units(properties))
    return sql.takes(decode_properties(properties))


_CODES: Final = {
    "FOUND": ResponseCode.SUCCESS,
    "NO_MATCHED_MESSAGE": ResponseCode.PULL_RETRY_IMMEDIATELY,
    "OFFSET_OVERFLOW_ONE": ResponseCode.PULL_NOT_FOUND,
    "OFFSET_OVERFLOW_BADLY": ResponseCode.PULL_OFFSET_MOVED,
    "OFFSET_TOO_SMALL": ResponseCode.PULL_OFFSET_MOVED,
}


class _Asked:
    """A waiting request, and the function that sends its answer. Its offset moves past messages that do not match."""

    __slots__ = ("answer", "header")

    def __init__(self, header: PullMessageRequest, answer: Callable[[Frame], None]) -> None:
        self.header = header
        self.answer = answer


# An answer, the offset after the examined messages, and whether there are more.
_Tried = tuple[Frame, int, bool]


class Puller:
    """Answers pull requests, at once or when there are messages.

    `failed` gets the connection of a waiting request that was dropped because answering it failed. At most `held_max`
    requests wait. They are examined in slices; see `Scheduler`.
    """

    def __init__(
        self, services: Services, failed: Callable[[object, Exception], None], held_max: int = HELD_MAX
    ) -> None:
        self._services = services
        self._scheduler = services.scheduler
        self._failed = failed
        self._held_max = held_max
        self._waits: Held[tuple[str, int], _Asked] = Held(services.scheduler)
        self._filters: dict[tuple[str, str], tuple[Subscription, Filter]] = {}

    @property
    def held(self) -> int:
        return len(self._waits)

    def pull(self, fields: dict[str, str], connection: object, now_ms: int, answer: Callable[[Frame], None]) -> None:
        """Carry out PULL_MESSAGE or LITE_PULL_MESSAGE; call `answer` now or later."""
        header = REQUEST.read(fields)
        tried = self._try(header, now_ms, is_new=True)
        if tried is not None and tried[0].code != ResponseCode.PULL_NOT_FOUND:
            answer(tried[0])
            return
        has_room = self.held < self._held_max
        may_wait = header.system_flags & _SUSPEND and has_room
        if tried is None and not has_room:
            answer(Frame(ResponseCode.SYSTEM_BUSY, 0, remark="too many requests wait for messages"))
        elif tried is None or may_wait:
            wait_ms = min(header.suspend_timeout_ms, HOLD_MS_MAX) if may_wait else 0
            waiting = Waiting(_Asked(header, answer), connection, now_ms + max(0, wait_ms))
            self._waits.add((header.topic, header.queue_id), waiting)
            if tried is None:
                self._scheduler.add(connection, self._look_later(waiting))
        else:
            answer(tried[0])

    def arrived(self, topic: str, queue_id: int, now_ms: int) -> None:
        """Answer the requests that wait for messages of a queue, which has got one; a single one at once."""
        key, scheduler = (topic, queue_id), self._scheduler
        count = self._waits.count(key)
        if count == 1 and not scheduler.is_spent:
            waiting = self._waits.take(key)
            if waiting is not None:
                scheduler.spend(ITEM_UNITS)
                self._look_again(waiting, now_ms)
        elif count:
            scheduler.again(key, partial(self._wake, key))

    def expire(self, now_ms: int) -> None:
        self._waits.end_over(now_ms, lambda waiting: self._look_again(waiting, self._scheduler.now_ms))

    def disconnected(self, connection: object) -> None:
        self._waits.forget(connection)

    def _wake(self, key: tuple[str, int]) -> Iterator[None]:
        for waiting in self._waits.at(key):
            if self._waits.remove(key, waiting):
                self._look_again(waiting, self._scheduler.now_ms)
            yield

    def _look_later(self, waiting: Waiting[_Asked]) -> Iterator[None]:
        header = waiting.request.header
        if self._waits.remove((header.topic, header.queue_id), waiting):
            self._look_again(waiting, self._scheduler.now_ms)
        yield

    def _look_again(self, waiting: Waiting[_Asked], now_ms: int) -> None:
        asked = waiting.request
        try:
            tried = self._try(asked.header, now_ms, is_new=False)
            assert tried is not None
            frame, next_offset, has_more = tried
            code = frame.code
            if code not in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY) or (
                waiting.until_ms <= now_ms
            ):
                asked.answer(frame)
                return
            if code == ResponseCode.PULL_RETRY_IMMEDIATELY:
                asked.header = asked.header._replace(queue_offset=next_offset)
            self._waits.add((asked.header.topic, asked.header.queue_id), waiting)
            if has_more:
                self._scheduler.add(waiting.connection, self._look_later(waiting))
        except Exception as error:
            self._failed(waiting.connection, error)

    def _try(self, header: PullMessageRequest, now_ms: int, *, is_new: bool) -> _Tried | None:
        """Return the answer to a request; None if it needs a later step's budget."""
        try:
            group, topic, subscription = self._check(header, now_ms)
            if is_new and header.system_flags & _COMMIT_OFFSET and header.commit_offset >= 0:
                place = header.topic, header.consumer_group, header.queue_id
                commit_pulled(self._services, *place, header.commit_offset)
            if is_new and subscription.expression_type == SQL92 and self._scheduler.is_spent:
                return None
            wanted = self._filter(subscription)
        except Refused as refused:
            return Frame(refused.code, 0, remark=refused.text), 0, False
        except SqlError as error:
            log.info("group %s: the expression of a subscription cannot be used: %s", header.consumer_group, error)
            text = "parse the consumer's subscription failed"
            return Frame(ResponseCode.SUBSCRIPTION_PARSE_FAILED, 0, remark=text), 0, False
        found = find_messages(
            self._services,
            header.topic,
            header.queue_id,
            header.queue_offset,
            header.messages_max,
            wanted,
        )
        body = b"".join(found.messages)
        if body:
            self._services.statistics.sent(header.topic, header.consumer_group, len(found.messages), len(body))
            self._services.offsets.note_pulled(header.topic, header.consumer_group, header.queue_id, found.next_offset)
        return self._answer(header, group, topic, found, body), found.next_offset, found.next_offset < found.end

    def _answer(
        self, header: PullMessageRequest, group: GroupConfig, topic: TopicConfig, found: Found, body: bytes
    ) -> Frame:
        code = _CODES.get(found.status)
        if code is None:
            # There is no queue, or it never had a message: a request for its start may wait for one.
            code = ResponseCode.PULL_OFFSET_MOVED if header.queue_offset else ResponseCode.PULL_NOT_FOUND
        response = PullMessageResponse(
            self._suggested(header, group, found),
            found.next_offset,
            found.begin,
            found.end,
            topic_system_flags=topic.topic_sys_flag,
            group_system_flags=group.group_sys_flag,
        )
        return Frame(code, 0, remark=found.status, ext_fields=RESPONSE.write(response), body=body)

    def _suggested(self, header: PullMessageRequest, group: GroupConfig, found: Found) -> int:
        """Return the id of the broker of this name to ask next: a slave, if the group lags far."""
        options = self._services.options
        if not options.slave_read:
            return 0
        if found.messages:
            store = self._services.store
            last = store.queues[header.topic, header.queue_id].get(found.next_offset - 1).physical_offset
            if store.log.end - last > options.read_behind_bytes:
                return group.which_broker_when_consume_slowly
        return group.broker_id if options.broker_id == 0 else 0

    def _filter(self, subscription: Subscription) -> Filter:
        key = subscription.topic, subscription.sub_string
        known = self._filters.get(key)
        if known is not None and known[0] == subscription:
            return known[1]
        made = Filter(subscription, self._scheduler)
        if made.sql is not None:
            # `compile_sql` has a bounded cache of its own.
            return made
        if len(self._filters) >= FILTERS_MAX:
            self._filters.clear()
        self._filters[key] = subscription, made
        return made

    def _check(self, header: PullMessageRequest, now_ms: int) -> tuple[GroupConfig, TopicConfig, Subscription]:
        if not self._services.options.permission & _READ:
            text = f"the broker[{self._services.options.address.address}] pulling message is forbidden"
            raise Refused(ResponseCode.NO_PERMISSION, text)
        group = self._services.groups.find(header.consumer_group, now_ms)
        if group is None:
            text = f"{self._services.groups.missing(header.consumer_group)}, {_FAQ}"
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, text)
        if not group.consume_enable:
            raise Refused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {header.consumer_group}")
        topic = self._services.topics.get(header.topic)
        if topic is None:
            text = f"topic[{header.topic}] not exist, apply first please! {_FAQ}"
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, text)
        if not topic.perm & _READ:
            raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            text = (
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]"
            )
            raise Refused(ResponseCode.INVALID_PARAMETER, text)
        subscription = self._subscription(header, group)
        is_known = subscription.expression_type == SQL92 and self._services.options.property_filter
        if subscription.expression_type not in (TAG, "") and not is_known:
            text = f"The broker does not support consumer to filter message by {subscription.expression_type}"
            raise Refused(ResponseCode.SYSTEM_ERROR, text)
        return group, topic, subscription

    def _subscription(self, header: PullMessageRequest, config: GroupConfig) -> Subscription:
        if header.system_flags & _SUBSCRIPTION:
            text, version = header.subscription or "", header.subscription_version
            return subscription_of(header.topic, text, header.expression_type, version)
        group = self._services.clients.consumers.get(header.consumer_group)
        if group is None:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{_FAQ}")
        if not config.consume_broadcast_enable and group.message_model == BROADCASTING:
            text = f"the consumer group[{header.consumer_group}] can not consume by broadcast way"
            raise Refused(ResponseCode.NO_PERMISSION, text)
        known = group.subscriptions.get(header.topic)
        if known is None:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{_FAQ}")
        if known.sub_version < header.subscription_version:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return known
