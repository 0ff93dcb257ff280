"""Decoders of arbitrary bytes: each ends, raises only `FormatError`, and takes no more memory than allowed.

The decoders, what holds for what they read, and the bytes to damage are those of the fuzz targets: one for every event
family and file type, one for every part that is read by itself.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.bmq.codes import PropertyType
from formats.bmq.disk.files import FileType, initial_bytes
from formats.bmq.disk.qlist import build_queue_record
from formats.bmq.wire.confirm import CONFIRM_HEADER_BYTES, pack_confirm
from formats.bmq.wire.options import OPTION_HEADER, OptionHeader, pack_sub_queue_ids
from formats.bmq.wire.properties import Property, encode_properties
from formats.bmq.wire.push import append_push
from formats.bmq.wire.put import append_put
from formats.errors import FormatError
from tests.fuzz.harness import load, names, run

SEEDS_MAX = 40
CUTS_MAX = 400


@st.composite
def damaged(draw: st.DrawFn, sources: list[bytes]) -> bytes:
    """A real structure with some bytes changed, cut or left over; or any bytes at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=100))
    data = bytearray(draw(st.sampled_from(sources)))
    # Headers come first: that is where damage tells.
    near = st.integers(0, min(len(data), 80) - 1)
    anywhere = st.integers(0, len(data) - 1)
    for at, value in draw(st.lists(st.tuples(near | anywhere, st.integers(0, 255)), max_size=3)):
        data[at] = value
    if draw(st.booleans()):
        del data[draw(st.integers(0, len(data))) :]
    return bytes(data) + draw(st.binary(max_size=4))


every_target = pytest.mark.parametrize("name", names())


@pytest.mark.slow
@every_target
@given(data=st.data())
def test_damaged_bytes(name: str, data: st.DataObject) -> None:
    target = load(name)
    run(target, data.draw(damaged(sorted(target.seeds(), key=len)[:SEEDS_MAX])))


@every_target
def test_bytes_that_are_cut_short(name: str) -> None:
    target = load(name)
    seed = min(target.seeds(), key=lambda each: abs(len(each) - 400))
    for size in range(0, len(seed), 1 + len(seed) // CUTS_MAX):
        run(target, seed[:size])


MANY = 20_000


def puts() -> bytes:
    out = bytearray()
    for _ in range(MANY):
        append_put(out, 1, bytes(16), b"x", 0)
    return bytes(out)


def pushes() -> bytes:
    out = bytearray()
    for _ in range(MANY):
        append_push(out, 1, bytes(16), b"x", 1, 0, 0, 0)
    return bytes(out)


def ber_entries() -> bytes:
    """An array of empty messages, two bytes each, that read as six defaults."""
    entries = b"\x30\x00" * MANY
    path = bytes.fromhex("00 3080 a180 a980 a080 bb80 a183")
    return path + len(entries).to_bytes(3, "big") + entries + bytes(2 * 5)


def json_entries() -> bytes:
    return b'\x01{"clusterMessage":{"queueUpdateAdvisory":{"queueUpdates":[' + b"{}," * MANY + b"{}]}}}"


# Inputs that become the most objects for their size, by target.
DENSEST: dict[str, Callable[[], bytes]] = {
    "put": puts,
    "push": pushes,
    "confirm": lambda: CONFIRM_HEADER_BYTES + pack_confirm(1, bytes(16), 1) * MANY,
    "options": lambda: OPTION_HEADER.pack(OptionHeader(9, 1, 0, 0)) * MANY,
    "options, ids": lambda: pack_sub_queue_ids(range(MANY)),
    "control": ber_entries,
    "control, JSON": json_entries,
    "control, nested BER": lambda: b"\x00\x30\x80" + b"\xa1\x80" * MANY,
    "control, nested JSON": lambda: b'\x01{"rId":' + b"[" * MANY,
    "properties": lambda: (
        b"\x01" + encode_properties([Property(f"{each:02x}", PropertyType.STRING, "") for each in range(255)], 1)
    ),
    "qlist": lambda: initial_bytes(FileType.QLIST, 0) + build_queue_record("", bytes(5), [("", bytes(5))] * MANY),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DENSEST)
def test_memory_is_in_proportion_to_the_input(name: str) -> None:
    target, data = load(name.split(",")[0]), DENSEST[name]()
    run(target, data)
    if "nested" in name:
        with pytest.raises(FormatError, match="nested"):
            target.decode(data)
    else:
        assert target.decode(data)
