"""Whatever bytes come: a decoder ends, raises `FormatError` and nothing else, and takes no more memory than it may.

The decoders, what holds for what they read, and the bytes to damage are those of the fuzz targets: one for every event
family and file type, one for every part that is read by itself.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.harness import load, names, run

SEEDS_MAX = 40


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


@every_target
@given(data=st.data())
def test_damaged_bytes(name: str, data: st.DataObject) -> None:
    target = load(name)
    run(target, data.draw(damaged(sorted(target.seeds(), key=len)[:SEEDS_MAX])))


@every_target
def test_bytes_that_are_cut_short(name: str) -> None:
    target = load(name)
    seed = min(target.seeds(), key=lambda each: abs(len(each) - 400))
    for size in range(len(seed)):
        run(target, seed[:size])
