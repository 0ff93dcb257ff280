"""Requests about groups' progress in the queues of topics (source: AdminBrokerProcessor)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.rocketmq.consuming.commits import is_commit
from broker.rocketmq.remoting.long_answers import ITEM_UNITS, Answering, LongAnswers
from broker.rocketmq.remoting.requests import Handlers, Refused, Request, failure, success, with_body
from broker.rocketmq.tables.services import Services
from formats.rocketmq.remoting.bodies.clients import MessageQueue, Subscription
from formats.rocketmq.remoting.bodies.inspection import (
    CORRECTIONS,
    GROUP_SUBSCRIPTION,
    TIME_SPANS,
    Corrections,
    GroupSubscription,
    QueueTimes,
    TimeSpans,
)
from formats.rocketmq.remoting.bodies.statistics import (
    GroupProgress,
    progress_items,
    write_all_consume_stats,
    write_consume_stats,
)
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers import administration as headers
from formats.rocketmq.remoting.headers.codec import read_header

__all__ = ["Progress"]

# The original's answer for a queue in which the group is ahead of the others.
_AHEAD: Final = (1 << 63) - 1

# Queues of a topic that are examined before others may be served.
QUEUES_OF_ITEM: Final = 64
# Units of a commit; see `Scheduler.spend`.
_COMMIT_UNITS: Final = 8_000


class Progress:
    """Shows groups' offsets beside the ends of queues, and copies offsets between groups."""

    def __init__(self, services: Services, answers: LongAnswers) -> None:
        self._services = services
        self._answers = answers
        self.handlers: Handlers = {
            RequestCode.GET_CONSUME_STATS: self._consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self._all_consume_stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self._time_spans,
            RequestCode.QUERY_CORRECTION_OFFSET: self._corrections,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self._subscription,
            RequestCode.CLONE_GROUP_OFFSET: self._clone,
        }

    def _consume_stats(self, request: Request) -> Frame | None:
        header = read_header(headers.GetConsumeStatsRequest, request.fields)
        group = header.consumer_group
        wanted = list(dict.fromkeys(topic for topic in (header.topic_list or "").split(";") if topic))
        if not wanted:
            wanted = [header.topic] if header.topic else self._services.offsets.topics(group)
        return self._answers.begin(request, self._find_stats(wanted, group, request.now_ms))

    def _find_stats(self, topics: list[str], group: str, now_ms: int) -> Answering:
        items: list[str] = []
        per_second = 0.0
        for topic in topics:
            for queues in self._progress(topic, group):
                items += progress_items(queues)
                yield
            per_second += self._rate(topic, group, now_ms)
            yield
        return with_body(write_consume_stats(items, per_second).encode())

    def _all_consume_stats(self, request: Request) -> Frame | None:
        return self._answers.begin(
            request,
            self._find_all_stats(
                read_header(headers.GetBrokerConsumeStatsRequest, request.fields).is_order, request.now_ms
            ),
        )

    def _find_all_stats(self, is_ordered: bool, now_ms: int) -> Answering:
        found: dict[str, list[str]] = {}
        left = in_flight = 0
        for group in list(self._services.groups.table):
            texts = found[group] = []
            for topic in self._services.offsets.topics(group):
                if self._is_consumed(topic, group) and not (is_ordered and not self._is_ordered(topic)):
                    items: list[str] = []
                    for queues in self._progress(topic, group):
                        items += progress_items(queues)
                        for each in queues.values():
                            left += each.broker_offset - each.consumer_offset
                            in_flight += each.pull_offset - each.consumer_offset
                        yield
                    texts.append(write_consume_stats(items, self._rate(topic, group, now_ms)))
                yield
            yield
        return with_body(write_all_consume_stats(str(self._services.options.address), found, left, in_flight))

    def _is_ordered(self, topic: str) -> bool:
        config = self._services.topics.get(topic)
        return config is not None and config.order

    def _is_consumed(self, topic: str, group: str) -> bool:
        """Return whether a topic exists, and a group's present consumers, if any, subscribe to it."""
        known = self._services.clients.consumers.get(group)
        has_others = known is not None and bool(known.subscriptions)
        return self._services.topics.get(topic) is not None and not (has_others and self._wanted(topic, group) is None)

    def _wanted(self, topic: str, group: str) -> Subscription | None:
        known = self._services.clients.consumers.get(group)
        return None if known is None else known.subscriptions.get(topic)

    def _rate(self, topic: str, group: str, now_ms: int) -> float:
        return self._services.statistics.rate("GROUP_GET_NUMS", f"{topic}@{group}", now_ms)

    def _progress(self, topic: str, group: str) -> Iterator[dict[MessageQueue, GroupProgress]]:
        """Yield a group's progress in the queues of a topic, `QUEUES_OF_ITEM` at a time."""
        config = self._services.topics.get(topic)
        count = config.read_queue_nums if config is not None else 0
        for begin in range(0, count, QUEUES_OF_ITEM):
            found = {}
            for queue_id in range(begin, min(count, begin + QUEUES_OF_ITEM)):
                _, end = self._services.store.span(topic, queue_id)
                offset = self._services.offsets.get(topic, group, queue_id) or 0
                last_ms = max(0, self._services.store.stored_ms(topic, queue_id, offset - 1)) if offset else 0
                pulled = self._services.offsets.pulled(topic, group, queue_id)
                found[self._queue(topic, queue_id)] = GroupProgress(end, offset, pulled, last_ms)
            self._services.scheduler.spend(len(found) * ITEM_UNITS)
            yield found

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(self._services.options.name, queue_id, topic)

    def _time_spans(self, request: Request) -> Frame:
        header = read_header(headers.QueryConsumeTimeSpanRequest, request.fields)
        topic, store = header.topic, self._services.store
        config = self._services.topics.get(topic)
        if config is None:
            return failure(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        found = []
        for queue_id in range(config.write_queue_nums):
            begin, end = store.span(topic, queue_id)
            offset = self._services.offsets.get(topic, header.group, queue_id) or 0
            first_ms = store.stored_ms(topic, queue_id, begin)
            last_ms = store.stored_ms(topic, queue_id, end - 1)
            consumed_ms = store.stored_ms(topic, queue_id, offset - 1) if offset > 0 else first_ms
            next_ms = store.stored_ms(topic, queue_id, offset)
            delay_ms = request.now_ms - next_ms if next_ms >= 0 else 0
            found.append(QueueTimes(self._queue(topic, queue_id), first_ms, last_ms, consumed_ms, delay_ms))
        return with_body(TIME_SPANS.write(TimeSpans(found)))

    def _corrections(self, request: Request) -> Frame | None:
        return self._answers.begin(
            request, self._find_corrections(read_header(headers.QueryCorrectionOffsetRequest, request.fields))
        )

    def _find_corrections(self, header: headers.QueryCorrectionOffsetRequest) -> Answering:
        without = {each for each in (header.filter_groups or "").split(",") if each}
        found: dict[int, int] = {}
        for group in self._services.offsets.groups(header.topic):
            if group not in without:
                for queue_id, offset in self._services.offsets.queues(header.topic, group).items():
                    found[queue_id] = min(offset, found.get(queue_id, offset))
                yield
        for queue_id, offset in self._services.offsets.queues(header.topic, header.compare_group).items():
            if found.get(queue_id, 0) > offset:
                found[queue_id] = _AHEAD
        return with_body(CORRECTIONS.write(Corrections(found)))

    def _subscription(self, request: Request) -> Frame:
        header = read_header(headers.QuerySubscriptionByConsumerRequest, request.fields)
        wanted = self._wanted(header.topic or "", header.group)
        return with_body(GROUP_SUBSCRIPTION.write(GroupSubscription(header.group, header.topic, wanted)))

    def _clone(self, request: Request) -> Frame | None:
        return self._answers.begin(
            request, self._copy(request, read_header(headers.CloneGroupOffsetRequest, request.fields))
        )

    def _copy(self, request: Request, header: headers.CloneGroupOffsetRequest) -> Answering:
        offsets, group = self._services.offsets, header.dest_group
        if self._services.groups.find(group, request.now_ms) is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, self._services.groups.missing(group))
        for topic in [header.topic] if header.topic else offsets.topics(header.src_group):
            known = self._services.topics.get(topic) is not None
            if known and (header.offline or self._is_consumed(topic, header.src_group)):
                for queue_id, offset in offsets.queues(topic, header.src_group).items():
                    if is_commit(self._services, topic, group, queue_id, offset):
                        offsets.commit(topic, group, queue_id, offset)
                    self._services.scheduler.spend(_COMMIT_UNITS)
            yield
        return success()
