"""Subscriptions of a consumer, from requests of both forms (source: bmqp::ConversionUtil)."""

from __future__ import annotations

from typing import Final

from broker.bmq.queue.handles import Refusal
from broker.bmq.queue.routing import Stream, Subscription
from formats.bmq.control.messages import (
    ConsumerInfo,
    Expression,
    ExpressionVersion,
    QueueStreamParameters,
    StatusCategory,
    StreamParameters,
)
from formats.bmq.control.messages import Subscription as SubscriptionInfo

__all__ = ["make_subscriptions", "modern_parameters"]

# bmqp::Protocol::k_CONSUMER_PRIORITY_INVALID
PRIORITY_INVALID: Final = -(1 << 31)
INVALID_PRIORITY: Final = "Attempting to configure stream with invalid priority."


def modern_parameters(old: QueueStreamParameters) -> StreamParameters:
    """Convert the older form of a stream's parameters to one subscription, or none (bmqp::ConversionUtil)."""
    info = old.sub_id_info
    subscriptions: tuple[SubscriptionInfo, ...] = ()
    if old.consumer_priority_count > 0:
        consumer = ConsumerInfo(
            max_unconfirmed_messages=old.max_unconfirmed_messages,
            max_unconfirmed_bytes=old.max_unconfirmed_bytes,
            consumer_priority=old.consumer_priority,
            consumer_priority_count=old.consumer_priority_count,
        )
        sub_id = info.sub_id if info else 0
        subscriptions = (SubscriptionInfo(s_id=sub_id, expression=Expression(text=""), consumers=(consumer,)),)
    if info is None:
        return StreamParameters(subscriptions=subscriptions)
    return StreamParameters(app_id=info.app_id, subscriptions=subscriptions)


def make_subscriptions(stream: Stream, parameters: StreamParameters) -> list[Subscription]:
    """Make the subscriptions of a configure request. Raises `Refusal` for one that cannot be served."""
    found = []
    for subscription in parameters.subscriptions:
        expression = subscription.expression
        text = expression.text if expression.version is not ExpressionVersion.UNDEFINED else ""
        for consumer in subscription.consumers:
            if consumer.consumer_priority == PRIORITY_INVALID:
                if consumer.consumer_priority_count:
                    raise Refusal(StatusCategory.UNKNOWN, INVALID_PRIORITY, -1)
                continue  # an older client's form of taking nothing
            if consumer.consumer_priority_count <= 0:
                raise Refusal(StatusCategory.UNKNOWN, INVALID_PRIORITY, -1)
            found.append(
                Subscription(
                    stream,
                    subscription.s_id,
                    consumer.consumer_priority,
                    _limit(consumer.max_unconfirmed_messages),
                    _limit(consumer.max_unconfirmed_bytes),
                    text,
                    consumer.consumer_priority_count,
                )
            )
    return found


def _limit(given: int) -> int:
    """Return the limit that a request means: one message is in flight where it is below 0 (source: QueueHandle).

    The reference compares a limit only after it has delivered a message: with -1 it delivers the next one after each
    confirm. Below that it delivers no second one until the stream is configured again; here all are like -1.
    """
    return given if given >= 0 else 1
