"""Calls about routes: the queues of a topic, and those that a consumer is to ask for messages (source: RouteActivity).

Clients stay with the endpoints that they were told to use: every queue is at the address that they ask about.
"""

from __future__ import annotations

from typing import Final

from broker.rocketmq.core.groups import Groups
from broker.rocketmq.core.options import BrokerOptions
from broker.rocketmq.core.topics import Topics
from broker.rocketmq.grpc.calling import Answer, Asked, Handlers
from broker.rocketmq.grpc.statuses import OK, Rejected
from broker.rocketmq.grpc.validation import check_group, check_size, check_topic
from formats.rocketmq import route_bodies
from formats.rocketmq.grpc.codes import Code, MessageType, Permission
from formats.rocketmq.grpc.messages import Message, make
from formats.rocketmq.route_bodies import TopicConfig

__all__ = ["Routing", "accepted_types", "find_topic"]

# The attribute of a topic that says which messages it takes.
_TYPE: Final = "message.type"
_MIXED: Final = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
# The answer repeats for each queue what the client says of the topic and of the way to the broker.
_REPEATED_BYTES_MAX: Final = 4 << 10
_READ, _WRITE = int(route_bodies.Permission.READ), int(route_bodies.Permission.WRITE)


def find_topic(topics: Topics, name: str) -> TopicConfig:
    """The topic of a name. Raises `Rejected`."""
    config = topics.get(name)
    if config is None:
        raise Rejected(Code.TOPIC_NOT_FOUND, f"No topic route info in name server for the topic: {name}")
    return config


def accepted_types(config: TopicConfig) -> tuple[MessageType, ...]:
    """The kinds of messages that a topic takes."""
    name = config.attributes.get(_TYPE, MessageType.NORMAL.name).upper()
    if name == "MIXED":
        return _MIXED
    return (MessageType[name] if name in MessageType.__members__ else MessageType.MESSAGE_TYPE_UNSPECIFIED,)


class Routing:
    """Answers from the tables of the broker."""

    def __init__(self, options: BrokerOptions, topics: Topics, groups: Groups) -> None:
        self._options = options
        self._topics = topics
        self._groups = groups
        self.handlers: Handlers = {"QueryRoute": self._route, "QueryAssignment": self._assign}

    def _route(self, asked: Asked, answer: Answer) -> None:
        request = asked.request
        _check_repeated(request)
        config = find_topic(self._topics, check_topic(request.topic))
        reads, writes = config.perm & _READ, config.perm & _WRITE
        read_count = config.read_queue_nums if reads else 0
        write_count = config.write_queue_nums if writes else 0
        both = min(read_count, write_count)
        permissions = [Permission.READ] * (read_count - both)
        permissions += [Permission.WRITE] * (write_count - both)
        permissions += [Permission.READ_WRITE] * both
        if not reads and not writes:
            permissions = [Permission.NONE] * max(1, config.read_queue_nums, config.write_queue_nums)
        types = accepted_types(config)
        broker = self._broker(request.endpoints)
        response = make("QueryRouteResponse", status=OK)
        for number, permission in enumerate(permissions):
            response.message_queues.add(
                topic=request.topic, id=number, permission=permission, broker=broker, accept_message_types=types
            )
        answer(response)

    def _assign(self, asked: Asked, answer: Answer) -> None:
        request = asked.request
        _check_repeated(request)
        topic, group = check_topic(request.topic), check_group(request.group)
        config = find_topic(self._topics, topic)
        if not config.perm & _READ or not config.read_queue_nums:
            raise Rejected(Code.FORBIDDEN, "no readable queue")
        known = self._groups.table.get(group)
        in_order = known is not None and known.consume_message_orderly
        permission = Permission.READ_WRITE if config.perm & _WRITE else Permission.READ
        broker = self._broker(request.endpoints)
        response = make("QueryAssignmentResponse", status=OK)
        for number in range(config.read_queue_nums) if in_order else (-1,):
            response.assignments.add().message_queue.CopyFrom(
                make("MessageQueue", topic=request.topic, id=number, permission=permission, broker=broker)
            )
        answer(response)

    def _broker(self, endpoints: Message) -> Message:
        return make("Broker", name=self._options.name, endpoints=endpoints)


def _check_repeated(request: Message) -> None:
    check_size(request.endpoints, "endpoints", _REPEATED_BYTES_MAX)
    check_size(request.topic, "topic", _REPEATED_BYTES_MAX)
