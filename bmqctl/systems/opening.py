"""The only module that chooses a system: by the URI of a queue or a topic."""

from __future__ import annotations

from bmqctl.carrying.bridge.ends import DEFAULT_GROUP, BadBridge
from bmqctl.systems.system import End

__all__ = ["open_broker", "open_end"]


def open_end(text: str, broker: str, group: str = DEFAULT_GROUP, *, may_lack_topic: bool = False) -> End:
    """Parse `bmq://DOMAIN/QUEUE[?id=APP]` or `rocketmq://HOST:PORT/TOPIC[?...]`. Raises `BadBridge`.

    `broker` is the address of a queue's broker, `group` the group of a topic without one.
    """
    if text.startswith("bmq://"):
        from bmqctl.systems.blazingmq.end import QueueEnd

        return QueueEnd.parse(text, broker)
    if text.startswith("rocketmq://"):
        from bmqctl.systems.rocketmq.end import TopicEnd

        return TopicEnd.parse(text, may_lack_topic=may_lack_topic, group=group)
    raise BadBridge(f"{text}: expected bmq://DOMAIN/QUEUE or rocketmq://HOST:PORT/TOPIC")


def open_broker(host: str, port: int) -> End:
    """Return the place of all queues at a broker of BlazingMQ, to which a replay posts each message as its own."""
    from bmqctl.systems.blazingmq.end import QueueEnd

    return QueueEnd(host, port, "")
