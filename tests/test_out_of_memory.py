"""A lack of memory is not taken for a fault of what is decoded."""

from __future__ import annotations

import ast
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest

from bmqctl.client.remoting.arrow_bodies import inflate_by_arrow
from bmqctl.client.remoting.bodies import read_body
from bmqctl.common.decoding.avro import inflate as inflate_avro
from bmqctl.common.decoding.avro import read_record
from bmqctl.common.decoding.decoder import Format, Wanted, make_decoder
from bmqctl.pipeline.source import sizes
from bmqctl.pipeline.source.decoding.decode import Decoder
from bmqctl.stores.blazingmq.read.payload import inflate as inflate_stored
from broker.bmq.core import message_values
from broker.rocketmq.grpc.http2.wire import MessageReader, frame_message
from formats.bmq.codes import CompressionAlgorithm
from formats.bmq.wire.application_data import decompress
from formats.errors import check_memory
from formats.rocketmq.files.record import Magic, Record
from formats.rocketmq.flags import SystemFlag
from formats.rocketmq.remoting.bodies.routes import read_compressed_registration

ROOT = Path(__file__).parents[1]
COMPRESSED = zlib.compress(b"body" * 100)


def record() -> Record:
    return Record(Magic.V1, 0, 0, 0, 0, 0, int(SystemFlag.COMPRESSED), 0, b"", 0, b"", 0, 0, COMPRESSED, "topic", b"")


def read_compressed_call() -> None:
    reader = MessageReader("gzip", 1 << 20)
    reader.add(b"\1" + frame_message(COMPRESSED)[1:])
    reader.next()


class OutOfMemory:
    """A decompressor that gets no memory for its window, which zlib allocates with the first output."""

    eof = False
    unconsumed_tail = b""

    def decompress(self, data: object, size_max: int = 0) -> NoReturn:
        raise zlib.error("Error -4 while decompressing data")


@pytest.mark.parametrize(
    "read",
    [
        lambda: decompress(COMPRESSED, CompressionAlgorithm.ZLIB),
        lambda: read_compressed_registration(COMPRESSED),
        lambda: inflate_stored(memoryview(COMPRESSED), 10),
        lambda: inflate_avro(COMPRESSED, 10),
        lambda: sizes._inflate(COMPRESSED),
        lambda: message_values._inflated_properties(memoryview(COMPRESSED)),
        lambda: read_body(record(), 1 << 20),
        read_compressed_call,
    ],
)
def test_zlib_without_memory(read: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zlib, "decompressobj", lambda *_: OutOfMemory())
    with pytest.raises(MemoryError):
        read()


def test_zlib_with_data_that_are_damaged() -> None:
    check_memory(zlib.error("Error -3 while decompressing data: incorrect header check"))
    with pytest.raises(zlib.error) as caught:
        zlib.decompress(b"damaged")
    check_memory(caught.value)


class ArrowStream:
    """A stream of pyarrow that fails."""

    def __init__(self, fault: Exception) -> None:
        self._fault = fault

    def read(self, size: int) -> NoReturn:
        raise self._fault


@pytest.mark.parametrize(
    "fault",
    [
        pa.ArrowMemoryError("malloc of size 64 failed"),
        OSError("ZSTD decompress failed: Allocation error : not enough memory"),
        OSError("LZ4 decompress failed: ERROR_allocation_failed"),
    ],
)
def test_arrow_without_memory(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pa, "CompressedInputStream", lambda *_: ArrowStream(fault))
    with pytest.raises(MemoryError):
        inflate_by_arrow(memoryview(b"body"), "zstd", 10, 1_000)


@pytest.mark.parametrize("fault", [MemoryError(), pa.ArrowMemoryError("malloc of size 64 failed")])
def test_payloads_that_exhaust_the_memory_while_they_are_decoded(fault: Exception, tmp_path: Path) -> None:
    def fail(_: object) -> NoReturn:
        raise fault

    with pytest.raises(MemoryError):
        read_record("null", b"", fail)
    with pytest.raises(MemoryError):
        Decoder((pa.struct([]), fail), failfast=False).columns([b""])
    schema = tmp_path / "schema"
    schema.write_text('{"type": "array", "items": "null"}')
    decode = make_decoder(Wanted(Format.AVRO, schema))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(io, "BytesIO", fail)
        with pytest.raises(MemoryError):
            decode(b"\2\0")


def faults(text: str) -> Iterator[str]:
    """Yield each handler of a module that takes a lack of memory for something else."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Tuple) and "MemoryError" in names(node):
            yield f"{node.lineno}: MemoryError is among other exceptions"
        if not isinstance(node, ast.Try):
            continue
        is_handled = False
        for handler in node.handlers:
            caught = names(handler.type)
            if "zlib.error" in caught and "check_memory" not in {name for each in handler.body for name in names(each)}:
                yield f"{handler.lineno}: zlib.error without check_memory"
            if caught & {"pa.ArrowException", "ArrowException"} and not is_handled:
                yield f"{handler.lineno}: ArrowException without MemoryError before it"
            is_handled |= "MemoryError" in caught


def names(node: ast.AST | None) -> set[str]:
    found = [] if node is None else [each for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute)]
    return {ast.unparse(each) for each in found}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("FAULTS = (EOFError, MemoryError)", 1),
        ("try: f()\nexcept (ValueError, MemoryError): pass", 1),
        ("try: f()\nexcept MemoryError: raise\nexcept pa.ArrowException: pass", 0),
        ("try: f()\nexcept (OSError, pa.ArrowException): pass", 1),
        ("try: f()\nexcept zlib.error: pass", 1),
        ("try: f()\nexcept zlib.error as error:\n    check_memory(error)\n    raise ValueError", 0),
    ],
)
def test_handlers_that_break_the_rule_are_found(text: str, count: int) -> None:
    assert len(list(faults(text))) == count


def test_no_handler_takes_a_lack_of_memory_for_a_fault_of_the_input() -> None:
    paths = [path for package in ("broker", "formats", "bmqctl") for path in (ROOT / package).rglob("*.py")]
    assert len(paths) > 500
    assert [f"{path}:{line}" for path in paths for line in faults(path.read_text(encoding="utf-8"))] == []
