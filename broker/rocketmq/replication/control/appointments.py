"""Reads a controller's messages about a broker name: its master, its epoch, and the brokers in sync.

A controller is another process, so its messages are checked.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from formats.errors import FormatError
from formats.rocketmq.hosts import split_address
from formats.rocketmq.remoting.bodies.controllers import SYNC_STATE_SET, SyncStateSet
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import read_header
from formats.rocketmq.remoting.headers.replicating import (
    ElectMasterResponse,
    GetReplicaInfoResponse,
    NotifyBrokerRoleChangedRequest,
    RegisterBrokerToControllerResponse,
)

__all__ = [
    "Appointment",
    "InSync",
    "read_elected",
    "read_in_sync",
    "read_notice",
    "read_registered",
    "read_replicas",
]

_MEMBERS_MAX: Final = 1024


class InSync(NamedTuple):
    """The ids of the brokers in sync, and the number of that set."""

    members: frozenset[int]
    epoch: int


class Appointment(NamedTuple):
    """The master of an epoch; `master_id` and the address are None without one."""

    epoch: int
    master_id: int | None
    address: str | None
    in_sync: InSync


def read_registered(answer: Frame) -> Appointment:
    """Read the answer to a registration. Raises `FormatError`."""
    head = read_header(RegisterBrokerToControllerResponse, answer.ext_fields)
    return _appointment(head.master_epoch, head.master_broker_id, head.master_address, _set(answer))


def read_elected(answer: Frame) -> Appointment:
    """Read the answer to an election. Raises `FormatError`."""
    head = read_header(ElectMasterResponse, answer.ext_fields)
    return _appointment(head.master_epoch, head.master_broker_id, head.master_address, _set(answer, head[3]))


def read_replicas(answer: Frame) -> Appointment:
    """Read the answer to a request for the master. Raises `FormatError`."""
    head = read_header(GetReplicaInfoResponse, answer.ext_fields)
    return _appointment(head.master_epoch, head.master_broker_id, head.master_address, _set(answer))


def read_notice(request: Frame) -> Appointment:
    """Read a controller's notice that the roles have changed. Raises `FormatError`."""
    head = read_header(NotifyBrokerRoleChangedRequest, request.ext_fields)
    in_sync = _set(request, head.sync_state_set_epoch)
    return _appointment(head.master_epoch, head.master_broker_id, head.master_address, in_sync)


def read_in_sync(answer: Frame) -> InSync:
    """Read the answer to a proposed set. Raises `FormatError`."""
    return _set(answer)


def _set(frame: Frame, epoch: int | None = None) -> InSync:
    told = SYNC_STATE_SET.read(frame.body) if frame.body else SyncStateSet()
    members = frozenset(told.sync_state_set)
    number = told.sync_state_set_epoch if epoch is None else epoch
    if len(members) > _MEMBERS_MAX or any(each < 0 for each in members) or number < 0:
        raise FormatError("SyncStateSet", 0, f"epoch {number} of {sorted(members)[:10]} cannot be")
    return InSync(members, number)


def _appointment(epoch: int | None, master_id: int | None, address: str | None, in_sync: InSync) -> Appointment:
    if epoch is not None and epoch < 0:
        raise FormatError("masterEpoch", 0, f"{epoch} is less than 0")
    if master_id is None or master_id < 0 or not address:
        return Appointment(epoch or 0, None, None, in_sync)
    if split_address(address) is None:
        raise FormatError("masterAddress", 0, f"{address[:80]!r} is no HOST:PORT")
    if not epoch:
        raise FormatError("masterEpoch", 0, f"broker {master_id} is master of no epoch")
    if master_id not in in_sync.members:
        raise FormatError("SyncStateSet", 0, f"master {master_id} is not in {sorted(in_sync.members)[:10]}")
    return Appointment(epoch, master_id, address, in_sync)
