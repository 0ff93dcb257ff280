"""Inputs that are read in pieces, and what they make of options."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest

from bmqctl.carrying.messages import sources
from bmqctl.carrying.messages.content import BadInput, Outgoing
from bmqctl.carrying.messages.sources import Form, Input, make_source
from formats.bmq.wire.properties import Property, PropertyType

pytestmark = pytest.mark.trio

NOTHING = Outgoing(b"")
A = Property("a", PropertyType.INT64, 1)


@contextmanager
def opened(folder: Path, content: bytes) -> Iterator[int]:
    file = folder / "input"
    file.write_bytes(content)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def messages_of(
    folder: Path, form: Form, content: bytes, usual: Outgoing = NOTHING, count_max: int | None = None
) -> list[tuple[int, Outgoing]]:
    with opened(folder, content) as descriptor:
        async with aclosing(make_source(Input(form, None, descriptor), usual, count_max).messages()) as messages:
            return [each async for each in messages]


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("end", [b"", b"\n"])
async def test_lines_are_as_long_as_they_are_whatever_the_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_size: int, end: bytes
) -> None:
    monkeypatch.setattr(sources, "_CHUNK_SIZE", chunk_size)
    found = await messages_of(tmp_path, Form.LINES, b"one\n\ntwo\r\n" + b"x" * 20 + end)
    wanted = [b"one", b"", b"two\r", b"x" * 20]
    assert found == [(number, Outgoing(payload)) for number, payload in enumerate(wanted, 1)]


async def test_an_input_is_one_payload_with_its_line_feeds(tmp_path: Path) -> None:
    usual = Outgoing(b"", [A], "t", ("k",))
    found = await messages_of(tmp_path, Form.PAYLOAD, b"one\ntwo\n", usual, 2)
    assert found == [(number, usual._replace(payload=b"one\ntwo\n")) for number in (1, 2)]


async def test_a_line_goes_before_what_is_given_for_all(tmp_path: Path) -> None:
    usual = Outgoing(b"", [A, A._replace(name="b")], "t", ("k",))
    content = b'{"payload": "x"}\n \n{"payload": "y", "properties": {"a": "own"}, "tag": "u", "keys": ["l"]}'
    (_, first), (number, second) = await messages_of(tmp_path, Form.JSON, content, usual)
    assert first == usual._replace(payload=b"x")
    assert number == 3
    own = Property("a", PropertyType.STRING, "own")
    assert second == Outgoing(b"y", [own, A._replace(name="b")], "u", ["l"])


async def test_no_more_lines_are_taken_than_are_wanted(tmp_path: Path) -> None:
    found = await messages_of(tmp_path, Form.JSON, b'{"payload": "x"}\n' * 3 + b"garbage", count_max=3)
    assert len(found) == 3


async def test_a_line_that_is_no_message_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="line 3: is not JSON"):
        await messages_of(tmp_path, Form.JSON, b'{"payload": "x"}\n\ngarbage\n')


async def test_input_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "LINE_SIZE_MAX", 100)
    monkeypatch.setattr(sources, "PAYLOAD_SIZE_MAX", 100)
    monkeypatch.setattr(sources, "_CHUNK_SIZE", 10)
    with pytest.raises(BadInput, match="line 2: is longer than 100 bytes"):
        await messages_of(tmp_path, Form.LINES, b"x\n" + b"y" * 1000)
    with pytest.raises(BadInput, match="larger than 100 bytes"):
        await messages_of(tmp_path, Form.PAYLOAD, b"y" * 1000)


async def test_no_delay_in_a_line_overrules_that_of_all_messages(tmp_path: Path) -> None:
    usual = Outgoing(b"", delay_s=5)
    content = b'{"payload": "x"}\n{"payload": "x", "delay_s": 0}\n'
    found = await messages_of(tmp_path, Form.JSON, content, usual)
    assert [message.delay_s for _, message in found] == [5, 0]
