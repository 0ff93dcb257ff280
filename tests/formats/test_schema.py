"""One declaration, three codecs: they agree, for every structure that `formats` declares.

`construct` reads, `struct` reads and writes, numpy reads whole arrays. Golden bytes are the captures' events and the
head of a store's files, read at every even offset: the true places of the structures are among them.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.bmq.wire.event import iter_frames
from formats.errors import FormatError
from formats.schema import Annotated, Layout, bits, i32, raw, u8, u16, u32, u64
from tests.formats.schema_rig import LAYOUTS
from tests.golden.archives import map_file, unpack_store
from tests.golden.captures import CAPTURES, streams

GOLDEN_HEAD = 256
"""Bytes of each golden event and file that are read as structures."""


# Few examples of each: what differs between structures is their declaration, not their content.
few = settings(max_examples=25)
every_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)


def _assert_codecs_agree(layout: Layout[Any], records: bytes) -> None:
    """`records` is a whole number of structures, of whatever content."""
    values = [layout.unpack(records, at) for at in range(0, len(records), layout.size)]
    out = bytearray(len(records))
    for index, value in enumerate(values):
        at = index * layout.size
        one = records[at : at + layout.size]
        readable = layout.parse_readable(one)
        assert value._asdict() == readable
        assert layout.pack(value) == one
        layout.pack_into(out, at, value)
    assert out == records
    array = np.frombuffer(records, layout.dtype)
    for name in layout.cls._fields:
        column = layout.column(array, name).tolist()
        assert column == [getattr(value, name) for value in values]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The head of the first event of each type in each capture, and of each file of a store."""
    heads: dict[tuple[str, int], bytes] = {}
    for capture in CAPTURES:
        for _, stream in streams(capture):
            start = 0
            for frame in iter_frames(stream, 0, len(stream), 1 << 30):
                heads.setdefault((capture, frame.type), stream[start : min(frame.end, start + GOLDEN_HEAD)])
                start = frame.end
    files: list[Path] = sorted(unpack_store("single-clean", tmp_path_factory.mktemp("store")).iterdir())
    return [*heads.values(), *(bytes(map_file(path)[:GOLDEN_HEAD]) for path in files)]


def test_every_structure_is_found_once() -> None:
    assert {"EventHeader", "PutHeader", "MessageRecord", "LedgerRecordHeader", "GuidFields"} <= {
        x.name for x in LAYOUTS
    }
    assert len({layout.name for layout in LAYOUTS}) == len(LAYOUTS)


@every_layout
def test_declaration_names_its_source_and_size(layout: Layout[Any]) -> None:
    assert re.fullmatch(r"(bmqp|bmqt|mqbs|mqbc|rocketmq)::\w+(, bmqp::\w+)*", layout.upstream)
    assert layout.size == layout.words.size == layout.dtype.itemsize == layout.construct.sizeof()
    assert set(layout.bit) == set(layout.cls._fields)


@every_layout
def test_docstring_draws_every_field_at_its_place(layout: Layout[Any]) -> None:
    """Read back from the docstring: fields in order, their bits, the offset of every row, the size, the source."""
    text = inspect.cleandoc(layout.cls.__doc__ or "")
    assert re.search(rf"^{layout.upstream}, {layout.size} bytes?:$", text, re.MULTILINE)
    drawn: list[str] = []
    bits_before = 0
    for offset, row in re.findall(r"^ +(\d+) \| (.*?) +\|$", text, re.MULTILINE):
        assert int(offset) * 8 == bits_before
        for cell in row.split(" | "):
            name, width = cell.split()
            drawn.append(name)
            mask = layout.bit[name].mask
            if mask is not None:
                assert int(width) == mask.bit_length()
            bits_before += int(width)
    assert tuple(drawn) == layout.cls._fields
    assert bits_before == layout.size * 8


@every_layout
@few
@given(data=st.data())
def test_codecs_agree_on_any_bytes(layout: Layout[Any], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 4))
    _assert_codecs_agree(layout, data.draw(st.binary(min_size=count * layout.size, max_size=count * layout.size)))


@pytest.mark.slow
@every_layout
def test_codecs_agree_on_golden_bytes(layout: Layout[Any], golden: list[bytes]) -> None:
    places = ((head, at) for head in golden for at in range(0, len(head) - layout.size + 1, 2))
    # Most of the bytes at all places are the same: each structure is read once.
    _assert_codecs_agree(layout, b"".join(sorted({head[at : at + layout.size] for head, at in places})))


@every_layout
@few
@given(data=st.data())
def test_short_buffer_is_a_format_error(layout: Layout[Any], data: st.DataObject) -> None:
    short = data.draw(st.binary(max_size=layout.size - 1))
    offset = data.draw(st.integers(0, len(short) + 1))
    with pytest.raises(FormatError) as caught:
        layout.unpack(short, offset)
    assert caught.value.path == layout.name
    assert caught.value.offset == offset


@every_layout
def test_value_that_does_not_fit_its_bits_is_refused(layout: Layout[Any]) -> None:
    zero = layout.unpack(bytes(layout.size))
    for name, (_, _, mask) in layout.bit.items():
        if mask is not None:
            with pytest.raises(OverflowError, match=re.escape(f"{layout.name}.{name} = {mask + 1}")):
                layout.pack(zero._replace(**{name: mask + 1}))
            with pytest.raises(OverflowError):
                layout.pack(zero._replace(**{name: -1}))


class Sample(NamedTuple):
    flag: Annotated[int, bits(1)]
    length: Annotated[int, bits(31)]
    version: Annotated[int, bits(2)]
    type: Annotated[int, bits(6)]
    signed: Annotated[int, i32]
    key: Annotated[bytes, raw(3)]
    number: Annotated[int, u64]


def test_fields_lie_most_significant_first_and_big_endian() -> None:
    layout = Layout(Sample, size=20, upstream="bmqp::Sample")
    packed = layout.pack(Sample(1, 2, 3, 4, -5, b"key", 6))
    assert packed.hex(" ") == "80 00 00 02 c4 ff ff ff fb 6b 65 79 00 00 00 00 00 00 00 06"
    assert layout.unpack(packed) == (1, 2, 3, 4, -5, b"key", 6)


class TooShort(NamedTuple):
    number: Annotated[int, u32]
    tail: Annotated[int, u8]


class HalfAWord(NamedTuple):
    head: Annotated[int, bits(4)]
    number: Annotated[int, u16]


class BitsLeftOver(NamedTuple):
    number: Annotated[int, u16]
    tail: Annotated[int, bits(12)]


@pytest.mark.parametrize(
    ("cls", "reason"),
    [
        (TooShort, "TooShort: declared 6 bytes, its fields fill 5"),
        (HalfAWord, "HalfAWord.number: the bit fields before it fill only 4 bits"),
        (BitsLeftOver, "BitsLeftOver: its last bit fields fill only 12 bits"),
    ],
)
def test_declaration_that_does_not_add_up_fails_when_it_is_made(cls: type[Any], reason: str) -> None:
    with pytest.raises(TypeError, match=re.escape(reason)):
        Layout(cls, size=6, upstream="bmqp::Nothing")
