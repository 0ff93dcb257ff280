"""The data of a partition's events and actions."""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.bmq.replication.positions import NOWHERE
from formats.bmq.control.messages import ControlMessage
from formats.bmq.disk.numbers import RecordNumber

__all__ = ["NO_FACT", "Asked", "Fact", "Received", "Receiving", "ReplicaProgress"]


class Asked(NamedTuple):
    """A request to be answered."""

    node_id: int
    message: ControlMessage


class Received(NamedTuple):
    """The messages of an event: `data[start:end]`."""

    data: memoryview
    start: int
    end: int


class Fact(NamedTuple):
    """The data of an event of the table; fields that it lacks keep their defaults. `end` is also a node's position."""

    node_id: int = -1
    asked: Asked | None = None
    begin: RecordNumber = NOWHERE
    end: RecordNumber = NOWHERE
    sync_point: RecordNumber = NOWHERE
    received: Received | None = None
    primary_id: int | None = None
    lease_id: int = 0


NO_FACT: Final = Fact()


class ReplicaProgress(NamedTuple):
    """A node's position, and the first sync point after its last rollover."""

    position: RecordNumber
    sync_point: RecordNumber


class Receiving(NamedTuple):
    """The records that a node will send; `asked` is the primary's request to receive them."""

    node_id: int
    begin: RecordNumber
    end: RecordNumber
    sync_point: RecordNumber
    asked: Asked | None
