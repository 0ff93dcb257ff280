"""The states of a session and of a queue, each as one table.

A pair (state, input) that a table lacks cannot happen: it is a fault of ours, or a message that the broker should not
have sent, and `step` raises `Impossible`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, TypeVar

__all__ = ["QUEUE_TABLE", "SESSION_TABLE", "Impossible", "Queue", "QueueInput", "Session", "SessionInput", "step"]

S = TypeVar("S", bound=Enum)
I = TypeVar("I", bound=Enum)  # noqa: E741


class Impossible(Exception):
    """An input that must not happen in a state."""


class Session(Enum):
    """Source: `bmqimp::BrokerSession::State`."""

    NEW = auto()
    NEGOTIATING = auto()  # our identity is sent
    STARTED = auto()
    RECONNECTING = auto()  # there is no connection, and the session waits for one
    DISCONNECTING = auto()  # our last request is sent
    STOPPED = auto()


class SessionInput(Enum):
    START = auto()
    ACCEPTED = auto()
    DISCONNECT = auto()
    DISCONNECTED = auto()
    CUT = auto()  # the connection is lost, and the session outlives it
    LOST = auto()  # connection, heartbeats or patience; a refusal; bytes that are no protocol


SESSION_TABLE: Final[dict[tuple[Session, SessionInput], Session]] = {
    (Session.NEW, SessionInput.START): Session.NEGOTIATING,
    (Session.NEW, SessionInput.LOST): Session.STOPPED,
    (Session.NEGOTIATING, SessionInput.ACCEPTED): Session.STARTED,
    (Session.NEGOTIATING, SessionInput.CUT): Session.RECONNECTING,
    (Session.NEGOTIATING, SessionInput.LOST): Session.STOPPED,
    (Session.STARTED, SessionInput.DISCONNECT): Session.DISCONNECTING,
    (Session.STARTED, SessionInput.CUT): Session.RECONNECTING,
    (Session.STARTED, SessionInput.LOST): Session.STOPPED,
    (Session.RECONNECTING, SessionInput.START): Session.NEGOTIATING,
    (Session.RECONNECTING, SessionInput.LOST): Session.STOPPED,
    (Session.DISCONNECTING, SessionInput.DISCONNECTED): Session.STOPPED,
    (Session.DISCONNECTING, SessionInput.LOST): Session.STOPPED,
    (Session.STOPPED, SessionInput.LOST): Session.STOPPED,
}


class Queue(Enum):
    """Source: `bmqimp::QueueState`."""

    CLOSED = auto()
    OPENING = auto()  # openQueue is sent, or will be when there is a connection
    OPENING_STREAM = auto()  # and answered; configureStream is sent, so that messages come
    OPENED = auto()
    PENDING = auto()  # it was open when the connection was lost
    REOPENING = auto()  # openQueue is sent to the broker of the new connection
    REOPENING_STREAM = auto()
    CLOSING_STREAM = auto()  # configureStream without subscriptions is sent, so that messages stop coming
    CLOSING = auto()  # closeQueue is sent


class QueueInput(Enum):
    OPEN = auto()
    DONE = auto()  # the broker complied; further requests follow
    OPENED = auto()  # the broker complied with the last request of an opening
    FAILED = auto()  # the broker refused
    TIMED_OUT = auto()
    CONFIGURE = auto()
    CLOSE = auto()  # a queue that receives
    CLOSE_WRITER = auto()  # a queue that only posts: no stream to stop
    CUT = auto()  # the connection is lost, and the session outlives it
    REOPEN = auto()
    SESSION_ENDED = auto()


QUEUE_TABLE: Final[dict[tuple[Queue, QueueInput], Queue]] = {
    (Queue.CLOSED, QueueInput.OPEN): Queue.OPENING,
    (Queue.CLOSED, QueueInput.SESSION_ENDED): Queue.CLOSED,
    (Queue.OPENING, QueueInput.DONE): Queue.OPENING_STREAM,
    (Queue.OPENING, QueueInput.OPENED): Queue.OPENED,
    (Queue.OPENING, QueueInput.FAILED): Queue.CLOSED,
    (Queue.OPENING, QueueInput.TIMED_OUT): Queue.CLOSED,
    (Queue.OPENING, QueueInput.CUT): Queue.OPENING,
    (Queue.OPENING, QueueInput.SESSION_ENDED): Queue.CLOSED,
    (Queue.OPENING_STREAM, QueueInput.OPENED): Queue.OPENED,
    # The broker has a useless handle: close it, and report the refusal to the caller.
    (Queue.OPENING_STREAM, QueueInput.FAILED): Queue.CLOSING,
    (Queue.OPENING_STREAM, QueueInput.TIMED_OUT): Queue.CLOSING,
    # The next broker does not know this queue: open it from the start.
    (Queue.OPENING_STREAM, QueueInput.CUT): Queue.OPENING,
    (Queue.OPENING_STREAM, QueueInput.SESSION_ENDED): Queue.CLOSED,
    (Queue.OPENED, QueueInput.CONFIGURE): Queue.OPENED,
    (Queue.OPENED, QueueInput.DONE): Queue.OPENED,
    (Queue.OPENED, QueueInput.FAILED): Queue.OPENED,
    (Queue.OPENED, QueueInput.TIMED_OUT): Queue.OPENED,
    (Queue.OPENED, QueueInput.CLOSE): Queue.CLOSING_STREAM,
    (Queue.OPENED, QueueInput.CLOSE_WRITER): Queue.CLOSING,
    (Queue.OPENED, QueueInput.CUT): Queue.PENDING,
    (Queue.OPENED, QueueInput.SESSION_ENDED): Queue.CLOSED,
    (Queue.PENDING, QueueInput.REOPEN): Queue.REOPENING,
    (Queue.PENDING, QueueInput.CONFIGURE): Queue.PENDING,
    (Queue.PENDING, QueueInput.TIMED_OUT): Queue.PENDING,
    (Queue.PENDING, QueueInput.CLOSE): Queue.CLOSED,  # there is no broker to notify
    (Queue.PENDING, QueueInput.SESSION_ENDED): Queue.CLOSED,
    (Queue.REOPENING, QueueInput.DONE): Queue.REOPENING_STREAM,
    (Queue.REOPENING, QueueInput.OPENED): Queue.OPENED,
    (Queue.REOPENING, QueueInput.FAILED): Queue.CLOSED,
    (Queue.REOPENING, QueueInput.CUT): Queue.PENDING,
    (Queue.REOPENING, QueueInput.SESSION_ENDED): Queue.CLOSED,
    (Queue.REOPENING_STREAM, QueueInput.OPENED): Queue.OPENED,
    (Queue.REOPENING_STREAM, QueueInput.FAILED): Queue.CLOSING,
    (Queue.REOPENING_STREAM, QueueInput.CUT): Queue.PENDING,
    (Queue.REOPENING_STREAM, QueueInput.SESSION_ENDED): Queue.CLOSED,
    # The queue is closed whatever the answer about the stream.
    (Queue.CLOSING_STREAM, QueueInput.DONE): Queue.CLOSING,
    (Queue.CLOSING_STREAM, QueueInput.FAILED): Queue.CLOSING,
    (Queue.CLOSING_STREAM, QueueInput.TIMED_OUT): Queue.CLOSED,
    (Queue.CLOSING_STREAM, QueueInput.CUT): Queue.CLOSED,
    (Queue.CLOSING_STREAM, QueueInput.SESSION_ENDED): Queue.CLOSED,
    (Queue.CLOSING, QueueInput.DONE): Queue.CLOSED,
    (Queue.CLOSING, QueueInput.FAILED): Queue.CLOSED,
    (Queue.CLOSING, QueueInput.TIMED_OUT): Queue.CLOSED,
    (Queue.CLOSING, QueueInput.CUT): Queue.CLOSED,
    (Queue.CLOSING, QueueInput.SESSION_ENDED): Queue.CLOSED,
}


def step(table: dict[tuple[S, I], S], state: S, event: I) -> S:
    """The state after `event`. Raises `Impossible` if the table has no such row."""
    try:
        return table[state, event]
    except KeyError:
        raise Impossible(f"{type(state).__name__} {state.name} on {event.name}") from None
