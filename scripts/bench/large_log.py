"""A RocketMQ store with a large commit log, for measurements."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bmqctl.stores.rocketmq.read.files import log_files
from bmqctl.stores.rocketmq.read.scan import LogScan
from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY
from formats.rocketmq.files.names import offset_name
from formats.rocketmq.files.record import Magic, Record, body_crc, encode_blank, encode_record
from formats.rocketmq.hosts import Host
from formats.rocketmq.properties import encode_properties

__all__ = ["LargeLog", "write_consume_queues", "write_large_log"]

FILE_SIZE = 1 << 28
BODIES = 97
TOPICS = 8
QUEUES = 4


class LargeLog(NamedTuple):
    """A store's folder, the files of its log, and the number of records in them."""

    directory: Path
    files: list[Path]
    records: int


def write_large_log(directory: Path, messages: int, body_sizes: range) -> LargeLog:
    """Write a log of messages with keys, tags and bodies of these sizes, a new file every 256 MiB."""
    generator = random.Random(1)
    bodies = [generator.randbytes(generator.choice(body_sizes)) for _ in range(BODIES)]
    crcs = [body_crc(body) for body in bodies]
    born, stored = Host("127.0.0.1", 12345).pack(), Host("127.0.0.1", 10911).pack()
    folder = directory / "commitlog"
    folder.mkdir(parents=True)
    files = [folder / offset_name(0)]
    stream = files[0].open("wb")
    at = 0
    for number in range(messages):
        text = {"UNIQ_KEY": f"7F0000010AB118B4AAC2{number:012X}", "KEYS": f"k{number:07d}", "TAGS": "paid"}
        record = Record(
            version=Magic.V1,
            body_crc=crcs[number % BODIES],
            queue_id=number // TOPICS % QUEUES,
            flag=0,
            queue_offset=number // (TOPICS * QUEUES),
            physical_offset=at,
            system_flags=0,
            born_ms=1_795_400_000_000 + number,
            born_host=born,
            stored_ms=1_795_400_000_001 + number,
            store_host=stored,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=bodies[number % BODIES],
            topic=f"orders-{number % TOPICS}",
            properties=encode_properties(text),
        )
        data = encode_record(record)
        left = FILE_SIZE - at % FILE_SIZE
        if len(data) + len(encode_blank(left)) > left:
            stream.write(encode_blank(left))
            stream.truncate(FILE_SIZE)
            stream.close()
            at += left
            files.append(folder / offset_name(at))
            stream = files[-1].open("wb")
            data = encode_record(record._replace(physical_offset=at))
        stream.write(data)
        at += len(data)
    stream.truncate(FILE_SIZE)
    stream.close()
    return LargeLog(directory, files, messages)


def write_consume_queues(log: LargeLog) -> None:
    found = [chunk.records for chunk in LogScan(log_files(log.directory)).chunks()]
    offsets = np.concatenate([records.offsets for records in found])
    sizes = np.concatenate([records.sizes for records in found])
    for place in range(TOPICS * QUEUES):
        entries = np.zeros(len(offsets[place :: TOPICS * QUEUES]), CONSUME_QUEUE_ENTRY.dtype)
        entries["physical_offset"] = offsets[place :: TOPICS * QUEUES]
        entries["size"] = sizes[place :: TOPICS * QUEUES]
        folder = log.directory / "consumequeue" / f"orders-{place % TOPICS}" / str(place // TOPICS)
        folder.mkdir(parents=True)
        (folder / offset_name(0)).write_bytes(entries.tobytes())
