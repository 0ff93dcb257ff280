"""The resources that a call concerns, and the actions on them of which one must be allowed.

Source: DefaultAuthorizationContextBuilder. A proxy finds them in the calls, as brokers see the proxy as the caller.
This process's broker finds them in its requests; see `access.needs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from broker.rocketmq.access.needs import Actions, Need, on_group, on_topic
from broker.rocketmq.grpc.statuses import CallRejected
from formats.rocketmq.grpc.codes import ClientType, Code
from formats.rocketmq.grpc.messages import Message

__all__ = ["NEEDS", "needs_of_call"]

_PUB: Final[Actions] = frozenset(("Pub",))
_SUB: Final[Actions] = frozenset(("Sub",))
_ROUTE: Final[Actions] = frozenset(("Pub", "Sub"))


def needs_of_call(name: str, request: Message) -> list[Need]:
    """Return the needs of a call, all of which must be met. Raises `CallRejected` if the request does not name them."""
    return NEEDS[name](request)


def _topics(resources: Iterable[Message], actions: Actions) -> list[Need]:
    names = dict.fromkeys(resource.name for resource in resources)
    if not all(map(str.strip, names)):
        raise CallRejected(Code.UNAUTHORIZED, "topic is null.")
    return [on_topic(name, actions) for name in names]


def _group(resource: Message) -> list[Need]:
    if not resource.name.strip():
        raise CallRejected(Code.UNAUTHORIZED, "group is null.")
    return [on_group(resource.name, _SUB)]


def _of_messages(request: Message) -> list[Need]:
    if not request.messages:
        raise CallRejected(Code.UNAUTHORIZED, "message is null.")
    return _topics((message.topic for message in request.messages), _PUB)


def _of_producer(request: Message) -> list[Need]:
    return _topics([request.topic], _PUB)


def _of_consumer(request: Message) -> list[Need]:
    return _group(request.group) + _topics([request.topic], _SUB)


def _of_receiver(request: Message) -> list[Need]:
    if not request.HasField("message_queue"):
        raise CallRejected(Code.UNAUTHORIZED, "messageQueue is null.")
    return _group(request.group) + _topics([request.message_queue.topic], _SUB)


def _of_route(request: Message) -> list[Need]:
    return _topics([request.topic], _ROUTE)


def _of_heartbeat(request: Message) -> list[Need]:
    return [] if request.client_type == ClientType.PRODUCER else _group(request.group)


def _of_farewell(request: Message) -> list[Need]:
    return _group(request.group) if request.group.name.strip() else []


def _of_settings(command: Message) -> list[Need]:
    """Return the needs of a client's settings: the topics and groups that they name."""
    if command.WhichOneof("command") != "settings":
        return []
    settings = command.settings
    if settings.WhichOneof("pub_sub") == "subscription":
        topics = (entry.topic for entry in settings.subscription.subscriptions)
        return _group(settings.subscription.group) + _topics(topics, _SUB)
    return _topics(settings.publishing.topics, _PUB)


NEEDS: Final[dict[str, Callable[[Message], list[Need]]]] = {
    "SendMessage": _of_messages,
    "RecallMessage": _of_producer,
    "EndTransaction": _of_producer,
    "ReceiveMessage": _of_receiver,
    "AckMessage": _of_consumer,
    "ChangeInvisibleDuration": _of_consumer,
    "ForwardMessageToDeadLetterQueue": _of_consumer,
    "SyncLiteSubscription": _of_consumer,
    "QueryRoute": _of_route,
    "QueryAssignment": _of_consumer,
    "Heartbeat": _of_heartbeat,
    "NotifyClientTermination": _of_farewell,
    "Telemetry": _of_settings,
}
