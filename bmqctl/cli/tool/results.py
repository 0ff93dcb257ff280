"""Result codes and their names (source: `bmqt_resultcode.h`, `bmqt_sessioneventtype.h`)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from formats.bmq.control.messages import Status
from formats.bmq.wire.ack import AckStatus

__all__ = ["ACK_RESULTS", "CloseResult", "ConfigureResult", "GenericResult", "OpenResult", "PackResult", "result_of"]


class GenericResult(IntEnum):
    SUCCESS = 0
    UNKNOWN = -1
    TIMEOUT = -2
    NOT_CONNECTED = -3
    CANCELED = -4
    NOT_SUPPORTED = -5
    REFUSED = -6
    INVALID_ARGUMENT = -7
    NOT_READY = -8


class OpenResult(IntEnum):
    """Results of opening a queue, in addition to the generic ones."""

    ALREADY_OPENED = 100
    ALREADY_IN_PROGRESS = 101
    INVALID_URI = -100
    INVALID_FLAGS = -101
    CORRELATIONID_NOT_UNIQUE = -102


class ConfigureResult(IntEnum):
    """Results of configuring a queue, in addition to the generic ones."""

    ALREADY_IN_PROGRESS = 100
    INVALID_QUEUE = -101


class CloseResult(IntEnum):
    """Results of closing a queue, in addition to the generic ones."""

    ALREADY_CLOSED = 100
    ALREADY_IN_PROGRESS = 101
    UNKNOWN_QUEUE = -100
    INVALID_QUEUE = -101


class PackResult(IntEnum):
    """Results of putting a message into an event."""

    SUCCESS = 0
    UNKNOWN = -1
    QUEUE_INVALID = -100
    QUEUE_READONLY = -101
    MISSING_CORRELATION_ID = -102
    EVENT_TOO_BIG = -103
    PAYLOAD_TOO_BIG = -104
    PAYLOAD_EMPTY = -105
    OPTION_TOO_BIG = -106


# The application's result of an ack, by that of the wire (source: bmqp::ProtocolUtil::ackResultFromCode).
ACK_RESULTS: Final[dict[AckStatus, int]] = {
    AckStatus.SUCCESS: 0,
    AckStatus.LIMIT_MESSAGES: -100,
    AckStatus.LIMIT_BYTES: -101,
    AckStatus.STORAGE_FAILURE: -104,
    AckStatus.NOT_READY: -8,
}


def result_of(status: Status, results: type[IntEnum]) -> IntEnum:
    """The result for the broker's `status`: its code if that is one, or its category."""
    for kind in (results, GenericResult):
        if status.code in set(kind) and status.code != GenericResult.UNKNOWN:
            return kind(status.code)
    return GenericResult(int(status.category))
