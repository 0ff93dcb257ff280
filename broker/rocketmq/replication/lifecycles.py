"""State tables for both ends of a replication stream, and for a broker with a controller."""

from __future__ import annotations

from enum import Enum

__all__ = [
    "COPY_TRANSITIONS",
    "EPOCH_COPY_TRANSITIONS",
    "MEMBER_TRANSITIONS",
    "SLAVE_TRANSITIONS",
    "CopyEvent",
    "CopyState",
    "MemberEvent",
    "MemberState",
    "SlaveEvent",
    "SlaveState",
]


class CopyState(Enum):
    """The states of a slave's connection, at its master."""

    WAITING = "connected, has said nothing"
    GREETED = "was told the epochs of this log"
    COPYING = "gets the log"
    CLOSED = "closed"


class CopyEvent(Enum):
    """The events of a slave's connection, at its master."""

    INTRODUCED = "introduced itself"
    REPORTED = "reported an offset of the log"
    REFUSED = "reported what cannot be"
    SILENT = "is silent"
    LOST = "lost"


COPY_TRANSITIONS: dict[tuple[CopyState, CopyEvent], CopyState] = {
    (CopyState.WAITING, CopyEvent.REPORTED): CopyState.COPYING,
    (CopyState.WAITING, CopyEvent.REFUSED): CopyState.CLOSED,
    (CopyState.WAITING, CopyEvent.SILENT): CopyState.CLOSED,
    (CopyState.WAITING, CopyEvent.LOST): CopyState.CLOSED,
    (CopyState.COPYING, CopyEvent.REPORTED): CopyState.COPYING,
    (CopyState.COPYING, CopyEvent.REFUSED): CopyState.CLOSED,
    (CopyState.COPYING, CopyEvent.SILENT): CopyState.CLOSED,
    (CopyState.COPYING, CopyEvent.LOST): CopyState.CLOSED,
}


# In the form with epochs a slave introduces itself first, and again if the answer takes long.
EPOCH_COPY_TRANSITIONS: dict[tuple[CopyState, CopyEvent], CopyState] = {
    (CopyState.WAITING, CopyEvent.INTRODUCED): CopyState.GREETED,
    (CopyState.WAITING, CopyEvent.REFUSED): CopyState.CLOSED,
    (CopyState.WAITING, CopyEvent.SILENT): CopyState.CLOSED,
    (CopyState.WAITING, CopyEvent.LOST): CopyState.CLOSED,
    (CopyState.GREETED, CopyEvent.INTRODUCED): CopyState.GREETED,
    (CopyState.GREETED, CopyEvent.REPORTED): CopyState.COPYING,
    (CopyState.GREETED, CopyEvent.REFUSED): CopyState.CLOSED,
    (CopyState.GREETED, CopyEvent.SILENT): CopyState.CLOSED,
    (CopyState.GREETED, CopyEvent.LOST): CopyState.CLOSED,
    (CopyState.COPYING, CopyEvent.REPORTED): CopyState.COPYING,
    (CopyState.COPYING, CopyEvent.REFUSED): CopyState.CLOSED,
    (CopyState.COPYING, CopyEvent.SILENT): CopyState.CLOSED,
    (CopyState.COPYING, CopyEvent.LOST): CopyState.CLOSED,
}


class SlaveState(Enum):
    ALONE = "knows no master"
    PAUSING = "waits before it dials"
    DIALING = "dials its master"
    FOLLOWING = "takes its master's log"
    STOPPED = "stopped"


class SlaveEvent(Enum):
    MASTER = "another master is known"
    DUE = "the pause is over"
    CONNECTED = "connected"
    FAILED = "not reached"
    LOST = "lost or refused"
    STOP = "stop"


# A new master is dialed at once, or when the dialing under way has ended.
SLAVE_TRANSITIONS: dict[tuple[SlaveState, SlaveEvent], SlaveState] = {
    (SlaveState.ALONE, SlaveEvent.MASTER): SlaveState.DIALING,
    (SlaveState.ALONE, SlaveEvent.STOP): SlaveState.STOPPED,
    (SlaveState.PAUSING, SlaveEvent.MASTER): SlaveState.DIALING,
    (SlaveState.PAUSING, SlaveEvent.DUE): SlaveState.DIALING,
    (SlaveState.PAUSING, SlaveEvent.STOP): SlaveState.STOPPED,
    (SlaveState.DIALING, SlaveEvent.MASTER): SlaveState.DIALING,
    (SlaveState.DIALING, SlaveEvent.CONNECTED): SlaveState.FOLLOWING,
    (SlaveState.DIALING, SlaveEvent.FAILED): SlaveState.PAUSING,
    (SlaveState.DIALING, SlaveEvent.STOP): SlaveState.STOPPED,
    (SlaveState.FOLLOWING, SlaveEvent.MASTER): SlaveState.PAUSING,
    (SlaveState.FOLLOWING, SlaveEvent.LOST): SlaveState.PAUSING,
    (SlaveState.FOLLOWING, SlaveEvent.STOP): SlaveState.STOPPED,
}


class MemberState(Enum):
    """The states of a broker with a controller."""

    NAMELESS = "has no id"
    APPLYING = "applies for an id"
    NAMED = "has an id, and is not registered"
    REGISTERED = "is registered, and nobody is master that may be"
    LEADING = "is master"
    FOLLOWING = "is the slave of a master"
    STOPPED = "stopped"


class MemberEvent(Enum):
    """The events of a broker with a controller."""

    OFFERED = "an id is free"
    DENIED = "the id is another broker's"
    GRANTED = "the id is this broker's"
    REGISTERED = "the controller knows the broker and its address"
    FORGOTTEN = "the controller does not know the broker"
    APPOINTED = "this broker is master"
    LED = "another broker is master"
    STOP = "stop"


# A broker registers again with a controller that has forgotten it. It keeps its role meanwhile, as when no controller
# can be reached, and its id for good.
MEMBER_TRANSITIONS: dict[tuple[MemberState, MemberEvent], MemberState] = {
    (MemberState.NAMELESS, MemberEvent.OFFERED): MemberState.APPLYING,
    (MemberState.NAMELESS, MemberEvent.STOP): MemberState.STOPPED,
    (MemberState.APPLYING, MemberEvent.DENIED): MemberState.NAMELESS,
    (MemberState.APPLYING, MemberEvent.GRANTED): MemberState.NAMED,
    (MemberState.APPLYING, MemberEvent.STOP): MemberState.STOPPED,
    (MemberState.NAMED, MemberEvent.REGISTERED): MemberState.REGISTERED,
    (MemberState.NAMED, MemberEvent.STOP): MemberState.STOPPED,
    (MemberState.REGISTERED, MemberEvent.FORGOTTEN): MemberState.NAMED,
    (MemberState.REGISTERED, MemberEvent.APPOINTED): MemberState.LEADING,
    (MemberState.REGISTERED, MemberEvent.LED): MemberState.FOLLOWING,
    (MemberState.REGISTERED, MemberEvent.STOP): MemberState.STOPPED,
    (MemberState.LEADING, MemberEvent.FORGOTTEN): MemberState.LEADING,
    (MemberState.LEADING, MemberEvent.APPOINTED): MemberState.LEADING,
    (MemberState.LEADING, MemberEvent.LED): MemberState.FOLLOWING,
    (MemberState.LEADING, MemberEvent.STOP): MemberState.STOPPED,
    (MemberState.FOLLOWING, MemberEvent.FORGOTTEN): MemberState.FOLLOWING,
    (MemberState.FOLLOWING, MemberEvent.APPOINTED): MemberState.LEADING,
    (MemberState.FOLLOWING, MemberEvent.LED): MemberState.FOLLOWING,
    (MemberState.FOLLOWING, MemberEvent.STOP): MemberState.STOPPED,
}
