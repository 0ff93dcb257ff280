# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The life of a client's session, as a table.

NEGOTIATING --identified--> RUNNING --disconnect--> DISCONNECTED
     |                         |                         |
     +------- lost, violated --+-------------------------+--> CLOSED
"""

from __future__ import annotations

from enum import Enum

__all__ = ["TRANSITIONS", "SessionState", "SessionTrigger"]


class SessionState(Enum):
    NEGOTIATING = "negotiating"
    RUNNING = "running"
    DISCONNECTED = "disconnected"
    CLOSED = "closed"


class SessionTrigger(Enum):
    IDENTIFIED = "identified"
    DISCONNECT = "disconnect"
    ENDED = "lost, refused or violated"


TRANSITIONS: dict[tuple[SessionState, SessionTrigger], SessionState] = {
    (SessionState.NEGOTIATING, SessionTrigger.IDENTIFIED): SessionState.RUNNING,
    (SessionState.NEGOTIATING, SessionTrigger.ENDED): SessionState.CLOSED,
    (SessionState.RUNNING, SessionTrigger.DISCONNECT): SessionState.DISCONNECTED,
    (SessionState.RUNNING, SessionTrigger.ENDED): SessionState.CLOSED,
    (SessionState.DISCONNECTED, SessionTrigger.ENDED): SessionState.CLOSED,
    (SessionState.CLOSED, SessionTrigger.ENDED): SessionState.CLOSED,
}
