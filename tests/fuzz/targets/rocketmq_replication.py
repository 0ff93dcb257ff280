"""Any bytes as a stream of replication are refused, or are their structures; and no bytes harm a slave's store."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from broker.rocketmq.store.copying import copy_records
from broker.rocketmq.store.message_store import StoreOptions
from broker.rocketmq.store.opening import open_store
from formats.errors import FormatError
from formats.rocketmq.remoting.replication import (
    EPOCH_REPORT,
    EPOCH_TRANSFER,
    REPORT,
    SLAVE_HANDSHAKE,
    TRANSFER,
    EpochReport,
    MasterEpochs,
    MasterPiece,
    Piece,
    Report,
    SlaveHandshake,
    Transfer,
    encode_epoch_handshake,
    next_from_master,
    next_from_slave,
    next_piece,
    next_report,
)
from tests.broker.rocketmq.folders import MemoryFolder
from tests.golden.rocketmq.captures import CAPTURES, streams

__all__ = ["decode", "seeds", "verify"]

PORTS = {22912, 24112, 24212, 24312}
SIZE_MAX = 1024
# The files of a store.
BASE = 1 << 20
OPTIONS = StoreOptions(1 << 16, 2000, 50, 400)
_READERS = (next_report, next_piece, next_from_slave, next_from_master)

Sent = Report | Piece | SlaveHandshake | EpochReport | MasterEpochs | MasterPiece


class Read(NamedTuple):
    """The structures at the front, one for each kind of stream, and the log that the bytes make."""

    sent: list[tuple[Sent, int]]
    log: bytes


def decode(data: bytes) -> Read:
    found: list[tuple[Sent, int]] = []
    for read in _READERS:
        try:
            structure = read(memoryview(data), 0, len(data))
        except FormatError:
            continue
        if structure is not None:
            found.append(structure)
    store = open_store(MemoryFolder(chunk=4096), OPTIONS, lambda ms: f"{ms:017d}")
    # After the header of a piece there are records.
    records = memoryview(data)[TRANSFER.size :] if len(data) > TRANSFER.size else memoryview(b"")
    with suppress(FormatError):
        copy_records(store, 0, records)
    log = store.log.data(0, store.log.end) if store.log.end else b""
    return Read(found, bytes(log))


def verify(data: bytes, read: Read) -> None:
    assert data[TRANSFER.size :].startswith(read.log)
    for sent, end in read.sent:
        assert _written(data, sent) == data[:end]


def _written(data: bytes, sent: Sent) -> bytes:
    match sent:
        case Piece(offset, body):
            return TRANSFER.pack(Transfer(offset, len(body))) + body
        case MasterPiece(head, body):
            return EPOCH_TRANSFER.pack(head) + body
        case MasterEpochs(head, epochs):
            # The last epoch is there twice, and the copy in the front is not compared.
            return data[:20] + encode_epoch_handshake(head.offset, epochs)[20:]
        case SlaveHandshake():
            return SLAVE_HANDSHAKE.pack(sent)
        case EpochReport():
            return EPOCH_REPORT.pack(sent)
        case Report():
            return REPORT.pack(sent)


def seeds() -> list[bytes]:
    found: dict[int, bytes] = {}
    for capture in CAPTURES:
        if not capture.startswith("ha-"):
            continue
        for stream in streams(capture):
            if {stream.source, stream.target} & PORTS:
                for size in (16, 64, 256, SIZE_MAX):
                    found.setdefault(hash(stream.data[:size]), stream.data[:size])
    return list(found.values())
