"""Exceptions of the client library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from formats.bmq.codes import AckStatus
from formats.bmq.control.messages import Status

__all__ = [
    "Ack",
    "BatchFailed",
    "ClientError",
    "ConnectFailed",
    "PostFailed",
    "PostRefused",
    "PostUncertain",
    "QueueClosed",
    "QueueSuspended",
    "RequestRefused",
    "SessionEnded",
]


class Ack(NamedTuple):
    """The answer to one post. `status` is SUCCESS, or the reason for a refusal; `guid` identifies the message."""

    guid: bytes
    status: AckStatus


class ClientError(Exception):
    """Base class of the library's exceptions."""


class ConnectFailed(ClientError, OSError):
    """Failure to begin a session: no broker at the address, no trust in it, or a refusal; the text is the reason."""


class SessionEnded(ClientError):
    """Use of a session that has ended; the text is the reason."""


class QueueClosed(ClientError):
    """Use of a closed queue, or a queue's end that the client did not ask for; the text is the reason."""


class QueueSuspended(ClientError):
    """A post to a queue that is suspended while the host is not healthy."""


class RequestRefused(ClientError):
    """Refusal or timeout of a request about a queue; `status` has its category, code and message."""

    def __init__(self, what: str, status: Status) -> None:
        super().__init__(f"{what}: {status.message or 'no reason given'} ({status.category.name}, code {status.code})")
        self.status = status


class PostFailed(ClientError):
    """Base class for a post that was not acknowledged; `ack` is its answer."""

    def __init__(self, text: str, ack: Ack) -> None:
        super().__init__(text)
        self.ack = ack


class PostRefused(PostFailed):
    """Refusal of a message by the broker, which has not stored it; `ack.status` is the reason."""


class PostUncertain(PostFailed):
    """Lack of an answer to a post: the broker may or may not have stored the message."""


class BatchFailed(ClientError):
    """Failure of some posts of a batch: `failures` has the answers to these, in order of arrival."""

    def __init__(self, text: str, failures: Sequence[Ack]) -> None:
        super().__init__(text)
        self.failures = tuple(failures)
