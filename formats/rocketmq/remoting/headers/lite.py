"""Headers of administrators' requests about lite topics (source: GetParentTopicInfoRequestHeader and its like)."""

from __future__ import annotations

from typing import NamedTuple

from formats.rocketmq.remoting.headers.codec import Int

__all__ = [
    "GetLiteClientInfoRequest",
    "GetLiteGroupInfoRequest",
    "GetLiteTopicInfoRequest",
    "GetParentTopicInfoRequest",
    "TriggerLiteDispatchRequest",
]


class GetParentTopicInfoRequest(NamedTuple):
    """A parent topic: the number of its lite topics, and its groups."""

    topic: str


class GetLiteTopicInfoRequest(NamedTuple):
    """A lite topic: its span, and its subscribers."""

    parent_topic: str | None = None
    lite_topic: str | None = None


class GetLiteClientInfoRequest(NamedTuple):
    """The lite topics that a client is subscribed to."""

    parent_topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    max_count: Int | None = None


class GetLiteGroupInfoRequest(NamedTuple):
    """The lag of a group in one lite topic, or in the topics with the greatest lag."""

    group: str
    lite_topic: str | None = None
    top_k: Int | None = None


class TriggerLiteDispatchRequest(NamedTuple):
    """Have the clients of a group, or one of them, check all lite topics that have messages for them."""

    group: str
    client_id: str | None = None
