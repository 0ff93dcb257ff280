"""Checks at the end of scripts/soak-rocketmq: acknowledgments, deliveries to consumers, and stores."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from formats.rocketmq.files.names import offset_of_name
from formats.rocketmq.files.record import Blank, Record, decode_record

__all__ = ["Ack", "Lines", "check_deliveries", "check_log", "check_stores", "longest_gap_s", "read_ack"]

_CHECKSUM_BYTES: Final = 4
_SHOWN: Final = 3

# Thread, number and attempt.
Sent = tuple[int, int, int]


class Ack(NamedTuple):
    """An acknowledged message, and the time, in milliseconds since the epoch."""

    sent: Sent
    ms: int


class Lines:
    """A file to which another process writes lines; `new` reads the complete ones since the last call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def new(self) -> list[str]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        return whole.decode().splitlines()


def read_ack(line: str) -> Ack:
    thread, number, attempt, ms = map(int, line.split())
    return Ack((thread, number, attempt), ms)


def longest_gap_s(acks: list[Ack], begin_s: float, end_s: float) -> float:
    """The longest time without an acknowledgment that ends or begins between two times, in seconds."""
    times = sorted(ack.ms / 1000 for ack in acks)
    gaps = [later - earlier for earlier, later in pairwise(times) if later > begin_s and earlier < end_s]
    return max(gaps, default=end_s - begin_s)


def check_deliveries(acks: list[Ack], got: list[str], queues: int) -> list[str]:
    faults = [f"a consumer was given {line}" for line in got if line.startswith("bad")][:_SHOWN]
    given: set[Sent] = set()
    newest: dict[int, int] = defaultdict(lambda: -1)
    disorder = []
    for line in got:
        if line.startswith("bad"):
            continue
        thread, number, attempt, queue = map(int, line.split())
        if queue != thread % queues:
            faults.append(f"{line}: the message is in another queue")
        if (thread, number, attempt) in given:
            continue
        given.add((thread, number, attempt))
        if number > newest[thread] + 1:
            disorder.append(f"{line} came behind number {newest[thread]}")
        newest[thread] = max(newest[thread], number)
    if disorder:
        faults.append(f"{len(disorder)} deliveries out of order: {disorder[:_SHOWN]}")
    missing = [ack.sent for ack in acks if ack.sent not in given]
    if missing:
        faults.append(f"{len(missing)} acknowledged messages were not given to a consumer: {missing[:_SHOWN]}")
    return faults


def _files(store: Path, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the files of a commit log up to its end, with their offsets."""
    for path in sorted((store / "commitlog").iterdir()):
        offset = offset_of_name(path.name)
        if offset is not None and offset < end:
            yield offset, path.read_bytes()[: end - offset]


def check_stores(stores: list[Path], end: int, topic: str) -> list[str]:
    """List the differences between stores: logs up to an offset, and the queues of a topic."""
    faults = []
    first, *others = stores
    for other in others:
        for (offset, here), (place, there) in zip(_files(first, end), _files(other, end), strict=True):
            if (offset, here) != (place, there):
                at = next((at for at, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), len(here))
                faults.append(f"the logs of {first} and {other} differ at {offset + at}")
                break
        if _queues(first, topic) != _queues(other, topic):
            faults.append(f"the queues of {first} and {other} differ")
    return faults


def _queues(store: Path, topic: str) -> dict[str, bytes]:
    root = store / "consumequeue" / topic
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def check_log(store: Path, end: int, topic: str, acks: list[Ack]) -> list[str]:
    """List the faults of a master's log: missing acknowledged messages, bodies, order in a queue."""
    faults: list[str] = []
    found: set[Sent] = set()
    newest: dict[int, int] = defaultdict(lambda: -1)
    next_offsets: dict[int, int] = defaultdict(int)
    for record in _records(store, end, faults):
        if record.topic != topic:
            continue
        body = bytes(record.body)
        if zlib.crc32(body[:-_CHECKSUM_BYTES]) != int.from_bytes(body[-_CHECKSUM_BYTES:], "big"):
            faults.append(f"the body at {record.physical_offset} is not what was sent")
            continue
        if record.queue_offset != next_offsets[record.queue_id]:
            faults.append(f"queue offset {record.queue_offset} stands behind {next_offsets[record.queue_id] - 1}")
        next_offsets[record.queue_id] = record.queue_offset + 1
        thread, number, attempt = map(int, body.partition(b"\n")[0].split())
        found.add((thread, number, attempt))
        if number > newest[thread] + 1:
            faults.append(f"number {number} of thread {thread} stands behind {newest[thread]}")
        newest[thread] = max(newest[thread], number)
    lost = [ack.sent for ack in acks if ack.sent not in found]
    if lost:
        faults.append(f"{len(lost)} acknowledged messages are lost: {lost[:_SHOWN]}")
    return faults


def _records(store: Path, end: int, faults: list[str]) -> Iterator[Record]:
    reached = 0
    for offset, data in _files(store, end):
        if offset != reached:
            faults.append(f"the log has nothing from {reached} to {offset}")
        at = 0
        while at < len(data):
            record = decode_record(data, at)
            if record is None:
                faults.append(f"the log ends at {offset + at}, not at {end}")
                return
            at += record.size if isinstance(record, Blank) else int.from_bytes(data[at : at + 4], "big")
            if isinstance(record, Record):
                if not record.is_body_sound:
                    faults.append(f"the record at {record.physical_offset} does not match its checksum")
                yield record
        reached = offset + at
