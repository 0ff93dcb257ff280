"""Header blocks: what is read and written without `hpack`'s steps is what `hpack` reads and writes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hpack import Decoder, Encoder, HPACKError

from broker.rocketmq.grpc.http2.header_blocks import BlockDecoder, BlockEncoder

TABLED = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a"), (b"te", b"trailers")]
LITERALS = [(b"x-mq-request-id", b"5"), (b"authorization", b"v" * 200), (b"x-mq-namespace", b"")]


def literal(name: bytes, value: bytes, first: int = 0) -> bytes:
    """A field that does not change the table, as gRPC's own libraries write it."""
    size = bytes((len(value),)) if len(value) < 127 else bytes((127, len(value) - 127))
    return bytes((first, len(name))) + name + size + value


def block(encoder: Encoder, **changes: Any) -> bytes:
    return bytes(encoder.encode(TABLED, **changes)) + b"".join(literal(*field) for field in LITERALS)


def outcome(decoder: Decoder, data: bytes) -> Any:
    """Read a block; return the fields, or the reason why there are none, and the table after it."""
    try:
        found: Any = list(decoder.decode(data, raw=True))
    except HPACKError as error:
        found = str(error)
    return found, list(decoder.header_table.dynamic_entries)


def test_common_form_is_read_without_hpack(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, decoder = Encoder(), BlockDecoder()
    decoder.decode(block(encoder), raw=True)

    def refuse(*_: object) -> None:
        raise AssertionError("hpack was asked")

    monkeypatch.setattr(Decoder, "decode", refuse)
    for _ in range(2):
        assert decoder.decode(block(encoder), raw=True) == TABLED + LITERALS


def test_front_is_read_anew_when_the_table_has_changed() -> None:
    encoder, decoder = Encoder(), BlockDecoder()
    for path in (b"/a", b"/a", b"/b", b"/a", b"/b", b"/b"):
        fields = [*TABLED[:2], (b":path", path), *TABLED[3:], (b"n", path)]
        assert decoder.decode(encoder.encode(fields), raw=True) == fields


def test_any_block_is_read_as_hpack_reads_it() -> None:
    choose = random.Random(7)
    names = [name for name, _ in TABLED + LITERALS]
    for _ in range(200):
        encoder, decoder, judge = Encoder(), BlockDecoder(), Decoder()
        decoder.max_header_list_size = judge.max_header_list_size = choose.choice((300, 1 << 16))
        for _ in range(20):
            fields = [(choose.choice(names), bytes(choose.randrange(260))) for _ in range(choose.randrange(4))]
            data = encoder.encode(choose.choice((fields, TABLED)), huffman=choose.random() < 0.5)
            data += b"".join(
                literal(*each, choose.choice((0, 0, 0, 0x10))) for each in LITERALS if choose.random() < 0.7
            )
            kind = choose.random()
            if kind < 0.15:
                data = data[: choose.randrange(len(data) + 1)]
            elif kind < 0.3:
                changed = bytearray(data or b"\0")
                changed[choose.randrange(len(changed))] = choose.randrange(256)
                data = bytes(changed)
            assert outcome(decoder, data) == outcome(judge, data)


def test_fields_larger_than_allowed_are_refused() -> None:
    encoder, decoder = Encoder(), BlockDecoder()
    assert len(list(decoder.decode(block(encoder), raw=True))) == 7
    decoder.max_header_list_size = 400
    with pytest.raises(HPACKError):
        decoder.decode(block(encoder), raw=True)


def test_table_larger_than_allowed_is_refused() -> None:
    encoder, decoder = Encoder(), BlockDecoder()
    decoder.decode(block(encoder), raw=True)
    decoder.max_allowed_table_size = 100
    with pytest.raises(HPACKError):
        decoder.decode(block(encoder), raw=True)


def test_written_blocks_are_those_of_hpack() -> None:
    choose = random.Random(11)
    for _ in range(100):
        encoder, judge = BlockEncoder(), Encoder()
        for _ in range(40):
            if choose.random() < 0.2:
                for size in choose.choices((0, 60, 100, 4096), k=choose.randrange(1, 4)):
                    encoder.header_table_size = judge.header_table_size = size
            fields = choose.choice(
                (TABLED[:3], TABLED, TABLED[:1], [(b"grpc-status", b"0")], [(b"a", b"%d" % choose.randrange(4))])
            )
            assert encoder.encode(fields) == judge.encode(fields)


def test_block_that_is_wholly_in_the_table_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = BlockEncoder()
    first, second = encoder.encode(TABLED), encoder.encode(TABLED)
    assert len(first) > len(second) == len(TABLED)
    monkeypatch.delattr(Encoder, "encode")
    assert encoder.encode(TABLED) == second


def test_few_blocks_are_kept() -> None:
    encoder = BlockEncoder()
    fields = [(b"status", b"%d" % number) for number in range(50)]
    encoder.encode(fields)
    for field in fields:
        assert len(encoder.encode([field])) == 1
    assert len(encoder._known) < len(fields)
