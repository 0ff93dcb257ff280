"""Messages of the gRPC protocol: every one that was captured, and whatever a stranger may send."""

from __future__ import annotations

from collections import Counter

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import FormatError
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.grpc.declarations import METHODS
from formats.rocketmq.grpc.messages import Message, decode, duration_of_ms, has_more_fields, make, ms_of, time_of_ms
from tests.golden.rocketmq.grpc_calls import GRPC_CAPTURES, calls


def unknown(message: Message) -> list[str]:
    """Name the messages within a message that have fields which are not declared."""
    found = [message.DESCRIPTOR.name] if len(UnknownFieldSet(message)) else []
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for each in [value] if hasattr(value, "ListFields") else value:
            found += unknown(each)
    return found


@pytest.mark.parametrize("capture", GRPC_CAPTURES)
def test_every_captured_message_is_read_and_written_back(capture: str) -> None:
    seen: Counter[str] = Counter()
    for call in calls(capture):
        method = METHODS[call.method]
        for name, bodies in ((method.request, call.requests), (method.response, call.answers)):
            for body in bodies:
                message = decode(name, body)
                assert unknown(message) == []
                written = message.SerializeToString()
                # Entries of a map have no order.
                assert sorted(written) == sorted(body)
                assert decode(name, written) == message
                seen[name] += 1
    assert seen["SendMessageRequest"] > 20
    assert seen["ReceiveMessageResponse"] > 20
    assert seen["TelemetryCommand"] > 10
    assert {METHODS[call.method].response for call in calls(capture) if call.answers} <= set(seen)


def test_captured_answers_mean_what_the_clients_were_told() -> None:
    sent = [call for call in calls("clients/py-grpc.pcap.xz") if call.method == "SendMessage" and call.answers]
    answer = decode("SendMessageResponse", sent[0].answers[0])
    asked = decode("SendMessageRequest", sent[0].requests[0])
    assert answer.status.code == answer.entries[0].status.code == Code.OK
    assert answer.entries[0].message_id == asked.messages[0].system_properties.message_id


@pytest.mark.parametrize("data", [b"\x0a", b"\xff" * 10, b"\x0a\x05ab", b"\x0a\x02\xff\xff"])
def test_invalid_message_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match="Resource"):
        decode("Resource", data)


def test_a_choice_has_one_value_and_a_text_may_be_given_and_empty() -> None:
    settings = make("Settings")
    settings.publishing.max_body_size = 1
    settings.subscription.fifo = False
    assert settings.WhichOneof("pub_sub") == "subscription"
    assert settings.subscription.HasField("fifo")
    assert not decode("SystemProperties", b"").HasField("tag")


@pytest.mark.parametrize("ms", [0, 1, 999, 1000, 1_700_000_000_123])
def test_times_and_durations_keep_their_milliseconds(ms: int) -> None:
    assert ms_of(time_of_ms(ms)) == ms_of(duration_of_ms(ms)) == ms


@given(st.lists(st.binary(max_size=300), max_size=20), st.booleans())
def test_fields_are_counted(ids: list[bytes], has_group: bool) -> None:
    request = make("AckMessageRequest")
    for each in ids:
        request.entries.add(message_id=each.hex(), receipt_handle="h")
    if has_group:
        request.group.name = "g"
    data = request.SerializeToString()
    count = len(ids) + has_group
    assert not has_more_fields(data, count)
    assert not count or has_more_fields(data, count - 1)


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"\x08\x96\x01\x10\x05", 2),  # numbers
        (b"\x09" + bytes(8) + b"\x0d" + bytes(4) + b"\x0a\0", 3),  # numbers of eight and of four bytes
        (b"\x7b\x0a\0\x0a\0\x7c\x0a\0", 5),  # a group
        (b"\x8a\x80\x00\x80\x00\x0a\0", 2),  # a tag and a size that are longer than they need be
    ],
)
def test_fields_of_every_kind_are_counted(data: bytes, count: int) -> None:
    decode("AckMessageRequest", data)
    assert not has_more_fields(data, count)
    assert has_more_fields(data, count - 1)


@given(st.binary(max_size=60), st.integers(0, 30))
def test_field_count_of_arbitrary_bytes_is_bounded_by_their_length(data: bytes, most: int) -> None:
    assert has_more_fields(data, most) <= (len(data) > most)
