"""Which messages a subscription takes: by tag (source: FilterAPI, ExpressionMessageFilter).

A broker compares the hash of a message's tag, which the consume queue has; two tags may share one, so clients compare
the tags themselves once more.
"""

from __future__ import annotations

from typing import Final

from formats.rocketmq.client_bodies import Subscription
from formats.rocketmq.java import string_hash

__all__ = ["ALL", "TAG", "TagFilter", "make_subscription"]

ALL: Final = "*"
TAG: Final = "TAG"


def make_subscription(topic: str, text: str, version: int = 0) -> Subscription:
    """The subscription that `text` names: `*`, or tags with `||` between them."""
    if text in ("", ALL):
        return Subscription(topic, ALL, sub_version=version)
    tags = [tag.strip() for tag in text.split("||") if tag.strip()]
    return Subscription(topic, text, TAG, version, tags, [string_hash(tag) for tag in tags])


class TagFilter:
    """Compares hashes of tags."""

    def __init__(self, subscription: Subscription) -> None:
        self._codes = None if subscription.sub_string == ALL else frozenset(subscription.code_set)

    def takes(self, tags_code: int) -> bool:
        """Whether a message with this code in the consume queue may be wanted."""
        return self._codes is None or tags_code in self._codes
