from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmqctl.cli.tool.message_file import MessageFileError, parse_message_file
from bmqctl.cli.tool.printing import hex_dump

PROPERTIES = bytes(range(1, 30))
PAYLOAD = b"payload " * 10


def dump(properties: bytes, payload: bytes, text: str = "[ x (INT32) = 1 ]") -> bytes:
    if not properties:
        return f"Application Data:\n\n{hex_dump(payload)}".encode()
    return (
        f"Message Properties:\n\n{text}\n\n\nMessage Properties hexdump:\n\n{hex_dump(properties)}\n\n"
        f"Message Payload:\n\n{hex_dump(payload)}\n"
    ).encode()


@pytest.mark.parametrize("properties", [b"", PROPERTIES])
def test_message_file_of_a_broker_is_read_back(properties: bytes) -> None:
    assert parse_message_file(dump(properties, PAYLOAD)) == (properties, PAYLOAD)


def test_properties_as_text_may_be_anything() -> None:
    assert parse_message_file(dump(PROPERTIES, PAYLOAD, "[ raw (BINARY) =\n\n  Message Payload:\n ]")) == (
        PROPERTIES,
        PAYLOAD,
    )


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "first line"),
        (b"something else\n", "first line"),
        (b"Message Properties:\n\n[ ]\n", "hexdump:'"),
        (b"Message Properties:\n\n[ ]\n\n\nMessage Properties hexdump:\n\n     0:   00     |.|\n\n", "Payload:'"),
        (b"Application Data:\n\nnospace\n", "no line"),
        (b"Application Data:\n\n     0:   0011223344     |.|\n", "no block"),
        (b"Application Data:\n\n     0:   001     |.|\n", "no block"),
    ],
)
def test_invalid_message_file_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(MessageFileError, match=why):
        parse_message_file(data)


@given(st.binary(max_size=300))
def test_garbage_is_refused_in_good_order(data: bytes) -> None:
    for title in (b"", b"Application Data:\n\n", b"Message Properties:\n\n[ ]\n\n\nMessage Properties hexdump:\n\n"):
        try:
            parse_message_file(title + data)
        except MessageFileError:
            continue
