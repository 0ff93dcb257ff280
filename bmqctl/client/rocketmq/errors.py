"""Exceptions of the client library that are RocketMQ's own."""

from __future__ import annotations

from collections.abc import Sequence

from bmqctl.client.errors import ClientError

__all__ = ["BatchFailed", "ConsumerClosed", "PostFailed", "PostRefused", "PostUncertain", "RequestRefused"]


class RequestRefused(ClientError):
    """Refusal of a request about a topic or a group, or lack of a broker that answers it; the text is the reason."""


class ConsumerClosed(ClientError):
    """Use of a consumer that is closed."""


class PostFailed(ClientError):
    """Base class for a message that is not known to be stored; `message_id` identifies it."""

    def __init__(self, text: str, message_id: str) -> None:
        super().__init__(text)
        self.message_id = message_id


class PostRefused(PostFailed):
    """Refusal of a message by the brokers, none of which has stored it."""


class PostUncertain(PostFailed):
    """Lack of an answer to a post: a broker may or may not have stored the message."""


class BatchFailed(ClientError):
    """Failure of some posts of a batch: `failures` has the reason of each."""

    def __init__(self, text: str, failures: Sequence[PostFailed]) -> None:
        super().__init__(text)
        self.failures = tuple(failures)
