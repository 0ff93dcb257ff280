"""The replication stream: every captured byte in both forms, pieces of structures, and what a stranger may send."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import FormatError
from formats.rocketmq.files.epochs import EpochEntry
from formats.rocketmq.files.record import Record
from formats.rocketmq.remoting.replication import (
    BODY_BYTES_MAX,
    EPOCH_REPORT,
    EPOCH_TRANSFER,
    EPOCHS_MAX,
    REPORT,
    SLAVE_HANDSHAKE,
    TRANSFER,
    EpochReport,
    EpochTransfer,
    HaState,
    MasterEpochs,
    MasterPiece,
    Piece,
    SlaveHandshake,
    Transfer,
    encode_epoch_handshake,
    next_from_master,
    next_from_slave,
    next_piece,
    next_report,
)
from tests.golden.rocketmq.captures import CAPTURES, Stream, streams
from tests.golden.rocketmq.stores import records

PLAIN_PORT = 22912
EPOCH_PORTS = {24112, 24212, 24312}
HA_CAPTURES = [capture for capture in CAPTURES if capture.startswith("ha-")]


def captured(ports: set[int], *, to_master: bool) -> Iterator[tuple[str, Stream]]:
    for capture in HA_CAPTURES:
        for stream in streams(capture):
            if (stream.target if to_master else stream.source) in ports:
                yield capture, stream


def pieces_of(stream: Stream) -> Iterator[Piece]:
    view, at = memoryview(stream.data), 0
    while at < len(view):
        found = next_piece(view, at, len(view))
        assert found is not None
        piece, at = found
        yield piece


def test_reports_of_slaves_read_and_write_back() -> None:
    seen = 0
    for _, stream in captured({PLAIN_PORT}, to_master=True):
        at, before = 0, 0
        while at < len(stream.data):
            found = next_report(stream.data, at, len(stream.data))
            assert found is not None
            report, end = found
            assert REPORT.pack(report) == stream.data[at:end]
            assert report.offset >= before
            at, before, seen = end, report.offset, seen + 1
    assert seen == 24


def test_pieces_of_a_master_read_and_write_back_and_follow_each_other() -> None:
    seen = 0
    for capture, stream in captured({PLAIN_PORT}, to_master=False):
        written, expected = b"", None
        for piece in pieces_of(stream):
            assert expected in (None, piece.offset), capture
            expected = piece.offset + len(piece.body)
            written += TRANSFER.pack(Transfer(piece.offset, len(piece.body))) + piece.body
            seen += 1
        assert written == stream.data
    assert seen == 22


def test_log_of_a_slave_is_what_its_master_sent(golden_brokers: dict[str, list[Path]]) -> None:
    logs = [log_of(broker) for broker in golden_brokers["ha-classic/stores"]]
    copied = 0
    for _, stream in captured({PLAIN_PORT}, to_master=False):
        for piece in pieces_of(stream):
            for log in logs:
                assert log[piece.offset : piece.offset + len(piece.body)] == piece.body
            copied += len(piece.body)
    assert copied > 8000


def log_of(broker: Path) -> bytes:
    (only,) = (broker / "commitlog").iterdir()
    return only.read_bytes()


def test_slaves_with_epochs_read_and_write_back() -> None:
    handshakes: list[SlaveHandshake] = []
    reports = 0
    for _, stream in captured(EPOCH_PORTS, to_master=True):
        at = 0
        while at < len(stream.data):
            found = next_from_slave(stream.data, at, len(stream.data))
            assert found is not None
            sent, end = found
            if isinstance(sent, SlaveHandshake):
                handshakes.append(sent)
                assert SLAVE_HANDSHAKE.pack(sent) == stream.data[at:end]
            else:
                reports += 1
                assert EPOCH_REPORT.pack(sent) == stream.data[at:end]
            at = end
    assert {each.broker_id for each in handshakes} == {1, 2, 3}
    assert reports > 40


def test_masters_with_epochs_read_and_write_back(golden_brokers: dict[str, list[Path]]) -> None:
    logs = {log_of(broker) for broker in golden_brokers["ha-truncate/after"]}
    (log,) = logs
    epochs: set[tuple[EpochEntry, ...]] = set()
    heartbeats = copied = 0
    for capture, stream in captured(EPOCH_PORTS, to_master=False):
        view, at = memoryview(stream.data), 0
        while at < len(view):
            found = next_from_master(view, at, len(view))
            assert found is not None
            sent, end = found
            if isinstance(sent, MasterEpochs):
                epochs.add(tuple(sent.epochs))
                assert encode_epoch_handshake(sent.head.offset, sent.epochs) == stream.data[at:end]
            else:
                assert EPOCH_TRANSFER.pack(sent.head) + sent.body == stream.data[at:end]
                heartbeats += not sent.body
                copied += len(sent.body)
                if capture.startswith("ha-truncate") and sent.body:
                    assert log[sent.head.offset : sent.head.offset + len(sent.body)] == sent.body
            at = end
    assert (EpochEntry(1, 0), EpochEntry(2, 1305), EpochEntry(3, 3398)) in epochs
    assert heartbeats > 5
    assert copied > 3000


def test_pieces_of_a_quiet_master_begin_with_records(golden_brokers: dict[str, list[Path]]) -> None:
    begins = {offset for offset, found in records(golden_brokers["ha-classic/stores"][0]) if isinstance(found, Record)}
    sent = {
        piece.offset
        for _, stream in captured({PLAIN_PORT}, to_master=False)
        for piece in pieces_of(stream)
        if piece.body
    }
    assert sent <= begins


def test_a_structure_that_is_not_whole_is_waited_for() -> None:
    sent: list[tuple[bytes, object]] = [
        (TRANSFER.pack(Transfer(7, 3)) + b"abc", next_piece),
        (REPORT.pack(REPORT.cls(7)), next_report),
        (SLAVE_HANDSHAKE.pack(SlaveHandshake(HaState.HANDSHAKE, 0, 0, 2)), next_from_slave),
        (EPOCH_REPORT.pack(EpochReport(HaState.TRANSFER, 9)), next_from_slave),
        (encode_epoch_handshake(9, [EpochEntry(1, 0), EpochEntry(2, 5)]), next_from_master),
        (EPOCH_TRANSFER.pack(EpochTransfer(HaState.TRANSFER, 2, 9, 1, 0, 5)) + b"ab", next_from_master),
    ]
    for data, read in sent:
        assert callable(read)
        view = memoryview(b"--" + data + b"behind")
        for end in range(2, len(data) + 2):
            assert read(view, 2, end) is None
        found = read(view, 2, len(view))
        assert found is not None
        assert found[1] == len(data) + 2


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (Transfer(-1, 0), "-1 is less than 0"),
        (Transfer(0, -1), "-1 bytes are not between 0 and"),
        (Transfer(0, BODY_BYTES_MAX + 1), "bytes are not between 0 and"),
    ],
)
def test_pieces_that_cannot_be_are_refused(data: Transfer, reason: str) -> None:
    packed = memoryview(TRANSFER.pack(data))
    with pytest.raises(FormatError, match=reason):
        next_piece(packed, 0, len(packed))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (REPORT.pack(REPORT.cls(-1)), "-1 is less than 0"),
        (EPOCH_REPORT.pack(EpochReport(HaState.TRANSFER, -1)), "-1 is less than 0"),
        (EPOCH_REPORT.pack(EpochReport(HaState.SUSPEND, 0)), "3 is neither HANDSHAKE nor TRANSFER"),
        (SLAVE_HANDSHAKE.pack(SlaveHandshake(HaState.HANDSHAKE, 0, 0, -2)), "-2 is less than 0"),
    ],
)
def test_reports_that_cannot_be_are_refused(data: bytes, reason: str) -> None:
    read = next_report if len(data) == REPORT.size else next_from_slave
    with pytest.raises(FormatError, match=reason):
        read(data, 0, len(data))


def handshake(body_size: int, offset: int, *entries: tuple[int, int]) -> bytes:
    front = HaState.HANDSHAKE.to_bytes(4, "big") + body_size.to_bytes(4, "big", signed=True)
    body = b"".join(epoch.to_bytes(4, "big", signed=True) + start.to_bytes(8, "big") for epoch, start in entries)
    return front + offset.to_bytes(8, "big", signed=True) + (1).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (handshake(13, 0), "13 bytes are no number of epochs"),
        (handshake(-12, 0), "-12 bytes are not between"),
        (handshake((EPOCHS_MAX + 1) * 12, 0), "bytes are not between"),
        (handshake(0, -2), "-2 is less than -1"),
        (handshake(24, 0, (2, 0), (2, 5)), "does not follow"),
        (handshake(24, 0, (1, 9), (2, 5)), "does not follow"),
        (EPOCH_TRANSFER.pack(EpochTransfer(HaState.TRANSFER, 1, -1, 1, 0, 0)), "-1 is less than 0"),
        (EPOCH_TRANSFER.pack(EpochTransfer(HaState.TRANSFER, 0, -2, 1, 0, 0)), "-2 is less than -1"),
        (EPOCH_TRANSFER.pack(EpochTransfer(HaState.TRANSFER, 0, 0, 1, -1, 0)), "-1 is less than 0"),
        (EPOCH_TRANSFER.pack(EpochTransfer(HaState.TRANSFER, 0, 0, 1, 0, -2)), "-2 is less than -1"),
    ],
)
def test_epochs_that_cannot_be_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        next_from_master(memoryview(data), 0, len(data))


def test_too_many_epochs_are_not_written() -> None:
    with pytest.raises(ValueError, match="more than the 1000"):
        encode_epoch_handshake(0, [EpochEntry(number, number) for number in range(EPOCHS_MAX + 1)])


@given(st.binary(max_size=80))
def test_any_bytes_are_refused_or_are_their_structures(data: bytes) -> None:
    view = memoryview(data)
    for read in (next_report, next_piece, next_from_slave, next_from_master):
        try:
            found = read(view, 0, len(view))
        except FormatError:
            continue
        if found is None:
            continue
        sent, end = found
        if isinstance(sent, Piece):
            written = TRANSFER.pack(Transfer(sent.offset, len(sent.body))) + sent.body
        elif isinstance(sent, MasterPiece):
            written = EPOCH_TRANSFER.pack(sent.head) + sent.body
        elif isinstance(sent, MasterEpochs):
            # The last epoch is given twice, and the copy in the front is not compared.
            written = data[:16] + data[16:20] + encode_epoch_handshake(sent.head.offset, sent.epochs)[20:]
        elif isinstance(sent, SlaveHandshake):
            written = SLAVE_HANDSHAKE.pack(sent)
        elif isinstance(sent, EpochReport):
            written = EPOCH_REPORT.pack(sent)
        else:
            written = REPORT.pack(sent)
        assert written == data[:end]
