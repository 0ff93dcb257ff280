"""The captured calls of the Python and Node clients, made again: our broker answers as the original did.

Compared are the answers that hang on nothing but the request and the tables: routes, assignments, settings, heartbeats,
and the results of sending up to offsets and handles.
"""

from __future__ import annotations

from collections import Counter

import pytest

from broker.rocketmq.grpc.sending import consistent_hash
from formats.rocketmq.grpc.messages import Message, decode
from formats.rocketmq.java import string_hash
from tests.broker.rocketmq.grpc.grpc_golden_rig import first_answer, prepared
from tests.broker.rocketmq.grpc.served import Served
from tests.golden.rocketmq.grpc_calls import GRPC_CAPTURES, Call, calls

METHODS_COMPARED = ("QueryRoute", "Telemetry", "Heartbeat", "QueryAssignment", "NotifyClientTermination")


def answered(served: Served, call: Call) -> Message:
    """Make a captured call; the first answer."""
    headers = {name.replace("-", "_"): text for name, text in call.headers.items() if name.startswith("x-mq-")}
    served.client_id = headers.pop("x_mq_client_id")
    stream = served.client.open(call.method, x_mq_client_id=served.client_id, **headers)
    served.client.send(stream, call.requests[0])
    if call.method != "Telemetry":
        served.client.http.end_stream(stream)
    served.client.exchange()
    served.step()
    return served.answers(call.method, stream)[0]


@pytest.mark.parametrize("capture", GRPC_CAPTURES)
def test_answers_are_those_of_the_original(capture: str) -> None:
    found = [call for call in calls(capture) if call.requests and call.answers]
    served = prepared(found)
    seen: Counter[str] = Counter()
    for method in METHODS_COMPARED:
        for call in found:
            if call.method == method:
                assert answered(served, call) == first_answer(call), call.headers
                seen[method] += 1
    assert min(seen[method] for method in METHODS_COMPARED) > 0


@pytest.mark.parametrize("capture", GRPC_CAPTURES)
def test_results_of_sending_are_those_of_the_original(capture: str) -> None:
    found = [call for call in calls(capture) if call.requests and call.answers]
    served = prepared(found)
    sent = [call for call in found if call.method == "SendMessage"]
    for call in sent:
        ours, theirs = answered(served, call), first_answer(call)
        for answer in (ours, theirs):
            for entry in answer.entries:
                entry.offset = 0
                entry.recall_handle = "some" if entry.recall_handle else ""
        assert ours == theirs
    assert len(sent) > 20


def test_messages_of_a_group_go_to_the_queue_that_the_original_chose() -> None:
    chosen = set()
    for capture in GRPC_CAPTURES:
        found = [call for call in calls(capture) if call.requests and call.answers]
        routes = [first_answer(call).message_queues for call in found if call.method == "QueryRoute"]
        counts = {queues[0].topic.name: len(queues) for queues in routes if queues}
        for call in found:
            if call.method != "ReceiveMessage":
                continue
            for body in call.answers:
                message = decode("ReceiveMessageResponse", body).message
                system = message.system_properties
                if system.message_group and message.topic.name in counts:
                    chosen.add((system.message_group, counts[message.topic.name], system.queue_id))
    assert len(chosen) > 1
    for group, count, queue_id in chosen:
        assert consistent_hash(string_hash(group), count) == queue_id
