"""Messages that are consumed only once their producers say so."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from broker.rocketmq.sending.transactions import TransactionTimes
from broker.rocketmq.store.message_store import StoreOptions
from formats.rocketmq.files.record import Record, decode_record
from formats.rocketmq.flags import Transaction
from formats.rocketmq.message_ids import OffsetId
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag
from tests.broker.rocketmq.consuming.test_held_up import check
from tests.broker.rocketmq.rig import OPTIONS, Peer, Rig

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
NOTES = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
PRODUCER = json.dumps({"clientID": "one", "producerDataSet": [{"groupName": "p"}]}).encode()


def prepare(peer: Peer, body: bytes, **properties: str) -> Record:
    """Send the first half of a transaction; the message as it waits."""
    told = {"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": body.decode().upper(), **properties}
    answer = peer.send(body, told, f=4)
    assert answer.code == ResponseCode.SUCCESS
    return peer.rig.messages(HALF)[-1]


def end(peer: Peer, half: Record, transaction: int, **changes: Any) -> Frame | None:
    """Say what became of a transaction; the answer."""
    fields = {
        "producerGroup": "p",
        "tranStateTableOffset": half.queue_offset,
        "commitLogOffset": half.physical_offset,
        "commitOrRollback": int(transaction),
        "msgId": "M",
    }
    return peer.answer(peer.ask(RequestCode.END_TRANSACTION, **{**fields, **changes}))


def questions(peer: Peer) -> list[Frame]:
    """The questions that the broker has put to a producer."""
    peer.read()
    asked, peer.asked = peer.asked, []
    return [frame for frame in asked if frame.code == RequestCode.CHECK_TRANSACTION_STATE]


def bodies(rig: Rig, topic: str = "t") -> list[bytes]:
    return [bytes(record.body) for record in rig.messages(topic)]


def test_prepared_message_is_consumed_when_it_is_committed() -> None:
    rig = Rig()
    peer = rig.peer()
    half = prepare(peer, b"one", TAGS="x")
    assert bodies(rig) == []
    assert end(peer, half, Transaction.COMMIT) is not None
    (record,) = rig.messages("t")
    assert (bytes(record.body), record.system_flags, record.prepared_transaction_offset) == (
        b"one",
        Transaction.COMMIT,
        half.physical_offset,
    )
    found = decode_properties(record.properties)
    assert "REAL_TOPIC" not in found
    assert (found["__transactionId__"], found["TAGS"]) == ("ONE", "x")


def test_ends_are_noted_together() -> None:
    rig = Rig()
    peer = rig.peer()
    halves = [prepare(peer, b"%d" % number) for number in range(3)]
    rig.pass_time(3_000)
    for half in halves:
        end(peer, half, Transaction.ROLLBACK)
    assert bodies(rig, NOTES) == []
    rig.pass_time(3_000)
    assert bodies(rig, NOTES) == [b"0,1,2,"]
    assert bodies(rig) == []


def test_producer_is_asked_what_became_of_a_message() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.call(RequestCode.HEART_BEAT, PRODUCER)
    half = prepare(peer, b"one")
    assert end(peer, half, Transaction.NONE) is None
    rig.pass_time(10_000)
    (question, *_) = questions(peer)
    assert question.flag == FrameFlag.ONE_WAY
    assert question.ext_fields is not None
    told = decode_record(question.body)
    assert isinstance(told, Record)
    assert (told.topic, bytes(told.body), question.ext_fields["msgId"]) == ("t", b"one", "ONE")
    fields = question.ext_fields
    answer = {"commitLogOffset": fields["commitLogOffset"], "tranStateTableOffset": fields["tranStateTableOffset"]}
    end(peer, half, Transaction.COMMIT, fromTransactionCheck="true", **answer)
    assert bodies(rig) == [b"one"]
    rig.pass_time(20_000)
    assert questions(peer) == []
    assert bodies(rig) == [b"one"]


def test_commit_after_a_question_creates_the_topic_that_this_master_has_never_got() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.call(RequestCode.HEART_BEAT, PRODUCER)
    half = prepare(peer, b"one")
    rig.lead_without("t").pass_time(10_000)
    (question, *_) = questions(peer)
    fields = question.ext_fields
    assert fields is not None
    answer = {"commitLogOffset": fields["commitLogOffset"], "tranStateTableOffset": fields["tranStateTableOffset"]}
    end(peer, half, Transaction.COMMIT, fromTransactionCheck="true", **answer)
    assert bodies(rig) == [b"one"]
    assert rig.topics.get("t") is not None


def test_late_end_of_the_first_half_ends_its_copies() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.call(RequestCode.HEART_BEAT, PRODUCER)
    half = prepare(peer, b"one")
    rig.pass_time(6_000)
    assert len(questions(peer)) == 1
    end(peer, half, Transaction.COMMIT)
    rig.pass_time(20_000)
    assert questions(peer) == []
    assert bodies(rig) == [b"one"]


def test_answers_to_several_questions_commit_once() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.call(RequestCode.HEART_BEAT, PRODUCER)
    half = prepare(peer, b"one")
    asked: list[Frame] = []
    while len(asked) < 3:
        rig.pass_time(10_000)
        asked += questions(peer)
    places = [(question.ext_fields or {}) for question in asked]
    # The answers were held back, and come together, the first of them once more after the next check.
    for fields in (*places, {}, places[0]):
        if not fields:
            rig.pass_time(60_000)
            continue
        answer = {"commitLogOffset": fields["commitLogOffset"], "tranStateTableOffset": fields["tranStateTableOffset"]}
        end(peer, half, Transaction.COMMIT, fromTransactionCheck="true", **answer)
        assert bodies(rig) == [b"one"]
    assert questions(peer) == []


def test_transaction_checks_end() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.call(RequestCode.HEART_BEAT, PRODUCER)
    prepare(peer, b"one")
    rig.pass_time(60_000)
    assert len(questions(peer)) == rig.times.checks_max
    assert bodies(rig, "TRANS_CHECK_MAX_TIME_TOPIC") == [b"one"]


def test_a_message_that_was_checked_too_often_is_checked_again_on_request() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.call(RequestCode.HEART_BEAT, PRODUCER)
    prepare(peer, b"one")
    rig.pass_time(60_000)
    questions(peer)
    (given_up,) = rig.messages("TRANS_CHECK_MAX_TIME_TOPIC")
    halves = len(rig.messages(HALF))
    message_id = str(OffsetId(OPTIONS.address, given_up.physical_offset))
    # The second attempt makes no second half.
    for _ in range(2):
        answer = peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, topic="t", msgId=message_id)
        assert answer.code == ResponseCode.SUCCESS
    assert len(rig.messages(HALF)) == halves + 1
    rig.pass_time(6_000)
    (question, *_) = questions(peer)
    places = question.ext_fields or {}
    changes = {name: places[name] for name in ("commitLogOffset", "tranStateTableOffset")}
    end(peer, given_up, Transaction.COMMIT, fromTransactionCheck="true", **changes)
    assert bodies(rig) == [b"one"]


def test_no_other_message_becomes_a_half_on_request() -> None:
    rig = Rig()
    peer = rig.peer()
    assert peer.send(b"plain").code == ResponseCode.SUCCESS
    before = rig.store.log.end
    places = (0, 1, before, 1 << 62)
    ids = [str(OffsetId(OPTIONS.address, place)) for place in places]
    for message_id in (*ids, "", "x", "0" * 31):
        answer = peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, topic="t", msgId=message_id)
        assert answer.code == ResponseCode.SYSTEM_ERROR
    assert rig.store.log.end == before


def test_ended_transactions_are_known_behind_a_stop() -> None:
    rig = Rig()
    peer = rig.peer()
    halves = [prepare(peer, b"%d" % number) for number in range(3)]
    end(peer, halves[0], Transaction.COMMIT)
    end(peer, halves[2], Transaction.ROLLBACK)
    rig.stop()
    peer = rig.peer()
    peer.call(RequestCode.HEART_BEAT, PRODUCER)
    rig.pass_time(6_000)
    told = [decode_record(each.body) for each in questions(peer)]
    assert [bytes(each.body) for each in told if isinstance(each, Record)] == [b"1"]
    end(peer, rig.messages(HALF)[-1], Transaction.COMMIT)
    rig.stop()
    assert rig.offsets.get(HALF, "CID_RMQ_SYS_TRANS", 0) == 3
    rig.pass_time(20_000)
    assert bodies(rig) == [b"0", b"1"]


@pytest.mark.parametrize("is_killed", [False, True])
def test_half_after_a_loss_of_power_is_not_taken_for_one_that_it_took(is_killed: bool) -> None:
    """The file with the position of the checks is on the disk, and none of the messages before it."""
    rig = Rig()
    peer = rig.peer()
    for number in range(3):
        end(peer, prepare(peer, b"%d" % number), Transaction.ROLLBACK)
    rig.pass_time(20_000)
    assert b"CID_RMQ_SYS_TRANS" in rig.files["offsets"]
    rig.lose_power()
    peer = rig.peer()
    peer.call(RequestCode.HEART_BEAT, PRODUCER)
    for number in range(4):
        prepare(peer, b"%d" % number)
    if is_killed:
        rig.crash()
        peer = rig.peer()
        peer.call(RequestCode.HEART_BEAT, PRODUCER)
    rig.pass_time(10_000)
    asked = [decode_record(question.body) for question in questions(peer)]
    assert {bytes(each.body) for each in asked if isinstance(each, Record)} == {b"0", b"1", b"2", b"3"}


def test_crashes_do_not_multiply_copies() -> None:
    rig = Rig()
    prepare(rig.peer(), b"one")
    counts = []
    for _ in range(3):
        rig.pass_time(4_000)
        # How far the checks got is not in the file of offsets yet.
        rig.files.pop("offsets", None)
        rig.crash()
        counts.append(len(rig.messages(HALF)))
    assert counts == [1, 2, 3]
    peer = rig.peer()
    peer.call(RequestCode.HEART_BEAT, PRODUCER)
    rig.pass_time(6_000)
    (question, *_) = questions(peer)
    fields = question.ext_fields or {}
    answer = {"commitLogOffset": fields["commitLogOffset"], "tranStateTableOffset": fields["tranStateTableOffset"]}
    end(peer, rig.messages(HALF)[0], Transaction.COMMIT, fromTransactionCheck="true", **answer)
    rig.pass_time(20_000)
    assert questions(peer) == []
    assert bodies(rig) == [b"one"]


def test_time_of_its_own_keeps_no_other_waiting() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.call(RequestCode.HEART_BEAT, PRODUCER)
    patient = prepare(peer, b"patient", CHECK_IMMUNITY_TIME_IN_SECONDS="30")
    prepare(peer, b"other")
    rig.pass_time(10_000)
    asked = {decode_record(each.body).body.tobytes() for each in questions(peer)}  # type: ignore[union-attr]
    assert asked == {b"other"}
    end(peer, patient, Transaction.COMMIT)
    rig.pass_time(60_000)
    assert b"patient" not in {bytes(decode_record(each.body).body) for each in questions(peer)}  # type: ignore[union-attr]
    assert bodies(rig) == [b"patient"]


def test_late_commit_with_a_time_of_its_own_is_refused() -> None:
    rig = Rig()
    peer = rig.peer()
    half = prepare(peer, b"one", CHECK_IMMUNITY_TIME_IN_SECONDS="1")
    rig.wall_ms += 1_001
    answer = end(peer, half, Transaction.COMMIT)
    assert answer is not None
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert bodies(rig) == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"producerGroup": "q"}, "The producer group wrong"),
        ({"tranStateTableOffset": 7}, "The transaction state table offset wrong"),
        ({"commitLogOffset": 1 << 40}, "Find prepared transaction message failed"),
        ({"commitLogOffset": -1}, "Find prepared transaction message failed"),
        ({"commitLogOffset": 0}, "Find prepared transaction message failed"),
    ],
)
def test_wrong_end_is_refused(changes: dict[str, Any], text: str) -> None:
    rig = Rig()
    peer = rig.peer()
    peer.send(b"plain")
    half = prepare(peer, b"one")
    answer = end(peer, half, Transaction.COMMIT, **changes)
    assert answer is not None
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, text)
    assert bodies(rig) == [b"plain"]


@pytest.mark.parametrize("producers", [1, 400])
def test_checks_of_many_messages_hold_up_nobody(producers: int, caplog: pytest.LogCaptureFixture) -> None:
    """Check many messages, whose group has one producer or many; all that is given up takes one line of the log."""
    rig = Rig(
        times=TransactionTimes(check_interval_ms=1_000, timeout_ms=100, checks_max=1),
        store=StoreOptions(8 << 20, 20_000, 50, 400),
    )
    peer = rig.peer()
    for number in range(producers):
        body = {"clientID": f"c{number}", "producerDataSet": [{"groupName": "p"}]}
        rig.peer().call(RequestCode.HEART_BEAT, json.dumps(body).encode())
    for number in range(1_200):
        peer.send(b"half", {"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": f"{number}"}, f=4)
        while rig.broker.end_step():
            pass

    def steps() -> list[Callable[[], object]]:
        rig.wall_ms += 2_000
        return [rig.broker.tick, *[rig.broker.end_step] * 100]

    with caplog.at_level("WARNING"):
        check("transactions", steps)
        for _ in range(8):
            rig.pass_time(2_000)
    assert rig.store.span("TRANS_CHECK_MAX_TIME_TOPIC", 0)[1] == 1_200
    assert 1 <= sum("unknown" in each.message for each in caplog.records) <= 10
