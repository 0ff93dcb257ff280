"""Requests that are like one before are read as their patterns read them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from formats.rocketmq.fast.send_forms import PostedForm, form_of
from formats.rocketmq.fast.send_frames import Posted, frame_place, json_header, read_posted
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame, HeaderEncoding, encode_frame

ID = "7F0000010000000000000000000000A1"


def encoded(
    opaque: int = 7, body: bytes = b"body", encoding: HeaderEncoding = HeaderEncoding.JSON, **changes: Any
) -> memoryview:
    fields = {"a": "p", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000123", "h": "0"}
    fields.update(i=f"KEYS\1k1 k2\2UNIQ_KEY\1{ID}\2WAIT\1true\2", j="0", k="false", m="false", n="broker")
    code = RequestCode.SEND_MESSAGE_V2
    return memoryview(
        encode_frame(Frame(code, opaque, ext_fields={**fields, **changes}, body=body, version=493, encoding=encoding))
    )


def header_of(data: memoryview) -> bytes:
    place = frame_place(data, 0, len(data))
    assert place is not None
    header = json_header(data, 0, place)
    assert header is not None
    return header


def posted_at(data: memoryview) -> Posted | None:
    place = frame_place(data, 0, len(data))
    assert place is not None
    return read_posted(data, 0, place)


def read(data: memoryview) -> Posted:
    posted = posted_at(data)
    assert posted is not None
    return posted


def form(data: memoryview) -> PostedForm:
    posted = read(data)
    made = form_of(posted, posted.properties.index(ID.encode()))
    assert made is not None
    return made


def parts(posted: Posted) -> tuple[int, int, bytes, bytes]:
    return posted.queue_id, posted.born_ms, posted.properties[3], posted.opaque


QUEUES = ["0", "3", "17", "255", "256", "00", "-1", "x", ""]
TIMES = ["1700000000123", "1700000000124", "9999999999999", "0700000000123", "170000000012", "-5"]
IDS = [ID, ID[::-1], ID.lower(), ID[:-1], f"{ID}0", *(ID[:-1] + end for end in ' \u00e9"-')]


@given(
    opaque=st.one_of(st.integers(0, 2**31 - 1), st.integers(-5, 20)),
    queue_id=st.sampled_from(QUEUES),
    born=st.sampled_from(TIMES),
    unique_id=st.sampled_from(IDS),
    wait=st.sampled_from(["true", "false"]),
)
@example(opaque=0, queue_id="0", born=TIMES[0], unique_id=ID, wait="true")
def test_a_form_reads_what_the_patterns_read(opaque: int, queue_id: str, born: str, unique_id: str, wait: str) -> None:
    data = encoded(opaque, e=queue_id, g=born, i=f"KEYS\1k1 k2\2UNIQ_KEY\1{unique_id}\2WAIT\1{wait}\2")
    known = form(encoded())
    found, posted = known.read(header_of(data)), posted_at(data)
    if found is not None:
        assert posted is not None
        assert posted.rest == read(encoded()).rest
        assert found == parts(posted)
    # Requests unlike the first, and rare ones, are left to the patterns.
    is_taken = queue_id in QUEUES[:4] and born in TIMES[:3] and unique_id in IDS[:3] and wait == "true"
    assert (found is not None) == (is_taken and 0 <= opaque < 10**9)
    # Whatever it has read, it reads the next one as before.
    assert known.read(header_of(encoded(8))) == (0, 1700000000123, ID.encode(), b"8")


@pytest.mark.parametrize("at", range(len(header_of(encoded()))))
def test_each_byte_of_a_header_counts(at: int) -> None:
    header = bytearray(header_of(encoded()))
    known = form(encoded())
    for byte in (0, ord('"'), ord("0"), ord("A"), ord(","), 0xFF):
        other = bytes(header[:at]) + bytes((byte,)) + bytes(header[at + 1 :])
        data = memoryview((4 + len(other)).to_bytes(4, "big") + len(other).to_bytes(4, "big") + other)
        found, posted = known.read(other), posted_at(data)
        assert found is None or (posted is not None and found == parts(posted))
        assert known.read(other[:at]) is None


def test_requests_in_binary_and_frames_that_are_not_whole_have_no_form() -> None:
    data = encoded(encoding=HeaderEncoding.BINARY)
    place = frame_place(data, 0, len(data))
    assert place is not None
    assert json_header(data, 0, place) is None
    posted = read(data)
    assert form_of(posted, 3) is None
    assert frame_place(encoded(), 0, len(encoded()) - 1) is None
    odd = encoded(i="KEYS\1k\2UNIQ_KEY\1not an id\2WAIT\1true\2")
    assert form_of(read(odd), 3) is None
