"""Queue offsets of messages in lite topics, assigned before storing (source: SendMessageProcessor, LmqDispatch)."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from broker.rocketmq.consuming.lite.attributes import is_lite_topic
from broker.rocketmq.remoting.requests import Refused
from broker.rocketmq.store.message_store import MessageStore
from formats.rocketmq.lite import (
    DISPATCH,
    DISPATCH_OFFSET,
    LITE_TOPIC,
    QUEUE_ID,
    fault_of_lite_topic,
    is_lite_queue,
    queue_name,
)
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from formats.rocketmq.remoting.codes import ResponseCode

__all__ = ["LITE_TOPICS_MAX", "LitePlaces", "check_staying", "drop_places"]

# For a broker (maxLmqConsumeQueueNum): each has files of its own.
LITE_TOPICS_MAX: Final = 20_000


class LitePlaces:
    """Assigns messages their offsets in lite topics, except for parents that are `leaving`; see `Services`."""

    def __init__(self, store: MessageStore, leaving: Container[str] = (), topics_max: int = LITE_TOPICS_MAX) -> None:
        self._store = store
        self._leaving = leaving
        self._topics_max = topics_max

    def place(self, topic: TopicConfig, properties: dict[str, str], *, is_immediate: bool) -> None:
        """Note in a message's properties its offset in the lite topic that they name, if any.

        `is_immediate`: the message can be consumed as soon as it is stored. Raises `Refused`.
        """
        lite_topic = properties.get(LITE_TOPIC)
        if lite_topic is None or not is_lite_topic(topic):
            return
        fault = fault_of_lite_topic(lite_topic)
        if fault is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        if not is_immediate:
            text = "a message of a lite topic is neither delayed nor part of a transaction"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, text)
        check_staying(self._leaving, topic.topic_name)
        name = queue_name(topic.topic_name, lite_topic)
        queue = self._store.queues.get((name, QUEUE_ID))
        if queue is None:
            self._check_count()
        properties[DISPATCH] = name
        properties[DISPATCH_OFFSET] = str(0 if queue is None else self._store.next_offset(queue))

    def _check_count(self) -> None:
        queues = self._store.queues
        if len(queues) >= self._topics_max and sum(is_lite_queue(name) for name, _ in queues) >= self._topics_max:
            text = f"the broker has {self._topics_max} lite topics, and takes no more"
            raise Refused(ResponseCode.LMQ_QUOTA_EXCEEDED, text)


def check_staying(leaving: Container[str], parent: str) -> None:
    """Raise `Refused` for a deleted parent topic whose lite topics are still being removed."""
    if parent in leaving:
        text = f"topic {parent} was deleted, and its lite topics are still being removed: try again"
        raise Refused(ResponseCode.SYSTEM_BUSY, text)


def drop_places(properties: dict[str, str]) -> None:
    """Remove the properties that only the broker may set on a message of a lite topic."""
    if LITE_TOPIC in properties:
        properties.pop(DISPATCH, None)
        properties.pop(DISPATCH_OFFSET, None)
