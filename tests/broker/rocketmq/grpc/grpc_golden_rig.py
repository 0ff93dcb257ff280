"""Captured requests and answers of gRPC."""

from __future__ import annotations

from dataclasses import replace

from formats.rocketmq.grpc.codes import Code, MessageType
from formats.rocketmq.grpc.declarations import METHODS
from formats.rocketmq.grpc.messages import Message, decode
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.bodies.clients import GroupConfig
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from tests.broker.rocketmq.grpc.served import Served
from tests.broker.rocketmq.rig import OPTIONS, Rig
from tests.golden.rocketmq.grpc_calls import Call

SENT_MS = 1_795_320_000_000


def first_answer(call: Call) -> Message:
    return decode(METHODS[call.method].response, call.answers[0])


def first_request(call: Call) -> Message:
    return decode(METHODS[call.method].request, call.requests[0])


def prepared(found: list[Call]) -> Served:
    """A broker with the topics and groups that the original had, as its answers say."""
    rig = Rig(replace(OPTIONS, name="broker-a", address=Host("127.0.0.1", 10911)))
    served = Served(rig)
    rig.wall_ms = SENT_MS
    for call in found:
        if call.method == "QueryRoute" and first_answer(call).status.code == Code.OK:
            queues = first_answer(call).message_queues
            types = list(queues[0].accept_message_types)
            kind = "MIXED" if len(types) > 1 else MessageType(types[0]).name
            name = queues[0].topic.name
            attributes = {"message.type": kind}
            rig.topics.put(TopicConfig(name, len(queues), len(queues), attributes=attributes), rig.wall_ms)
        elif call.method == "Telemetry" and call.answers:
            settings = first_answer(call).settings
            if settings.subscription.fifo:
                name = settings.subscription.group.name
                rig.groups.put(GroupConfig(name, consume_message_orderly=True), rig.wall_ms)
    return served
