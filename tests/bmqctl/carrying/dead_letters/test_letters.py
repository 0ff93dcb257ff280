"""Dead letters, what they become when they are sent again, and their marks."""

from __future__ import annotations

import json

import pytest

from bmqctl.carrying.dead_letters.letters import Letter, Mark, groups_of, mark_message, read_mark, to_retry, to_topic
from formats.rocketmq.files.record import Magic, Record
from formats.rocketmq.properties import decode_properties

PLACE = b"\x7f\0\0\1\0\0\0\0"
OWN = {"UNIQ_KEY": "ID", "TAGS": "paid", "KEYS": "k-1", "own": "1"}


def letter(**more: str) -> Letter:
    text = "".join(f"{name}\x01{value}\x02" for name, value in {**OWN, **more}.items()).encode()
    record = Record(Magic.V1, 0, 3, 7, 17, 4711, 0, 1, PLACE, 1_000_500, PLACE, 2, 0, b"body", "%DLQ%billing", text)
    return Letter("billing", "broker-a", record)


def test_groups() -> None:
    assert groups_of(["orders", "%DLQ%b", "%RETRY%a", "%DLQ%a"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("more", "topic"),
    [
        ({"RETRY_TOPIC": "orders"}, "orders"),
        ({"DLQ_ORIGIN_TOPIC": "orders", "RETRY_TOPIC": "%RETRY%billing"}, "orders"),
        ({"RETRY_TOPIC": "%RETRY%billing"}, None),
        ({}, None),
    ],
)
def test_the_original_topic(more: dict[str, str], topic: str | None) -> None:
    assert letter(**more).original_topic == topic


def test_a_letter_is_sent_again_with_what_the_application_gave_it() -> None:
    dead = letter(RETRY_TOPIC="orders", ORIGIN_MESSAGE_ID="FIRST", DELAY="0", REAL_TOPIC="x")
    made = to_topic(dead)
    assert (made.flag, made.body, decode_properties(made.properties)) == (7, b"body", OWN)
    retried = decode_properties(to_retry(dead, "orders").properties)
    assert retried == {**OWN, "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "FIRST"}
    assert "ORIGIN_MESSAGE_ID" not in decode_properties(to_retry(letter(), "orders").properties)


def test_marks() -> None:
    dead = letter()
    made = mark_message(dead, "orders", "2026-11-26T00:00:00", "MARK")
    assert read_mark(bytes(made.body)) == Mark(dead.key, "orders", "2026-11-26T00:00:00")
    assert decode_properties(made.properties) == {"UNIQ_KEY": "MARK", "TAGS": "billing", "KEYS": "ID"}
    assert dead.key == "billing/broker-a/3/17/1000500"
    assert dead.stored_at == "1970-01-01T00:16:40.500+00:00"
    absurd = [dead._replace(record=dead.record._replace(stored_ms=each)) for each in (-(1 << 63), (1 << 63) - 1)]
    assert [each.stored_at[:10] for each in absurd] == ["0001-01-01", "9999-12-31"]
    # A letter at the same place in a topic that was created again is another one.
    assert dead.key != dead._replace(record=dead.record._replace(stored_ms=1)).key


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[1]",
        b"{}",
        b'{"letter": 1, "to": "a", "at": "b"}',
        json.dumps({"letter": "x" * 1000, "to": "a", "at": "b"}).encode(),
        b"[" * 100_000,
    ],
)
def test_body_without_a_mark_is_skipped(body: bytes) -> None:
    assert read_mark(body) is None
