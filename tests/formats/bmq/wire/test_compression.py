from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.bmq.codes import CompressionAlgorithm
from formats.bmq.wire.application_data import compress, decompress
from formats.errors import FormatError

ZLIB = CompressionAlgorithm.ZLIB


@given(st.binary(max_size=200).map(lambda seed: seed * 20))
def test_data_come_back(data: bytes) -> None:
    assert decompress(compress(data), ZLIB, len(data)) == data


def test_no_compression_is_a_copy() -> None:
    assert decompress(memoryview(b"abc"), CompressionAlgorithm.NONE) == b"abc"


def test_the_limit_is_what_may_come_out() -> None:
    stream = compress(bytes(1000))
    assert len(decompress(stream, ZLIB, 1000)) == 1000
    for size_max in (0, 999):
        with pytest.raises(FormatError, match="more than"):
            decompress(stream, ZLIB, size_max)


def test_no_more_memory_is_taken_than_may_come_out() -> None:
    stream = compress(bytes(10_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="more than"):
            decompress(stream, ZLIB, 1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000


def test_streams_that_are_cut_short_are_refused() -> None:
    stream = compress(b"hello")
    for size in range(len(stream)):
        with pytest.raises(FormatError, match="truncated"):
            decompress(stream[:size], ZLIB)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (compress(b"hello") + b"!", "something follows"),
        (b"hello", "incorrect header check"),
        (compress(b"hello")[:-1] + b"!", "incorrect data check"),
    ],
)
def test_invalid_stream_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        decompress(data, ZLIB)


def test_unknown_algorithms_are_refused() -> None:
    with pytest.raises(FormatError, match="no algorithm"):
        decompress(b"", 2)
