"""Requests about the store: remove expired data, look into queues, and show the state of replication.

Source: AdminBrokerProcessor.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import Final

from broker.rocketmq.administration.retention import FileRetention
from broker.rocketmq.consuming.filters import Filter
from broker.rocketmq.consuming.sql import SqlError
from broker.rocketmq.remoting.requests import Handlers, Request, failure, success
from broker.rocketmq.tables.services import Services
from formats.rocketmq.lite import split_queue_name
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.clients import Subscription
from formats.rocketmq.remoting.bodies.inspection import QUEUE_ENTRIES, QueueEntries, QueueEntry
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.administration import QueryConsumeQueueRequest
from formats.rocketmq.remoting.headers.codec import read_header

__all__ = ["Upkeep"]

log = logging.getLogger("broker.rocketmq.retention")

# The maximum for an answer.
ENTRIES_MAX: Final = 10_000


class Upkeep:
    """Removes at once what would expire later, and shows the store's content."""

    def __init__(self, services: Services, retention: FileRetention) -> None:
        self._services = services
        self._retention = retention
        self.handlers: Handlers = {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self._clean_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: self._clean_topics,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self._delete_old,
            RequestCode.QUERY_CONSUME_QUEUE: self._query_queue,
            RequestCode.RESET_MASTER_FLUSH_OFFSET: self._reset_master,
        }

    def _clean_queues(self, request: Request) -> Frame:
        """Remove the entries of queues and index whose messages are no longer in the log.

        The ends of queues stay, and so their offsets: the original removes whole queues, and restarts them at 0.
        """
        self._services.store.drop_expired()
        return success()

    def _clean_topics(self, request: Request) -> Frame:
        for topic in {topic for topic, _ in self._services.store.queues}:
            lite = split_queue_name(topic)
            topics = self._services.topics
            if topics.get(topic if lite is None else lite[0]) is None and not topics.is_system(topic):
                self._services.store.delete_topic(topic)
                log.info("removed the queues of unknown topic %s", topic)
        return success()

    def _delete_old(self, request: Request) -> Frame:
        self._retention.remove_old(request.now_ms)
        return success()

    def _query_queue(self, request: Request) -> Frame:
        header = read_header(QueryConsumeQueueRequest, request.fields)
        queue = self._services.store.queues.get((header.topic or "", header.queue_id))
        if queue is None:
            return failure(ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{header.topic} is not exist!")
        entries, remark = None, None
        wanted, told = self._subscription(header)
        if queue.begin <= header.first < queue.end:
            matches = _matcher(wanted)
            last = min(queue.end, header.first + max(0, min(header.entries, ENTRIES_MAX)))
            entries = [
                QueueEntry(place, size, code, matches.takes(code) if matches is not None else False)
                for place, size, code in islice(queue.entries(header.first, last), ENTRIES_MAX)
            ]
        else:
            remark = f"Index {header.first} of {header.queue_id}@{header.topic} is not exist!"
        body = QUEUE_ENTRIES.write(QueueEntries(queue.end, queue.begin, entries, wanted, told))
        return Frame(ResponseCode.SUCCESS, 0, remark=remark, body=body)

    def _subscription(self, header: QueryConsumeQueueRequest) -> tuple[Subscription | None, str | None]:
        """Return the subscription of the request's group, and the text about its expression for the answer."""
        if not header.consumer_group:
            return None, None
        group = self._services.clients.consumers.get(header.consumer_group)
        wanted = None if group is None else group.subscriptions.get(header.topic or "")
        if wanted is None:
            return None, f"{header.consumer_group}@{header.topic} is not online!"
        if wanted.expression_type in ("TAG", ""):
            return wanted, "null"
        told = {"consumerGroup": header.consumer_group, "expression": wanted.sub_string, "topic": wanted.topic}
        return wanted, fastjson.dumps(told)

    def _reset_master(self, request: Request) -> Frame:
        """Accept a request that concerns replicas only, without effect."""
        return success()


def _matcher(wanted: Subscription | None) -> Filter | None:
    if wanted is None:
        return None
    try:
        return Filter(wanted)
    except SqlError:
        return None
