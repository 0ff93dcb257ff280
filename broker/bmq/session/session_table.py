"""The life of a client's session, as a table.

NEGOTIATING --identified--> RUNNING --disconnect--> DISCONNECTED
     |                         |                         |
     +------- lost, violated --+-------------------------+--> CLOSED
"""

from __future__ import annotations

from enum import Enum

__all__ = ["TRANSITIONS", "SessionState", "Trigger"]


class SessionState(Enum):
    NEGOTIATING = "negotiating"
    RUNNING = "running"
    DISCONNECTED = "disconnected"
    CLOSED = "closed"


class Trigger(Enum):
    IDENTIFIED = "identified"
    DISCONNECT = "disconnect"
    ENDED = "lost, refused or violated"


TRANSITIONS: dict[tuple[SessionState, Trigger], SessionState] = {
    (SessionState.NEGOTIATING, Trigger.IDENTIFIED): SessionState.RUNNING,
    (SessionState.NEGOTIATING, Trigger.ENDED): SessionState.CLOSED,
    (SessionState.RUNNING, Trigger.DISCONNECT): SessionState.DISCONNECTED,
    (SessionState.RUNNING, Trigger.ENDED): SessionState.CLOSED,
    (SessionState.DISCONNECTED, Trigger.ENDED): SessionState.CLOSED,
    (SessionState.CLOSED, Trigger.ENDED): SessionState.CLOSED,
}
