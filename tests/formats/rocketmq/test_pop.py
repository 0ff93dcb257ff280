"""Receipt handles, and the notes of a revive log; the texts are Apache RocketMQ 5.4.0's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import FormatError
from formats.rocketmq.remoting.bodies.popping import (
    BATCH_ACK_REQUEST,
    AckNote,
    BatchAckNote,
    CheckPoint,
    bits_of,
    read_note,
    write_note,
)
from formats.rocketmq.remoting.receipts import (
    Receipt,
    kind_of_topic,
    normal_topic,
    offset_counts_info,
    offsets_info,
    parse_receipt,
    real_topic,
    retry_topic,
    start_info,
)

CHECKPOINT = (
    b'{"bm":0,"bn":"b","c":"g","d":[0,2],"it":60000,"n":2,"pt":1700000000000,"q":3,"reviveTime":1700000060000,'
    b'"ro":0,"so":5,"t":"t"}'
)
ACK = b'{"ao":7,"bn":"b","c":"g","pt":1700000000000,"q":3,"so":5,"t":"t"}'
BATCH = b'{"ao":-1,"aol":[5,7],"bn":"b","c":"g","pt":1700000000000,"q":3,"so":5,"t":"t"}'
POINT = CheckPoint(5, 1_700_000_000_000, 60_000, 2, 3, "t", "g", "b", [0, 2])


def test_notes_are_the_originals() -> None:
    assert write_note(POINT) == ("ck", CHECKPOINT)
    assert write_note(AckNote(7, 5, "g", "t", 3, 1_700_000_000_000, "b")) == ("ack", ACK)
    assert write_note(BatchAckNote(-1, 5, "g", "t", 3, 1_700_000_000_000, "b", [5, 7])) == ("bAck", BATCH)
    again = CHECKPOINT.replace(b'"ro"', b'"rp":"1","ro"')
    point = read_note("ck", again)
    assert isinstance(point, CheckPoint)
    assert (point.put_again, point.offsets, point.visible_ms) == ("1", [5, 7], 1_700_000_060_000)


@pytest.mark.parametrize(("tag", "body"), [("ck", CHECKPOINT), ("ack", ACK), ("bAck", BATCH)])
def test_notes_are_read_and_written_back(tag: str, body: bytes) -> None:
    assert write_note(read_note(tag, body)) == (tag, body)


def test_old_checkpoints_have_their_messages_in_a_row() -> None:
    point = read_note("ck", CHECKPOINT.replace(b'"d":[0,2],', b""))
    assert isinstance(point, CheckPoint)
    assert point.offsets == [5, 6]


@pytest.mark.parametrize(
    ("tag", "body"),
    [
        ("", CHECKPOINT),
        ("ck", b"[]"),
        ("ck", b"\xff"),
        ("ck", b"[" * 100_000),
        ("ck", CHECKPOINT.replace(b'"n":2', b'"n":33')),
        ("ck", CHECKPOINT.replace(b'"n":2', b'"n":-1')),
        ("ck", CHECKPOINT.replace(b'"n":2', b'"n":3')),
        ("ck", CHECKPOINT.replace(b'"so":5', b'"so":99999999999999999999')),
        ("ack", ACK.replace(b'"q":3', b'"q":"x"')),
        ("ack", ACK.replace(b'"q":3', b'"q":3,"c":"\\udc00"')),
    ],
)
def test_notes_that_are_none(tag: str, body: bytes) -> None:
    with pytest.raises(FormatError):
        read_note(tag, body)


def test_batch_is_read() -> None:
    request = BATCH_ACK_REQUEST.read(
        b'{"acks":[{"b":"AQI=","c":"g","it":60000,"pt":17,"q":3,"r":"0","rq":1,"so":5,"t":"t"}],"brokerName":"b"}'
    )
    assert bits_of(request.acks[0].bits) == [0, 9]


@pytest.mark.parametrize("text", ["A", "AQI", "é", "//////8=", "A" * 70_000])
def test_bits_that_are_none(text: str) -> None:
    with pytest.raises(FormatError):
        bits_of(text)


@given(st.integers(0, (1 << 62) - 1), st.integers(0, (1 << 62) - 1), st.integers(0, 1 << 31), st.sampled_from("012"))
def test_handles_are_read_and_written_back(offset: int, ms: int, queue: int, kind: str) -> None:
    receipt = Receipt(offset, ms, ms, queue, kind, "broker-a", queue, offset)
    assert parse_receipt(str(receipt)) == receipt


def test_handle_of_an_older_client() -> None:
    assert parse_receipt("0 17 60000 999 0 b") == Receipt(0, 17, 60_000, 999, "0", "b")
    assert parse_receipt("0 17 60000 999 0 b").is_ordered


@pytest.mark.parametrize(
    "text", ["", "1 2 3 4 5", "x 2 3 4 5 b", "1 2 3 4 5 b x 7", "1 2 -3 4 5 b", f"1 2 {1 << 63} 4 5 b"]
)
def test_handles_that_are_none(text: str) -> None:
    with pytest.raises(FormatError):
        parse_receipt(text)


def test_topics_of_retries() -> None:
    assert retry_topic("t", "g") == "%RETRY%g_t"
    assert [real_topic("t", "g", kind) for kind in "012"] == ["t", "%RETRY%g_t", "%RETRY%g+t"]
    assert [kind_of_topic(topic) for topic in ("t", "a+b", "%RETRY%g_t", "%RETRY%g+t")] == ["0", "0", "1", "2"]
    assert [normal_topic(topic, "g_h") for topic in ("t", "%RETRY%g_h_t", "%RETRY%g_h+t")] == ["t", "t", "t"]
    for topic in ("%RETRY%g", "%RETRY%other_t", "%RETRY%g_ht"):
        with pytest.raises(FormatError):
            normal_topic(topic, "g_h")
    with pytest.raises(FormatError):
        real_topic("t", "g", "3")


def test_words_of_an_answer() -> None:
    assert start_info("%RETRY%g_t", 0, 7) == "1 0 7"
    assert offsets_info("t", 2, [7, 9]) == "0 2 7,9"
    assert offset_counts_info("t", 2, 7, 3) == "0 qo2%7 3"
