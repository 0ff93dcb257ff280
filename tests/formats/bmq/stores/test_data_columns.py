from __future__ import annotations

import random

import numpy as np
import pytest

from formats.bmq.codes import PropertyType
from formats.bmq.disk.data import data_record_size, parse_data_record, write_data_record
from formats.bmq.disk.files import FileType, initial_bytes
from formats.bmq.stores.data_columns import locate, plain_sizes
from formats.bmq.wire.properties import Property, encode_properties, properties_size
from formats.errors import FormatError


def data_file(noise: random.Random, records: int) -> tuple[bytearray, list[int]]:
    """A DATA file, and where its records are."""
    data = bytearray(initial_bytes(FileType.DATA, 0))
    offsets = []
    for number in range(records):
        schema_id = noise.choice((0, 1, 4))
        flags = noise.randrange(2)
        head = encode_properties([Property("name", PropertyType.INT32, number)], schema_id) if flags else b""
        app_data = head + noise.randbytes(noise.randrange(40))
        options = bytes(4 * noise.randrange(3))
        offsets.append(len(data))
        data += bytes(data_record_size(len(options), len(app_data)))
        write_data_record(data, offsets[-1], app_data, options, flags, schema_id)
    return data, offsets


def check(data: bytes | bytearray, offsets: list[int]) -> int:
    """`locate` agrees with `parse_data_record`, and `plain_sizes` with `properties_size`; how many are sound."""
    located = locate(data, np.array(offsets, np.int64))
    properties, payloads = plain_sizes(data, located)
    for row, offset in enumerate(offsets):
        try:
            record = parse_data_record(data, offset)
        except FormatError:
            assert not located.sound[row]
            assert properties[row] == payloads[row] == -1
            continue
        assert located.sound[row]
        assert (located.start[row], located.size[row]) == (record.app_data_offset, record.app_data_size)
        assert (located.flags[row], located.schema_id[row]) == (record.header.flags, record.header.schema_id)
        try:
            size = properties_size(record.app_data(data)) if record.header.flags & 1 else 0
        except FormatError:
            assert properties[row] == payloads[row] == -1
        else:
            assert (properties[row], payloads[row]) == (size, record.app_data_size - size)
    return int(located.sound.sum())


def test_sound_records_are_located() -> None:
    data, offsets = data_file(random.Random(1), 200)
    assert check(data, offsets) == 200


@pytest.mark.parametrize("seed", range(20))
def test_damaged_records_are_told_apart_as_one_by_one(seed: int) -> None:
    noise = random.Random(seed)
    data, offsets = data_file(noise, 100)
    for _ in range(60):
        data[noise.randrange(40, len(data))] = noise.choice((0, 1, 255, noise.randrange(256)))
    cut = data[: noise.randrange(len(data))]
    wild = [noise.randrange(len(data) + 100) for _ in range(20)]
    assert check(data, offsets + wild) < 120
    check(cut, offsets + wild)


def test_an_empty_file_has_no_records() -> None:
    assert check(b"", [0, 40]) == 0
    assert len(locate(b"", np.zeros(0, np.int64)).sound) == 0
