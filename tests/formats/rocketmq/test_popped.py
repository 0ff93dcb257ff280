"""Answers to POPs: receipt handles of their messages, and answers that are none."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import FormatError
from formats.rocketmq.files.record import Magic, Record, body_crc, encode_record
from formats.rocketmq.hosts import Host
from formats.rocketmq.properties import encode_properties
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.headers.consuming import PopMessageResponse
from formats.rocketmq.remoting.popped import read_popped
from formats.rocketmq.remoting.receipts import Receipt, offset_counts_info, start_info

HOST = Host("127.0.0.1", 10911).pack()
FIELDS = write_header(
    PopMessageResponse(1_000_000, 60_000, 3, 0, start_info("orders", 1, 5), order_count_info="0 qo1%7 2")
)


def make_record(offset: int, properties: dict[str, str], topic: str = "orders") -> bytes:
    body = b"x"
    return encode_record(
        Record(
            version=Magic.V1,
            body_crc=body_crc(body),
            queue_id=1,
            flag=0,
            queue_offset=offset,
            physical_offset=4096,
            system_flags=0,
            born_ms=1,
            born_host=HOST,
            stored_ms=2,
            store_host=HOST,
            reconsume_times=1,
            prepared_transaction_offset=0,
            body=body,
            topic=topic,
            properties=encode_properties(properties),
        )
    )


def test_handles_are_made_of_the_header() -> None:
    found = read_popped("broker", FIELDS, make_record(5, {}) + make_record(7, {}))
    terms = (5, 1_000_000, 60_000, 3, "0", "broker", 1)
    assert [each.receipt for each in found] == [Receipt(*terms, 5), Receipt(*terms, 7)]
    assert [each.attempts for each in found] == [1, 2]


def test_a_handle_in_the_message_is_taken_if_it_is_of_the_message() -> None:
    own = Receipt(0, 1, 2, 3, "1", "broker", 1, 5)
    (found,) = read_popped("broker", FIELDS, make_record(5, {"POP_CK": str(own)}))
    assert found.receipt == own
    for other in (own._replace(queue_offset=6), own._replace(queue_id=2), "no receipt"):
        (found,) = read_popped("broker", FIELDS, make_record(5, {"POP_CK": str(other)}))
        assert found.receipt.kind == "0"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startOffsetInfo", "0 1"),
        ("startOffsetInfo", "0 x 5"),
        ("startOffsetInfo", "0 1 " + "9" * 20),
        ("startOffsetInfo", "0 1 -5"),
        ("orderCountInfo", "0 qo1 2"),
        ("orderCountInfo", offset_counts_info("orders", 1, 7, 2) + ";0"),
        ("popTime", "soon"),
    ],
)
def test_a_malformed_header_is_refused(name: str, value: str) -> None:
    with pytest.raises(FormatError):
        read_popped("broker", {**FIELDS, name: value}, make_record(5, {}))


def test_a_body_with_something_else_is_refused() -> None:
    whole = make_record(5, {})
    for body in (whole[:-1], whole + b"\0" * 8, b"\0" * 200):
        with pytest.raises(FormatError):
            read_popped("broker", FIELDS, body)


@given(body=st.binary(max_size=200), text=st.text("0123456789 ;qo%-", max_size=40))
def test_garbage_is_read_or_refused(body: bytes, text: str) -> None:
    with suppress(FormatError):
        read_popped("broker", {**FIELDS, "startOffsetInfo": text, "orderCountInfo": text}, body)
