"""Received messages as lines."""

from __future__ import annotations

import json

import pytest

from bmqctl.carrying.messages.content import Outgoing, read_message
from bmqctl.carrying.messages.received import (
    Received,
    Undecodable,
    json_form,
    text_form,
    to_json,
    to_placed_text,
    to_raw,
    to_text,
)
from bmqctl.common.decoding.decoder import Format, Wanted, make_decoder
from formats.bmq.wire.properties import Property, PropertyType

PROPERTIES = [
    Property("amount", PropertyType.INT32, 12),
    Property("raw", PropertyType.BINARY, b"\0\xff"),
    Property("text", PropertyType.STRING, "a\x1b[31m\ud800b\udcff"),
    Property("urgent", PropertyType.BOOL, True),
]


def test_a_line_of_json_can_be_posted_again() -> None:
    message = Received("40", {"guid": "40"}, b"\xff", PROPERTIES, "t", ["k", "l"], "s")
    assert read_message(to_json(message)) == Outgoing(b"\xff", PROPERTIES, "t", ["k", "l"], "s")
    assert to_json(Received("40", {"guid": "40"}, b"x", [])) == b'{"guid": "40", "payload": "x"}\n'


def test_a_decoded_payload_is_beside_the_payload_or_instead_of_it() -> None:
    message = Received("40", {"guid": "40", "broker": "b", "queue": 1, "offset": 2}, b'{"a": "\\u001b"}', [])
    decode = make_decoder(Wanted(Format.JSON))
    row = json.loads(json_form(decode)(message))
    assert (row["payload"], row["decoded"]) == ('{"a": "\\u001b"}', {"a": "\x1b"})
    assert read_message(json_form(decode)(message)).payload == message.payload
    assert text_form(decode)(message) == b'40  {"a": "\\u001b"}\n'
    assert text_form(decode, is_placed=True)(message) == b'b/1 2  40  {"a": "\\u001b"}\n'
    assert text_form(make_decoder(Wanted(Format.HEX)))(message._replace(payload=b"\xff")) == b"40  ff\n"
    # A decoded text may have characters that the terminal would obey.
    assert text_form(decode)(message._replace(payload=b'"\\u001b[2J"')) == b"40  \\x1b[2J\n"
    for form in (json_form(decode), text_form(decode)):
        with pytest.raises(Undecodable, match="message 40: the payload is not json"):
            form(message._replace(payload=b"{"))
    assert (json_form(None), text_form(None), text_form(None, is_placed=True)) == (to_json, to_text, to_placed_text)


def test_a_payload_that_exhausts_the_memory_is_not_called_malformed() -> None:
    def decode(payload: bytes) -> object:
        raise MemoryError

    with pytest.raises(Undecodable, match="message 40: there is not enough memory to decode its payload"):
        text_form(decode)(Received("40", {}, b"x", []))


def test_a_line_for_people_has_no_control_characters() -> None:
    message = Received("40", {}, "ordér\n\x07\x9b2J\u2028\t1".encode(), PROPERTIES, "paid\r")
    line = (
        "40  [paid\\x0d]  amount=12 raw=0x00ff text=a\\x1b[31m\\ud800b\\xff urgent=true  "
        "ordér\\n\\x07\\x9b2J\\u2028\\t1\n"
    )
    assert to_text(message) == line.encode()


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b"", ""),
        (b"\xff\0", "0xff00"),
        (b"x" * 1000, "x" * 1000),
        (b"x" * 1001, "x" * 1000 + "... (1,001 bytes)"),
        (b"\xff" * 501, "0x" + "ff" * 500 + "... (501 bytes)"),
    ],
)
def test_a_large_payload_is_shown_in_part(payload: bytes, shown: str) -> None:
    assert to_text(Received("40", {}, payload, [])).decode() == f"40  {shown}\n"


def test_raw_payloads_are_as_they_are() -> None:
    assert to_raw(Received("40", {}, b"\x1b\xff", PROPERTIES)) == b"\x1b\xff\n"


def test_the_place_of_a_message_is_before_it() -> None:
    message = Received("7F", {"broker": "a\x1b", "queue": 2, "offset": 7}, b"x", [])
    assert to_placed_text(message) == b"a\\x1b/2 7  7F  x\n"
