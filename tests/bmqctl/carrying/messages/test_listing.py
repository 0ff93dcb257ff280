"""Lists of messages from a broker's administration, and answers that are none."""

from __future__ import annotations

import json

import pytest

from bmqctl.carrying.messages.browsing import start_of
from bmqctl.carrying.messages.ends import CannotBegin
from bmqctl.carrying.messages.listing import Listed, Listing, list_command, read_listing

QUEUE = "bmq://my.domain/orders"
GUID = "40000000000001AA3B662AA85CEDD6BE"
TIME = "2026-11-24T00:08:06.740+00:00"
MESSAGE = {"guid": GUID, "sizeBytes": 7, "arrivalTimestamp": TIME}
CONTENTS = {"messages": [MESSAGE], "offset": 3, "totalQueueMessages": 9}


def test_a_queue_and_its_apps_are_named_in_the_command() -> None:
    wanted = "ENCODING JSON_COMPACT DOMAINS DOMAIN my.domain QUEUE orders LIST"
    assert list_command(QUEUE, -10, 20) == f"{wanted} -10 20"
    assert list_command(f"{QUEUE}?id=audit", 0, 20) == f"{wanted} audit 0 20"
    assert "DOMAIN my.domain.~tier QUEUE" in list_command("bmq://my.domain.~tier/orders", 0, 20)


def test_an_answer_is_read() -> None:
    found = read_listing(QUEUE, json.dumps({"queueContents": CONTENTS}))
    assert found == Listing([Listed(GUID, 7, TIME)], 3, 9)


def test_the_answer_about_an_empty_queue_has_no_messages() -> None:
    assert read_listing(QUEUE, '{"queueContents":{"offset":0,"totalQueueMessages":0}}') == Listing([], 0, 0)


def test_a_refusal_is_one_line_without_control_characters() -> None:
    with pytest.raises(CannotBegin) as refused:
        read_listing(QUEUE, json.dumps({"error": {"message": "no\n\x1b[31m" + "x" * 5000}}))
    text = str(refused.value)
    assert text.startswith(f"{QUEUE}: 'no\\n\\x1b[31mxxx")
    assert len(text) < 400


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "[" * 100_000,
        "[]",
        "{}",
        '{"error": "no"}',
        json.dumps({"queueContents": []}),
        *(
            json.dumps({"queueContents": {**CONTENTS, **change}})
            for change in (
                {"messages": None},
                {"messages": [1]},
                {"offset": -1},
                {"totalQueueMessages": True},
                {"messages": [{**MESSAGE, "guid": "\x1b" * 32}]},
                {"messages": [{**MESSAGE, "sizeBytes": 1 << 70}]},
                {"messages": [{**MESSAGE, "arrivalTimestamp": "\x1b[31m"}]},
            )
        ),
    ],
)
def test_invalid_listing_is_refused(answer: str) -> None:
    with pytest.raises(CannotBegin, match="the broker's answer is not understood") as refused:
        read_listing(QUEUE, answer)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("offset", "start"), [(None, 10), (0, 10), (10, 10), (15, 15), (20, 20), (99, 20), (-3, 17), (-99, 10)]
)
def test_offsets_are_within_what_is_there(offset: int | None, start: int) -> None:
    assert start_of(10, 20, offset) == start
