"""The stream that copies a master's commit log to its slaves, in both of its forms.

In the plain form, for configured masters and slaves (source: DefaultHAConnection, DefaultHAClient), the slave reports
the end of its log, and the master sends the bytes after it, in pieces that need not end with a record.

In the form with epochs, for brokers with a controller (source: AutoSwitchHAConnection, AutoSwitchHAClient), the slave
introduces itself, the master answers with its epochs, by which the slave truncates its log, and every piece carries its
epoch and the confirmed offset.

Each `next_...` function returns a structure from the front of the received bytes and the offset after it, or None if it
is incomplete. It raises `FormatError` for malformed bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from formats.errors import FormatError
from formats.rocketmq.files.epochs import EpochEntry
from formats.schema import Annotated, Buffer, Layout, i16, i32, i64

__all__ = [
    "BODY_BYTES_MAX",
    "EPOCHS_MAX",
    "EPOCH_ENTRY",
    "EPOCH_HANDSHAKE",
    "EPOCH_REPORT",
    "EPOCH_TRANSFER",
    "REPORT",
    "SLAVE_HANDSHAKE",
    "TRANSFER",
    "EpochHandshake",
    "EpochReport",
    "EpochTransfer",
    "HaState",
    "MasterEpochs",
    "MasterPiece",
    "Piece",
    "Report",
    "SlaveHandshake",
    "Transfer",
    "encode_epoch_handshake",
    "next_from_master",
    "next_from_slave",
    "next_piece",
    "next_report",
]

# A slave of the original has a buffer of this size for a piece with its header.
BODY_BYTES_MAX: Final = (4 << 20) - 64
# A master of the original has room for this number of epochs.
EPOCHS_MAX: Final = 1000


class HaState(IntEnum):
    """The states of a connection. Only two are ever sent (source: HAConnectionState)."""

    READY = 0
    HANDSHAKE = 1
    TRANSFER = 2
    SUSPEND = 3
    SHUTDOWN = 4


class Report(NamedTuple):
    """A slave's report: the end of its commit log. The first report requests the bytes after it; 0 is a new slave.

    rocketmq::DefaultHAClient, 8 bytes:

        0 | offset 64 |
    """

    offset: Annotated[int, i64, "The end of the slave's commit log."]


class Transfer(NamedTuple):
    """The header of a piece of a master's commit log; an empty piece is a heartbeat.

    rocketmq::DefaultHAConnection, 12 bytes:

        0 | offset 64    |
        8 | body_size 32 |
    """

    offset: Annotated[int, i64, "Where the piece begins in the commit log."]
    body_size: Annotated[int, i32, "Its bytes, which follow."]


class SlaveHandshake(NamedTuple):
    """The introduction of a slave with epochs, its first bytes.

    rocketmq::AutoSwitchHAClient, 16 bytes:

        0 | state 32                          |
        4 | from_last_file 16 | is_learner 16 |
        8 | broker_id 64                      |
    """

    state: Annotated[int, i32, "HaState.HANDSHAKE."]
    from_last_file: Annotated[int, i16, "1: a new slave wants the last file only, not the whole log."]
    is_learner: Annotated[int, i16, "1: it never becomes a member of the SyncStateSet."]
    broker_id: Annotated[int, i64, "The slave's id."]


class EpochReport(NamedTuple):
    """The report of a slave with epochs: the end of its commit log.

    rocketmq::AutoSwitchHAClient, 12 bytes:

        0 | state 32  |
        4 | offset 64 |
    """

    state: Annotated[int, i32, "HaState.TRANSFER."]
    offset: Annotated[int, i64, "The end of the slave's commit log."]


class EpochHandshake(NamedTuple):
    """The answer of a master with epochs to a handshake: its epochs follow.

    rocketmq::AutoSwitchHAConnection, 20 bytes:

         0 | state 32     |
         4 | body_size 32 |
         8 | offset 64    |
        16 | epoch 32     |
    """

    state: Annotated[int, i32, "HaState.HANDSHAKE."]
    body_size: Annotated[int, i32, "The bytes of the epochs that follow."]
    offset: Annotated[int, i64, "The end of the master's commit log."]
    epoch: Annotated[int, i32, "The last epoch."]


class EpochTransfer(NamedTuple):
    """The header of a piece from a master with epochs; a piece is in one epoch.

    rocketmq::AutoSwitchHAConnection, 36 bytes:

         0 | state 32          |
         4 | body_size 32      |
         8 | offset 64         |
        16 | epoch 32          |
        20 | epoch_offset 64   |
        28 | confirm_offset 64 |
    """

    state: Annotated[int, i32, "HaState.TRANSFER."]
    body_size: Annotated[int, i32, "The bytes of the piece, which follow; 0 for a heartbeat."]
    offset: Annotated[int, i64, "Where the piece begins in the commit log; -1 while there is no log."]
    epoch: Annotated[int, i32, "The epoch that the piece is in."]
    epoch_offset: Annotated[int, i64, "Where that epoch began."]
    confirm_offset: Annotated[int, i64, "Up to here the log is confirmed; -1 while nothing is."]


class EpochStart(NamedTuple):
    """One epoch after an `EpochHandshake`.

    rocketmq::AutoSwitchHAConnection, 12 bytes:

        0 | epoch 32        |
        4 | start_offset 64 |
    """

    epoch: Annotated[int, i32, "Number of the epoch."]
    start_offset: Annotated[int, i64, "Offset of its first record in the commit log."]


REPORT = Layout(Report, size=8, upstream="rocketmq::DefaultHAClient")
TRANSFER = Layout(Transfer, size=12, upstream="rocketmq::DefaultHAConnection")
SLAVE_HANDSHAKE = Layout(SlaveHandshake, size=16, upstream="rocketmq::AutoSwitchHAClient")
EPOCH_REPORT = Layout(EpochReport, size=12, upstream="rocketmq::AutoSwitchHAClient")
EPOCH_HANDSHAKE = Layout(EpochHandshake, size=20, upstream="rocketmq::AutoSwitchHAConnection")
EPOCH_TRANSFER = Layout(EpochTransfer, size=36, upstream="rocketmq::AutoSwitchHAConnection")
EPOCH_ENTRY = Layout(EpochStart, size=12, upstream="rocketmq::AutoSwitchHAConnection")

_STATE_BYTES: Final = 4


class Piece(NamedTuple):
    """A piece of a commit log, in the plain form. `body` is a view of the received bytes."""

    offset: int
    body: memoryview


class MasterEpochs(NamedTuple):
    """A master's answer to a handshake."""

    head: EpochHandshake
    epochs: list[EpochEntry]


class MasterPiece(NamedTuple):
    """A piece of a commit log, in the form with epochs. `body` is a view of the received bytes."""

    head: EpochTransfer
    body: memoryview


def next_report(data: Buffer, at: int, end: int) -> tuple[Report, int] | None:
    if end - at < REPORT.size:
        return None
    report = REPORT.unpack(data, at)
    _check_offset("Report.offset", at, report.offset, 0)
    return report, at + REPORT.size


def next_piece(data: memoryview, at: int, end: int) -> tuple[Piece, int] | None:
    if end - at < TRANSFER.size:
        return None
    offset, body_size = TRANSFER.unpack(data, at)
    _check_offset("Transfer.offset", at, offset, 0)
    _check_size("Transfer.body_size", at, body_size, BODY_BYTES_MAX)
    body_at = at + TRANSFER.size
    if end - body_at < body_size:
        return None
    return Piece(offset, data[body_at : body_at + body_size]), body_at + body_size


def next_from_slave(data: Buffer, at: int, end: int) -> tuple[SlaveHandshake | EpochReport, int] | None:
    state = _state("EpochReport.state", data, at, end)
    if state is None:
        return None
    if state is HaState.HANDSHAKE:
        if end - at < SLAVE_HANDSHAKE.size:
            return None
        handshake = SLAVE_HANDSHAKE.unpack(data, at)
        _check_offset("SlaveHandshake.broker_id", at, handshake.broker_id, 0)
        return handshake, at + SLAVE_HANDSHAKE.size
    if end - at < EPOCH_REPORT.size:
        return None
    report = EPOCH_REPORT.unpack(data, at)
    _check_offset("EpochReport.offset", at, report.offset, 0)
    return report, at + EPOCH_REPORT.size


def next_from_master(data: memoryview, at: int, end: int) -> tuple[MasterEpochs | MasterPiece, int] | None:
    """Return the next structure from a master with epochs, with the data after its header."""
    state = _state("EpochTransfer.state", data, at, end)
    if state is None:
        return None
    return _next_epochs(data, at, end) if state is HaState.HANDSHAKE else _next_epoch_piece(data, at, end)


def _next_epochs(data: memoryview, at: int, end: int) -> tuple[MasterEpochs, int] | None:
    if end - at < EPOCH_HANDSHAKE.size:
        return None
    head = EPOCH_HANDSHAKE.unpack(data, at)
    _check_size("EpochHandshake.body_size", at, head.body_size, EPOCHS_MAX * EPOCH_ENTRY.size)
    if head.body_size % EPOCH_ENTRY.size:
        raise FormatError("EpochHandshake.body_size", at, f"{head.body_size} bytes are no number of epochs")
    _check_offset("EpochHandshake.offset", at, head.offset, -1)
    body_at = at + EPOCH_HANDSHAKE.size
    body_end = body_at + head.body_size
    if end < body_end:
        return None
    epochs = [EpochEntry(*EPOCH_ENTRY.unpack(data, place)) for place in range(body_at, body_end, EPOCH_ENTRY.size)]
    before = EpochEntry(-1, 0)
    for number, entry in enumerate(epochs):
        if entry.epoch <= before.epoch or entry.start_offset < before.start_offset:
            raise FormatError(
                "EpochHandshake.epochs", body_at + number * EPOCH_ENTRY.size, f"{entry} does not follow {before}"
            )
        before = entry
    return MasterEpochs(head, epochs), body_end


def _next_epoch_piece(data: memoryview, at: int, end: int) -> tuple[MasterPiece, int] | None:
    if end - at < EPOCH_TRANSFER.size:
        return None
    head = EPOCH_TRANSFER.unpack(data, at)
    _check_size("EpochTransfer.body_size", at, head.body_size, BODY_BYTES_MAX)
    _check_offset("EpochTransfer.offset", at, head.offset, 0 if head.body_size else -1)
    _check_offset("EpochTransfer.epoch_offset", at, head.epoch_offset, 0)
    _check_offset("EpochTransfer.confirm_offset", at, head.confirm_offset, -1)
    body_at = at + EPOCH_TRANSFER.size
    if end - body_at < head.body_size:
        return None
    return MasterPiece(head, data[body_at : body_at + head.body_size]), body_at + head.body_size


def encode_epoch_handshake(end_offset: int, epochs: Sequence[EpochEntry]) -> bytes:
    """Encode a master's answer to a handshake, with at most `EPOCHS_MAX` epochs."""
    if len(epochs) > EPOCHS_MAX:
        raise ValueError(f"{len(epochs)} epochs are more than the {EPOCHS_MAX} that fit")
    last = epochs[-1].epoch if epochs else -1
    head = EpochHandshake(HaState.HANDSHAKE, len(epochs) * EPOCH_ENTRY.size, end_offset, last)
    return EPOCH_HANDSHAKE.pack(head) + b"".join(EPOCH_ENTRY.pack(EpochStart(*entry)) for entry in epochs)


def _state(path: str, data: Buffer, at: int, end: int) -> HaState | None:
    """Read the state at the front of a structure, `HANDSHAKE` or `TRANSFER`; None if it has not arrived."""
    if end - at < _STATE_BYTES:
        return None
    state = int.from_bytes(data[at : at + _STATE_BYTES], "big", signed=True)
    if state not in (HaState.HANDSHAKE, HaState.TRANSFER):
        raise FormatError(path, at, f"{state} is neither HANDSHAKE nor TRANSFER")
    return HaState(state)


def _check_offset(path: str, at: int, offset: int, least: int) -> None:
    if offset < least:
        raise FormatError(path, at, f"{offset} is less than {least}")


def _check_size(path: str, at: int, size: int, most: int) -> None:
    if not 0 <= size <= most:
        raise FormatError(path, at, f"{size} bytes are not between 0 and {most}")
