"""Requests to a proxy with access control, and their refusal."""

from __future__ import annotations

from typing import Any

from formats.rocketmq.grpc.codes import ClientType, Code
from formats.rocketmq.grpc.messages import Message, make
from tests.broker.rocketmq.grpc.grpc_service_rig import consumer, endpoints, resource
from tests.broker.rocketmq.grpc.served import Served, message


def requests(served: Served) -> dict[str, Message]:
    """A request of each call, about topic `t` and group `g`."""
    topic, group = resource("t"), resource("g")
    both = {"topic": topic, "group": group}
    return {
        "SendMessage": make("SendMessageRequest", messages=[message()]),
        "RecallMessage": make("RecallMessageRequest", topic=topic, recall_handle="x"),
        "EndTransaction": make("EndTransactionRequest", topic=topic, transaction_id="x", resolution=1),
        "ReceiveMessage": served.receive_request(),
        "AckMessage": make("AckMessageRequest", **both),
        "ChangeInvisibleDuration": make("ChangeInvisibleDurationRequest", **both, receipt_handle="x"),
        "ForwardMessageToDeadLetterQueue": make("ForwardMessageToDeadLetterQueueRequest", **both, receipt_handle="x"),
        "SyncLiteSubscription": make("SyncLiteSubscriptionRequest", **both),
        "QueryRoute": make("QueryRouteRequest", topic=topic, endpoints=endpoints()),
        "QueryAssignment": make("QueryAssignmentRequest", **both, endpoints=endpoints()),
        "Heartbeat": make("HeartbeatRequest", group=group, client_type=ClientType.PUSH_CONSUMER),
        "NotifyClientTermination": make("NotifyClientTerminationRequest", group=group),
        "Telemetry": make("TelemetryCommand", settings=consumer()),
    }


def is_denied(served: Served, name: str, request: Message | None = None) -> bool:
    """Return whether a call is denied, of its usual request or of another."""
    request = request or requests(served)[name]
    if name == "Telemetry":
        stream, answers = served.tell(request.settings)
        return not answers and served.client.status(stream) == "3"
    answers = served.answers(name, served.begin(name, request))
    return bool(answers and answers[0].status.code == Code.UNAUTHORIZED)


def rename(request: Message, kind: str, name: str) -> None:
    """Give the topic or the group of a request another name."""
    for holder in _holders(request):
        if kind in {field.name for field in holder.DESCRIPTOR.fields}:
            getattr(holder, kind).name = name


def _holders(request: Message) -> list[Any]:
    """The parts of a request that may have a topic or a group."""
    fields = {field.name for field in request.DESCRIPTOR.fields}
    found = [request, *(request.messages if "messages" in fields else ())]
    if "message_queue" in fields:
        found.append(request.message_queue)
    if "settings" in fields:
        found += [request.settings.subscription, *request.settings.subscription.subscriptions]
    return found
