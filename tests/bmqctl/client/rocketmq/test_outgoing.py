"""Decisions on messages that are on their way: queue, order, repetition, end."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bmqctl.client.remoting.routes import Queue
from bmqctl.client.rocketmq.outgoing import (
    Fate,
    Item,
    Options,
    Outbox,
    Request,
    Verdict,
    encode_message,
    verdict_of,
)
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.codes import ResponseCode

SECOND_NS = 1_000_000_000
PLAIN = Options()
QUEUES = [Queue(0, "a", "a:1"), Queue(0, "b", "b:1"), Queue(1, "a", "a:1"), Queue(1, "b", "b:1")]


def outbox(*queues: Queue) -> Outbox:
    made = Outbox()
    made.route(queues or QUEUES)
    return made


def put(box: Outbox, name: str, options: Options = PLAIN, until_s: int = 60) -> Item:
    item = Item(name, encode_message(name.encode(), options, name), options, None, until_s * SECOND_NS)
    box.put(item)
    return item


def names(request: Request) -> list[str]:
    return [item.message_id for item in request.items]


def test_options_become_properties() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    options = Options({"color": "red"}, "T", ["k1", "k2"], 0, at, "shard")
    assert decode_properties(encode_message(b"x", options, "ID").properties) == {
        "color": "red",
        "KEYS": "k1 k2",
        "TAGS": "T",
        "TIMER_DELIVER_MS": "1767225600000",
        "__SHARDINGKEY": "shard",
        "UNIQ_KEY": "ID",
    }
    urgent = encode_message(b"x", Options(priority=0), "ID")
    assert decode_properties(urgent.properties) == {"_SYS_MSG_PRIORITY_": "0", "UNIQ_KEY": "ID"}
    late = encode_message(memoryview(b"x"), Options(keys="one", delay_level=3), "ID")
    assert decode_properties(late.properties) == {"KEYS": "one", "DELAY": "3", "UNIQ_KEY": "ID"}


@pytest.mark.parametrize(
    ("payload", "options", "words"),
    [
        (b"", Options(), "has a payload"),
        (b"x" * (16 << 20), Options(), "more than"),
        (b"x", Options({"TAGS": "x"}), "meaning of its own"),
        (b"x", Options({"": "x"}), "not empty"),
        (b"x", Options({"n": 5}), "strings"),  # type: ignore[dict-item]
        (b"x", Options({"n": "\x02"}), "separator"),
        (b"x", Options({"n": "x" * 40_000}), "more than 32767"),
        (b"x", Options(keys=["a b"]), "no spaces"),
        (b"x", Options(delay_level=1, deliver_at=datetime(2026, 1, 1, tzinfo=UTC)), "or neither"),
        (b"x", Options(delay_level=-1), "or neither"),
        (b"x", Options(priority=-1), "priority"),
        (b"x", Options(priority=1 << 31), "priority"),
        (b"x", Options(priority=1, delay_level=1), "no delay"),
        (b"x", Options(priority=1, deliver_at=datetime(2026, 1, 1, tzinfo=UTC)), "no delay"),
        (b"x", Options(priority=1, sharding_key="k"), "no sharding key"),
    ],
)
def test_impossible_message_is_refused_with_its_reason(payload: bytes, options: Options, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        encode_message(payload, options, "ID")


def test_messages_go_to_the_queues_in_turn_and_together_when_they_wait() -> None:
    box = outbox()
    for number in range(300):
        put(box, str(number))
    requests = box.requests(0)
    assert [(each.queue, len(each.items)) for each in requests] == [(QUEUES[0], 128), (QUEUES[1], 128), (QUEUES[2], 44)]
    assert [name for each in requests for name in names(each)] == [str(number) for number in range(300)]
    put(box, "late", Options(delay_level=1))
    put(box, "urgent", Options(priority=1))
    put(box, "next")
    assert [names(each) for each in box.requests(0)] == [["late"], ["urgent"], ["next"]]
    assert box.count == 303


def test_a_broker_that_fails_is_passed_over_and_its_messages_go_to_the_other() -> None:
    box = outbox()
    item = put(box, "x")
    (request,) = box.requests(0)
    assert request.queue.broker_name == "a"
    assert box.answered(request, Verdict.UNKNOWN, "lost", 0) == []
    assert item.may_be_stored
    for number in range(4):
        put(box, str(number))
        assert {each.queue.broker_name for each in box.requests(number)} == {"b"}
    box.answered(Request(QUEUES[1], []), Verdict.STORED, "", 0)
    put(box, "later")
    put(box, "latest", Options(delay_level=1))
    assert {each.queue.broker_name for each in box.requests(3 * SECOND_NS)} == {"a", "b"}


def test_a_key_has_one_queue_one_request_at_a_time_and_its_order() -> None:
    box = outbox()
    keyed = Options(sharding_key="customer 7")
    put(box, "0", keyed)
    (first,) = box.requests(0)
    put(box, "1", keyed)
    put(box, "2", keyed)
    assert box.requests(0) == []
    assert box.answered(first, Verdict.AGAIN, "busy", 0) == []
    assert box.requests(0) == []
    (again,) = box.requests(3 * SECOND_NS)
    assert names(again) == ["0", "1", "2"]
    assert again.queue == first.queue
    assert [(each.item.message_id, each.fate) for each in box.answered(again, Verdict.STORED, "", 0)] == [
        ("0", Fate.STORED),
        ("1", Fate.STORED),
        ("2", Fate.STORED),
    ]
    assert (box.count, box.size) == (0, 0)
    assert box.due_ns(0) is None


def test_an_illegal_batch_is_sent_again_one_by_one() -> None:
    box = outbox(QUEUES[0])
    for name in ("good", "bad"):
        put(box, name)
    (request,) = box.requests(0)
    assert box.answered(request, Verdict.ILLEGAL, "too large", 0) == []
    good, bad = box.requests(0)
    assert [names(good), names(bad)] == [["good"], ["bad"]]
    assert [each.fate for each in box.answered(good, Verdict.STORED, "", 0)] == [Fate.STORED]
    (settled,) = box.answered(bad, Verdict.ILLEGAL, "too large", 0)
    assert (settled.fate, settled.reason) == (Fate.REFUSED, "too large")


def test_message_refused_by_all_brokers_is_refused() -> None:
    box = outbox()
    put(box, "x")
    (request,) = box.requests(0)
    assert box.answered(request, Verdict.NOT_HERE, "no permission", 0) == []
    (request,) = box.requests(0)
    (settled,) = box.answered(request, Verdict.NOT_HERE, "no permission", 0)
    assert settled.fate is Fate.REFUSED


def test_messages_are_given_up_in_time() -> None:
    box = outbox(QUEUES[0])
    put(box, "asked", until_s=1)
    (request,) = box.requests(0)
    put(box, "waiting", until_s=1)
    assert [(each.item.message_id, each.fate) for each in box.expire(SECOND_NS)] == [("waiting", Fate.REFUSED)]
    assert box.answered(request, Verdict.UNKNOWN, "lost", SECOND_NS) == []
    (settled,) = box.expire(SECOND_NS)
    assert (settled.fate, settled.reason) == (Fate.UNCERTAIN, "lost")
    put(box, "at the end", Options(sharding_key="k"))
    assert [each.fate for each in box.give_up("ended")] == [Fate.REFUSED]
    assert box.count == 0


def test_a_message_without_repetition_is_sent_once() -> None:
    box = outbox(QUEUES[0])
    message = encode_message(b"once", PLAIN, "once")
    box.put(Item("once", message, PLAIN, None, until_ns=0, first_until_ns=10 * SECOND_NS))
    assert box.expire(0) == []
    (request,) = box.requests(0)
    assert box.answered(request, Verdict.AGAIN, "busy", SECOND_NS) == []
    (settled,) = box.expire(SECOND_NS)
    assert (settled.fate, settled.reason) == (Fate.REFUSED, "busy")
    box.route([])
    box.put(Item("never", message, PLAIN, None, until_ns=0, first_until_ns=10 * SECOND_NS))
    assert box.expire(9 * SECOND_NS) == []
    assert [each.item.message_id for each in box.expire(10 * SECOND_NS)] == ["never"]


def test_message_in_flight_at_the_end_is_uncertain_and_ends_once() -> None:
    box = outbox(QUEUES[0])
    put(box, "plain")
    put(box, "keyed", Options(sharding_key="k"))
    plain, keyed = box.requests(0)
    put(box, "waiting", Options(sharding_key="k"))
    assert [(each.item.message_id, each.fate) for each in box.give_up("ended")] == [
        ("plain", Fate.UNCERTAIN),
        ("keyed", Fate.UNCERTAIN),
        ("waiting", Fate.REFUSED),
    ]
    assert (box.count, box.size) == (0, 0)
    assert box.answered(plain, Verdict.STORED, "", 0) == box.answered(keyed, Verdict.UNKNOWN, "lost", 0) == []
    assert box.requests(SECOND_NS) == []
    assert box.give_up("ended") == []


def test_nothing_is_sent_without_queues() -> None:
    box = Outbox()
    put(box, "x")
    assert box.requests(0) == []
    assert box.due_ns(0) == SECOND_NS


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ResponseCode.SUCCESS, Verdict.STORED),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, Verdict.STORED),
        (ResponseCode.MESSAGE_ILLEGAL, Verdict.ILLEGAL),
        (ResponseCode.NO_PERMISSION, Verdict.NOT_HERE),
        (ResponseCode.SYSTEM_BUSY, Verdict.AGAIN),
        (4711, Verdict.AGAIN),
    ],
)
def test_codes_have_meanings(code: int, verdict: Verdict) -> None:
    assert verdict_of(code) is verdict
