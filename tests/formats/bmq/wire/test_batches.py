"""ACK, CONFIRM and REJECT: a header and then messages of one size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.bmq.codes import AckStatus, EventType
from formats.bmq.wire.ack import ack_runs, build_ack_event, iter_acks, pack_ack
from formats.bmq.wire.confirm import build_confirm_event, iter_confirms
from formats.bmq.wire.event import next_frame
from formats.bmq.wire.reject import build_reject_event, iter_rejects
from formats.errors import FormatError

GUID = bytes(range(16))
queue_ids = st.integers(-(1 << 31), (1 << 31) - 1)
guids = st.binary(min_size=16, max_size=16)
acks = st.tuples(st.sampled_from(AckStatus).map(int), st.integers(0, (1 << 24) - 1), guids, queue_ids)
confirms = st.tuples(queue_ids, guids, queue_ids)

Reader = Callable[[memoryview, int, int], Iterable[Any]]
FAMILIES: list[tuple[EventType, Callable[[Iterable[Any]], bytes], Reader, st.SearchStrategy[Any]]] = [
    (
        EventType.ACK,
        build_ack_event,
        lambda buffer, start, end: (tuple(ack)[1:] for ack in iter_acks(buffer, start, end)),
        acks,
    ),
    (EventType.CONFIRM, build_confirm_event, iter_confirms, confirms),
    (EventType.REJECT, build_reject_event, iter_rejects, confirms),
]
READERS: list[Reader] = [iter_acks, lambda *body: iter(ack_runs(*body)), iter_confirms, iter_rejects]


@pytest.mark.parametrize(("event_type", "build", "read", "items"), FAMILIES)
@given(data=st.data())
def test_messages_come_back(
    event_type: EventType,
    build: Callable[[Iterable[Any]], bytes],
    read: Reader,
    items: st.SearchStrategy[Any],
    data: st.DataObject,
) -> None:
    messages = data.draw(st.lists(items, max_size=5))
    event = build(messages)
    frame = next_frame(event, 0, len(event), len(event))
    assert frame is not None
    assert frame.type == event_type
    assert list(read(memoryview(event), frame.body, frame.end)) == messages


@given(st.lists(st.tuples(st.sampled_from((0, 1, 7)), st.just(0), guids, st.integers(-1, 1)), max_size=9))
def test_runs_of_acks_are_their_messages(messages: list[tuple[int, int, bytes, int]]) -> None:
    event = build_ack_event(messages)
    runs = ack_runs(memoryview(event), 8, len(event))
    assert [(run.status, 0, each, run.queue_id) for run in runs for each in run.guids] == messages
    assert all(one[:2] != other[:2] for one, other in pairwise(runs))


def test_the_bytes_of_each() -> None:
    guid = GUID.hex()
    assert build_ack_event([(AckStatus.NOT_READY, 0x0A0B0C, GUID, 5)]).hex() == (
        "00000024450200001600000007" + "0a0b0c" + guid + "00000005"
    )
    assert build_confirm_event([(5, GUID, 3)]).hex() == "0000002443020000160000000000" + "0005" + guid + "00000003"
    assert build_reject_event([(5, GUID, 3)]).hex() == "000000244d020000160000000000" + "0005" + guid + "00000003"


def test_any_other_status_is_a_failure_without_a_code() -> None:
    assert [AckStatus(code) for code in range(9)] == [
        AckStatus.SUCCESS,
        AckStatus.LIMIT_MESSAGES,
        AckStatus.LIMIT_BYTES,
        AckStatus.UNKNOWN,
        AckStatus.UNKNOWN,
        AckStatus.UNKNOWN,
        AckStatus.STORAGE_FAILURE,
        AckStatus.NOT_READY,
        AckStatus.UNKNOWN,
    ]


@pytest.mark.parametrize("read", READERS)
def test_a_newer_sender_may_have_longer_headers_and_messages(read: Reader) -> None:
    message = pack_ack(0, 1, GUID, 2)
    plain = b"\x16\0\0\0" + message * 2
    longer = b"\x27\0\0\0new!" + (message + b"new!") * 2
    assert list(read(memoryview(longer), 0, len(longer))) == list(read(memoryview(plain), 0, len(plain)))


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x16\0\0",
        b"\x06\0\0\0" + bytes(20),
        b"\x15\0\0\0" + bytes(20),
        b"\x10\0\0\0",
        b"\x16\0\0\0" + bytes(23),
        b"\x26\0\0\0" + bytes(24),
        b"\x76\0\0\0",
    ],
)
def test_messages_that_do_not_fill_the_body_are_refused_at_once(read: Reader, body: bytes) -> None:
    with pytest.raises(FormatError):
        read(memoryview(body), 0, len(body))
