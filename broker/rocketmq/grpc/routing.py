"""Calls about routes: the queues of a topic, and the queues that a consumer reads (source: RouteActivity).

Clients keep their configured endpoints: every queue is at the address that the call states.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.rocketmq.consuming.lite.attributes import lite_group
from broker.rocketmq.grpc.brokers.backend import Topic
from broker.rocketmq.grpc.calling import Answer, Asked, Handlers
from broker.rocketmq.grpc.statuses import OK, CallRejected
from broker.rocketmq.grpc.validation import check_group, check_size, check_topic
from formats.rocketmq.grpc.codes import Code, Permission
from formats.rocketmq.grpc.messages import Message, make
from formats.rocketmq.remoting.bodies import routes as route_bodies
from formats.rocketmq.remoting.bodies.clients import GroupConfig
from formats.rocketmq.remoting.bodies.routes import QueueData

__all__ = ["RouteCalls"]

# The answer repeats the call's topic and endpoints for each queue.
_REPEATED_BYTES_MAX: Final = 4 << 10
_READ, _WRITE = int(route_bodies.Permission.READ), int(route_bodies.Permission.WRITE)


class RouteCalls:
    def __init__(self) -> None:
        self.handlers: Handlers = {"QueryRoute": self._route, "QueryAssignment": self._assign}

    def _route(self, asked: Asked, answer: Answer) -> None:
        request = asked.request
        _check_repeated(request)

        def found(topic: Topic) -> None:
            response = make("QueryRouteResponse", status=OK)
            for queues in topic.queues:
                broker = make("Broker", name=queues.broker_name, endpoints=request.endpoints)
                for number, permission in enumerate(_permissions(queues)):
                    response.message_queues.add(
                        topic=request.topic,
                        id=number,
                        permission=permission,
                        broker=broker,
                        accept_message_types=topic.types,
                    )
            answer(response)

        asked.client.find_topic(check_topic(request.topic), found)

    def _assign(self, asked: Asked, answer: Answer) -> None:
        request = asked.request
        _check_repeated(request)
        name, group = check_topic(request.topic), check_group(request.group)

        def found(topic: Topic) -> None:
            if not topic.readers():
                raise CallRejected(Code.FORBIDDEN, "no readable queue")
            asked.client.find_group(group, name, partial(assign, topic))

        def assign(topic: Topic, config: GroupConfig) -> None:
            response = make("QueryAssignmentResponse", status=OK)
            # Lite topics are consumed in order, but from no queue of their parent.
            in_order = config.consume_message_orderly and lite_group(config).bound_topic is None
            for queues in topic.queues:
                _add_assignments(response, request, queues, in_order=in_order)
            answer(response)

        asked.client.find_topic(name, found)


def _permissions(queues: QueueData) -> list[Permission]:
    reads, writes = queues.perm & _READ, queues.perm & _WRITE
    if not reads and not writes:
        return [Permission.NONE] * max(1, queues.read_queue_nums, queues.write_queue_nums)
    read_count = queues.read_queue_nums if reads else 0
    write_count = queues.write_queue_nums if writes else 0
    both = min(read_count, write_count)
    permissions = [Permission.READ] * (read_count - both) + [Permission.WRITE] * (write_count - both)
    return permissions + [Permission.READ_WRITE] * both


def _add_assignments(response: Message, request: Message, queues: QueueData, *, in_order: bool) -> None:
    """Add the queues of a broker that a consumer reads: each, or one for all."""
    if not queues.perm & _READ or not queues.read_queue_nums:
        return
    permission = Permission.READ_WRITE if queues.perm & _WRITE else Permission.READ
    broker = make("Broker", name=queues.broker_name, endpoints=request.endpoints)
    for number in range(queues.read_queue_nums) if in_order else (-1,):
        response.assignments.add().message_queue.CopyFrom(
            make("MessageQueue", topic=request.topic, id=number, permission=permission, broker=broker)
        )


def _check_repeated(request: Message) -> None:
    check_size(request.endpoints, "endpoints", _REPEATED_BYTES_MAX)
    check_size(request.topic, "topic", _REPEATED_BYTES_MAX)
