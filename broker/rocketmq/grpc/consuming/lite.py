"""Calls by which consumers subscribe to lite topics (source: ClientActivity, ClientProcessor, LiteSubscriptionService).

A change is made at every broker of the parent topic.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from broker.rocketmq.consuming.lite.attributes import QUOTA_SLACK, LiteGroup, lite_group
from broker.rocketmq.grpc.brokers.backend import Topic
from broker.rocketmq.grpc.calling import Answer, Asked, Handlers
from broker.rocketmq.grpc.statuses import OK, CallRejected, rejection
from broker.rocketmq.grpc.validation import check_group, check_lite_topic, check_topic
from formats.rocketmq.grpc.codes import ClientType, Code, LiteSubscriptionAction
from formats.rocketmq.grpc.messages import Message, make
from formats.rocketmq.remoting.bodies import lite as bodies
from formats.rocketmq.remoting.bodies.clients import GroupConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import read_header
from formats.rocketmq.remoting.headers.consuming import NotifyUnsubscribeLiteRequest

__all__ = ["LITE_TYPES", "LiteCalls", "check_kind", "farewell", "unsubscription"]

_ACTIONS: Final[dict[int, str]] = {
    LiteSubscriptionAction.PARTIAL_ADD: bodies.PARTIAL_ADD,
    LiteSubscriptionAction.PARTIAL_REMOVE: bodies.PARTIAL_REMOVE,
    LiteSubscriptionAction.COMPLETE_ADD: bodies.COMPLETE_ADD,
    LiteSubscriptionAction.COMPLETE_REMOVE: bodies.COMPLETE_REMOVE,
}
# The types of clients that subscribe to lite topics. The original's proxy knows only the first.
LITE_TYPES: Final = frozenset((ClientType.LITE_PUSH_CONSUMER, ClientType.LITE_SIMPLE_CONSUMER))
_TYPES: Final = {"policy": "POLICY", "offset": "OFFSET", "tail_n": "TAIL_N", "timestamp": "TIMESTAMP"}


class LiteCalls:
    def __init__(self) -> None:
        self.handlers: Handlers = {"SyncLiteSubscription": self._sync}

    def _sync(self, asked: Asked, answer: Answer) -> None:
        request = asked.request
        topic, group = check_topic(request.topic), check_group(request.group)
        action = _ACTIONS.get(request.action)
        if action is None:
            raise CallRejected(Code.BAD_REQUEST, f"unknown LiteSubscriptionAction: {request.action}")
        names = list(dict.fromkeys(request.lite_topic_set))
        if action == bodies.PARTIAL_ADD:
            for name in names:
                check_lite_topic(name)
        change = bodies.LiteSubscription(
            action,
            asked.client.client_id,
            group,
            topic,
            names,
            _option(request) if action == bodies.PARTIAL_ADD else None,
            request.version,
        )

        def found(config: GroupConfig) -> None:
            _check(change, lite_group(config))
            asked.client.find_topic(topic, partial(_ask_all, asked, change, answer))

        asked.client.find_group(group, topic, found)


def _option(request: Message) -> bodies.OffsetOption | None:
    """Return the requested offset at which a group begins, if any. Raises `CallRejected`."""
    if not request.HasField("offset_option"):
        return None
    option = request.offset_option
    kind = option.WhichOneof("offset_type")
    if kind is None:
        raise CallRejected(Code.ILLEGAL_OFFSET, "the offset option says no offset")
    value: int = getattr(option, kind)
    return bodies.OffsetOption(_TYPES[kind], value)


def _check(change: bodies.LiteSubscription, group: LiteGroup) -> None:
    _check_bound(change.group, group, change.topic)
    if len(change.lite_topic_set) > group.client_quota + QUOTA_SLACK:
        text = f"lite subscription quota exceeded: {group.client_quota}"
        raise CallRejected(Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, text)


def _check_bound(name: str, group: LiteGroup, topic: str) -> None:
    if group.bound_topic != topic:
        text = f"lite group {name} is expected to bind topic {group.bound_topic}, but actual is {topic}"
        raise CallRejected(Code.ILLEGAL_TOPIC, text)


def _ask_all(asked: Asked, change: bodies.LiteSubscription, answer: Answer, topic: Topic) -> None:
    brokers = list(dict.fromkeys(topic.readers()))
    if not brokers:
        raise CallRejected(Code.FORBIDDEN, "no readable queue")
    left = set(brokers)

    def done(broker: str, frame: Frame) -> None:
        if frame.code != ResponseCode.SUCCESS:
            raise rejection(frame)
        left.discard(broker)
        if not left:
            answer(make("SyncLiteSubscriptionResponse", status=OK))

    frame = _frame(change)
    for broker in brokers:
        asked.client.ask(broker, frame, partial(done, broker))


def _frame(change: bodies.LiteSubscription) -> Frame:
    body = bodies.SUBSCRIPTIONS.write(bodies.LiteSubscriptions([change]))
    return Frame(RequestCode.LITE_SUBSCRIPTION_CTL, 0, body=body)


def check_kind(settings: Message, group: LiteGroup, topic: str | None) -> None:
    """Raise `CallRejected` unless a consumer's kind, for lite topics or not, is its group's."""
    name, is_lite = settings.subscription.group.name, settings.client_type in LITE_TYPES
    if is_lite and group.bound_topic is None:
        raise CallRejected(Code.ILLEGAL_CONSUMER_GROUP, f"regular group cannot use LITE mode: {name}")
    if not is_lite and group.bound_topic is not None:
        raise CallRejected(Code.ILLEGAL_CONSUMER_GROUP, f"lite group must use LITE mode: {name}")
    if is_lite and topic is not None:
        _check_bound(name, group, topic)


def farewell(
    client_id: str,
    settings: Message | None,
    find_topic: Callable[[str, Callable[[Topic | CallRejected], None]], None],
    ask: Callable[[str, Frame], None],
) -> None:
    """Make brokers forget the lite topics of a client that leaves."""
    if settings is None or settings.client_type not in LITE_TYPES:
        return
    subscription = settings.subscription
    if not subscription.subscriptions:
        return
    topic = subscription.subscriptions[0].topic.name
    change = bodies.LiteSubscription(bodies.COMPLETE_REMOVE, client_id, subscription.group.name, topic)

    def found(known: Topic | CallRejected) -> None:
        for broker in dict.fromkeys(known.readers()) if isinstance(known, Topic) else ():
            ask(broker, _frame(change))

    find_topic(topic, found)


def unsubscription(client_id: str, frame: Frame) -> Message | None:
    """Make the notice that a client lost its subscription to a lite topic; None if it is for another client."""
    header = read_header(NotifyUnsubscribeLiteRequest, frame.ext_fields or {})
    if header.client_id != client_id:
        return None
    return make("TelemetryCommand", notify_unsubscribe_lite_command={"lite_topic": header.lite_topic})
