"""Spans of posts and of the processing of messages, which a session begins and ends.

A session is given the maker of spans; `bmqctl.client.tracing` makes OpenTelemetry's. The context of a post's span
travels in the properties of its message, as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

__all__ = ["Place", "Span", "Spans", "TracedPost", "check_spans"]

A = TypeVar("A")
A_contra = TypeVar("A_contra", contravariant=True)


class Place(NamedTuple):
    """The queue or topic, of `system`, to or from which messages go, and the group, if any."""

    system: str
    destination: str
    group: str = ""


class Span(Protocol):
    """A span that has begun. Only the first `end` counts."""

    def end(self, message_id: str = "", refusal: str = "", fault: BaseException | None = None) -> None:
        """End the span: successfully, with the broker's word for a `refusal`, or with a `fault`."""
        ...


@runtime_checkable
class Spans(Protocol):
    """Begins spans."""

    def begin_post(self, place: Place, size: int) -> tuple[Span, Mapping[str, str]]:
        """Begin the span of a post of `size` bytes; return it with the properties that carry its context."""
        ...

    def begin_processing(self, place: Place, message_id: str, size: int, properties: Mapping[str, object]) -> Span:
        """Begin the span of a message's processing, the current one until it ends."""
        ...


class Receiver(Protocol[A_contra]):
    """Takes the answer to a post."""

    def answered(self, answer: A_contra) -> None: ...


class TracedPost(Generic[A]):
    """The receiver of the answer to a post with a span; `read` gets id and refusal from an answer."""

    __slots__ = ("_read", "_receiver", "_span")

    def __init__(self, span: Span, receiver: Receiver[A], read: Callable[[A], tuple[str, str]]) -> None:
        self._span = span
        self._receiver = receiver
        self._read = read

    def answered(self, answer: A) -> None:
        """Take the answer; called by the session."""
        message_id, refusal = self._read(answer)
        self._span.end(message_id, refusal)
        self._receiver.answered(answer)

    def failed(self, fault: BaseException) -> None:
        self._span.end(fault=fault)


def check_spans(tracing: object) -> None:
    """Raise `ValueError` for an object that makes no spans; None is allowed."""
    if tracing is not None and not isinstance(tracing, Spans):
        raise ValueError(f"tracing is {tracing!r:.80}: expected a bmqctl.client.tracing.Tracing")
