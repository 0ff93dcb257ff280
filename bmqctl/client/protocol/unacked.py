"""Unacked posts, for matching acks and for repetition on a new connection.

Source of the behaviour: `bmqimp::MessageCorrelationIdContainer`, `bmqimp::BrokerSession::retransmitPendingMessages`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from bmqctl.client.protocol.events import Ack, QueueHandle
from formats.bmq.wire.ack import AckStatus
from formats.bmq.wire.put import PutFlag
from formats.schema import Buffer

__all__ = ["Posted", "nack"]


class Posted(NamedTuple):
    """A message as it was, or will be, put on the wire."""

    queue: QueueHandle
    correlation: Any
    posted_ns: int
    data: Buffer
    crc32c: int
    flags: int
    compression: int
    schema_id: int


def nack(posted: dict[bytes, Posted], which: Callable[[Posted], bool]) -> list[Ack]:
    taken = {guid: each for guid, each in posted.items() if which(each)}
    for guid in taken:
        del posted[guid]
    return [
        Ack(AckStatus.UNKNOWN, guid, each.correlation, each.queue)
        for guid, each in taken.items()
        if each.flags & PutFlag.ACK_REQUESTED
    ]
