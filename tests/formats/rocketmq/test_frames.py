"""Frames and headers: every one that was captured, both encodings, and whatever a stranger may send."""

from __future__ import annotations

import json
import struct
from collections import Counter
from functools import cache
from typing import Annotated, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import FormatError
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import (
    FRAME_BYTES_MAX,
    Frame,
    FrameFlag,
    HeaderEncoding,
    LanguageCode,
    encode_frame,
    next_frame,
)
from formats.rocketmq.remoting.headers.codec import HeaderCodec, Int, Long
from formats.rocketmq.remoting.headers.sending import SendMessageRequest, SendMessageRequestV2
from formats.rocketmq.remoting.headers.table import HEADERS
from tests.formats.rocketmq.frames_rig import all_frames
from tests.golden.rocketmq.captures import CAPTURES, streams

OTHER_PROTOCOLS = {8080, 8081, 20912, 22912, 24112, 24212, 24312}
"""Ports of the captures that speak gRPC or copy commit logs."""

# Fields that any request or answer may carry beside its header: routing, signatures, and the broker's description.
ENVELOPE = {"bname", "lo", "ReqT", "AccessKey", "OnsChannel", "Signature", "MSG_REGION", "TRACE_ON"}
UNDECLARED = {
    (RequestCode.QUERY_MESSAGE, "_UNIQUE_KEY_QUERY"),
    (RequestCode.QUERY_MESSAGE, "indexType"),
}


@cache
def captured() -> list[tuple[str, int, int, list[tuple[Frame, bytes]]]]:
    """List the capture, both ports, and the frames with their bytes of each connection and direction."""
    return [
        (capture, stream.source, stream.target, list(all_frames(stream.data)))
        for capture in CAPTURES
        for stream in streams(capture)
        if not {stream.source, stream.target} & OTHER_PROTOCOLS
    ]


@pytest.mark.slow
def test_every_captured_frame_is_read_and_written_back() -> None:
    read: Counter[str] = Counter()
    for capture, _, _, frames in captured():
        for frame, data in frames:
            written = encode_frame(frame)
            if b'"serializeTypeCurrentRPC"' in data:
                assert written == data
            else:
                # Other clients write the same fields in another order, and numbers as such.
                assert [again for again, _ in all_frames(written)] == [frame]
            read[capture.partition("/")[0]] += 1
    assert read == {"clients": 2163, "ha-classic": 94, "ha-controller": 1068, "ha-truncate": 260, "pcap": 2640}


@pytest.mark.slow
def test_every_captured_header_is_declared() -> None:
    """A header that is read and written again has all the fields that it had."""
    asked: dict[tuple[str, int, int, int], int] = {}
    seen: set[int] = set()
    for capture, source, target, frames in captured():
        for frame, _ in frames:
            if not frame.is_response:
                asked[capture, source, target, frame.opaque] = frame.code
    for capture, source, target, frames in captured():
        for frame, _ in frames:
            code = asked.get((capture, target, source, frame.opaque)) if frame.is_response else frame.code
            if code not in HEADERS or (frame.is_response and frame.code != ResponseCode.SUCCESS):
                continue
            codec = HEADERS[code].response if frame.is_response else HEADERS[code].request
            if codec is None:
                continue
            given_fields = frame.ext_fields or {}
            written = codec.write(codec.read(given_fields))
            assert {name for name in given_fields if (code, name) not in UNDECLARED} - ENVELOPE <= set(written)
            if frame.language is LanguageCode.JAVA:
                assert {name: value for name, value in written.items() if name in given_fields} == {
                    name: value for name, value in given_fields.items() if name in written
                }
            seen.add(code)
    assert len(seen) > 50


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ints = st.integers(-(1 << 31), (1 << 31) - 1)


@pytest.mark.slow
@given(
    st.builds(
        Frame,
        code=st.integers(-(1 << 15), (1 << 15) - 1),
        opaque=ints,
        flag=ints,
        remark=st.none() | texts.filter(bool),
        ext_fields=st.none() | st.dictionaries(texts, texts, min_size=1),
        body=st.binary(max_size=50),
        language=st.sampled_from(LanguageCode),
        version=st.integers(0, (1 << 15) - 1),
        encoding=st.sampled_from(HeaderEncoding),
    ),
    st.binary(max_size=10),
)
def test_any_frame_is_read_as_it_was_written(frame: Frame, more: bytes) -> None:
    data = encode_frame(frame)
    assert next_frame(memoryview(data + more), 0, len(data) + len(more)) == (frame, len(data))
    for end in (0, 3, len(data) - 1):
        assert next_frame(memoryview(data), 0, end) is None


def test_flag_says_what_a_frame_is() -> None:
    answer = Frame(ResponseCode.SUCCESS, 7, FrameFlag.RESPONSE)
    assert answer.is_response
    assert not answer.is_one_way
    assert Frame(RequestCode.UPDATE_CONSUMER_OFFSET, 7, FrameFlag.ONE_WAY).is_one_way


def framed(header: bytes, encoding: int = 0, body: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), encoding << 24 | len(header)) + header + body


def binary(remark: bytes = b"", fields: bytes = b"", *, remark_size: int | None = None) -> bytes:
    front = struct.pack(">hbhii", 10, 0, 1, 2, 0)
    size = len(remark) if remark_size is None else remark_size
    return framed(front + struct.pack(">i", size) + remark + struct.pack(">i", len(fields)) + fields, 1)


@pytest.mark.parametrize(
    ("data", "path", "reason"),
    [
        (struct.pack(">I", FRAME_BYTES_MAX + 1), "Frame.length", "16777217 bytes are more than the 16777216"),
        (struct.pack(">I", 3), "Frame.length", "3 bytes have no room"),
        (struct.pack(">II", 4, 5), "Frame.header_length", "the header reaches 5 bytes beyond the frame"),
        (
            framed(b" " * (1 << 20) + b"{}"),
            "Frame.header_length",
            "1048578 bytes are more than the 1048576 of a header",
        ),
        (framed(b"{}", 2), "Frame.header_encoding", "2 is neither JSON (0) nor binary (1)"),
        (framed(b"\xff"), "Frame.header", "is not UTF-8"),
        (framed(b"[]"), "Frame.header", "is not a JSON object"),
        (framed(b"{"), "json", "expecting property name"),
        (framed(b"{}"), "Frame.code", "is missing"),
        (framed(b'{"code":"x"}'), "Frame.code", "'x' is not an int of 32 bits"),
        (framed(b'{"code":true}'), "Frame.code", "'True' is not an int of 32 bits"),
        (framed(b'{"code":1,"opaque":2147483648}'), "Frame.opaque", "'2147483648' is not an int of 32 bits"),
        (framed(b'{"code":1,"language":3}'), "Frame.language", "is not a string"),
        (framed(b'{"code":1,"remark":{}}'), "Frame.remark", "is not a string"),
        (framed(b'{"code":1,"extFields":[]}'), "Frame.extFields", "is not a JSON object"),
        (framed(b'{"code":1,"extFields":{"a":[]}}'), "Frame.extFields.a", "is not a single value"),
        (framed(b'{"code":1,"extFields":{"a":"\\ud800"}}'), "Frame.header", "has half of a surrogate pair"),
        (framed(b'{"code":1,"extFields":{"\\uDFFF":"a"}}'), "Frame.header", "has half of a surrogate pair"),
        (framed(b'{"code":1,"remark":"\\ude00\\ud83d"}'), "Frame.header", "has half of a surrogate pair"),
        (framed(b'{"code":1,"extFields":{1:"\\ud800"}}'), "json", "is half of a surrogate pair"),
        (framed(b'{"code":' + b"[" * 30_000 + b"}"), "json", "lists and objects begin in"),
        (framed(b'{"code":' + b"[" * 100_000 + b"}"), "json", "has more than 32000 lists and objects"),
        (framed(b"\0" * 12, 1), "BinaryFront", "needs 13 bytes, 12 left"),
        (framed(b"\0" * 13, 1), "Frame.remark", "its length is cut off"),
        (binary(remark_size=-1), "Frame.remark", "-1 bytes do not fit into the 4 that are left"),
        (binary(remark_size=1 << 30), "Frame.remark", "1073741824 bytes do not fit"),
        (binary(fields=b"\0\5a"), "Frame.extFields", "5 bytes do not fit into the 1 that are left"),
        (binary(remark=b"\xff"), "Frame.remark", "is not UTF-8"),
    ],
)
def test_frame_of_a_stranger_is_refused(data: bytes, path: str, reason: str) -> None:
    with pytest.raises(FormatError) as caught:
        next_frame(memoryview(data), 0, len(data))
    assert caught.value.path == path
    assert reason in caught.value.reason
    assert 0 <= caught.value.offset <= len(data)


def test_numbers_and_booleans_of_other_clients_become_text() -> None:
    header = {"code": 11, "opaque": 1, "language": "COBOL", "extFields": {"queueId": 3, "order": True, "exp": None}}
    found = next_frame(memoryview(data := framed(json.dumps(header).encode())), 0, len(data))
    assert found is not None
    assert found[0].ext_fields == {"queueId": "3", "order": "true"}
    assert found[0].language is LanguageCode.OTHER


def test_bare_frame_can_be_answered_and_no_more() -> None:
    frame = Frame(11, 7, 2, "remark", {"a": "b"}, b"body", LanguageCode.GO, 5, HeaderEncoding.BINARY)
    assert frame.bare == Frame(11, 7, 2, None, None, b"", LanguageCode.GO, 5, HeaderEncoding.BINARY)


def test_surrogate_pair_is_one_character() -> None:
    data = framed(rb'{"code":10,"remark":"\ud83d\ude00","extFields":{"a":"\uD83D\uDE00","b":"\\ud800"}}')
    found = next_frame(memoryview(data), 0, len(data))
    assert found is not None
    assert (found[0].remark, found[0].ext_fields) == ("\U0001f600", {"a": "\U0001f600", "b": r"\ud800"})


def test_code_that_a_binary_header_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="code 200050"):
        encode_frame(Frame(RequestCode.POP_MESSAGE, 1, encoding=HeaderEncoding.BINARY))


def test_both_versions_of_the_send_header_say_the_same() -> None:
    first, second = HeaderCodec(SendMessageRequest), HeaderCodec(SendMessageRequestV2)
    theirs = {(field.name, field.kind, field.bounds) for field in second.fields if field.name != "broker_name"}
    assert {(field.name, field.kind, field.bounds) for field in first.fields} == theirs


class Example(NamedTuple):
    """A header of every type."""

    queue_id: Int
    born_at: Annotated[Long, "bornTimestamp"]
    note: str | None = None
    is_batch: Annotated[bool | None, "batch"] = None
    times: Int = 3


EXAMPLE = HeaderCodec(Example)


def test_header_is_read_by_its_declaration() -> None:
    fields = {"queueId": "+1", "bornTimestamp": "-9223372036854775808", "batch": "TRUE", "other": "x"}
    assert EXAMPLE.read(fields) == Example(1, -(1 << 63), None, True, 3)
    assert EXAMPLE.read({"queueId": "1", "bornTimestamp": "2", "batch": "1"}).is_batch is False
    assert EXAMPLE.write(Example(1, 2, is_batch=False)) == {
        "queueId": "1",
        "bornTimestamp": "2",
        "batch": "false",
        "times": "3",
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (None, "Example.queueId at offset 0: is missing"),
        ({"queueId": "1"}, "Example.bornTimestamp at offset 0: is missing"),
        ({"queueId": "1.5"}, "Example.queueId at offset 0: '1.5' is no integer"),
        ({"queueId": "\u0661"}, "Example.queueId at offset 0: '\u0661' is no integer"),
        ({"queueId": "9" * 5000}, f"Example.queueId at offset 0: '{'9' * 40}' is no integer"),
        (
            {"queueId": "2147483648"},
            "Example.queueId at offset 0: 2147483648 is not between -2147483648 and 2147483647",
        ),
    ],
)
def test_header_that_is_not_as_declared_is_refused(fields: dict[str, str] | None, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        EXAMPLE.read(fields)
    assert str(caught.value) == message


def test_number_that_does_not_fit_is_not_written() -> None:
    with pytest.raises(OverflowError, match="queue_id = 2147483648"):
        EXAMPLE.write(Example(1 << 31, 0))


@pytest.mark.parametrize("code", HEADERS, ids=lambda code: RequestCode(code).name)
def test_every_declared_header_has_names_of_its_own(code: int) -> None:
    for codec in HEADERS[code]:
        if codec is not None:
            assert codec.fields
            assert len({field.wire_name for field in codec.fields}) == len(codec.fields)


def test_fields_that_only_fastjson_reads_are_text() -> None:
    # Names without quotes are numbers there.
    header = b'{"code":10,"extFields":{1:"one","two":2,"three":null},"opaque":7}'
    data = struct.pack(">II", 4 + len(header), len(header)) + header
    found = next_frame(memoryview(data), 0, len(data))
    assert found is not None
    assert found[0].ext_fields == {"1": "one", "two": "2"}
