"""Replication as the reference did it: what its primaries sent makes its replicas' files, and we send the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from broker.cluster import replication
from broker.cluster.copying import Copy
from broker.cluster.positions import Position, offset_behind
from broker.cluster.replication import pack_records
from broker.core.clock import Now
from broker.opening import open_shards
from broker.store.partition_files import PartitionLimits
from formats.wire.event import EventType, Frame, next_frame
from formats.wire.receipt import Receipt, parse_receipt
from formats.wire.storage import StorageFlag, StorageMessage, iter_storage
from tests.broker.fakes import MemoryDirectory
from tests.golden.archives import unpack_store
from tests.golden.captures import streams

LIMITS = PartitionLimits(journal=2 << 20, data=8 << 20, qlist=4 << 10)

# The links on which one node sent to another: all of the first lease; the second, live; the second, to a node that had
# been killed and came back.
FIRST, SECOND, HEALING = "06.48154-30202.s2c", "05.40530-30201.c2s", "27.56362-30202.c2s"
# What the first link's other direction, and that of the second, answered.
FIRST_RECEIPTS, SECOND_RECEIPTS = "06.48154-30202.c2s", "05.40530-30201.s2c"


@cache
def captured() -> dict[str, bytes]:
    wanted = (FIRST, SECOND, HEALING, FIRST_RECEIPTS, SECOND_RECEIPTS)
    return {
        name.split("cluster.")[-1].removesuffix(".bin"): data
        for name, data in streams("wire-cluster")
        if any(each in name for each in wanted)
    }


def events(name: str, *kinds: EventType) -> Iterator[tuple[memoryview, Frame]]:
    """The events of a kind; the capture ends within one when the node was killed."""
    data = memoryview(captured()[name])
    frame = next_frame(data, 0, len(data), 1 << 30)
    while frame is not None:
        if frame.type in kinds:
            yield data, frame
        frame = next_frame(data, frame.end, len(data), 1 << 30)


def messages(name: str, *kinds: EventType) -> Iterator[StorageMessage]:
    for data, frame in events(name, *kinds):
        yield from iter_storage(data, frame.body, frame.end)


def bodies(name: str, kind: EventType) -> bytes:
    return b"".join(data[frame.body : frame.end] for data, frame in events(name, kind))


@pytest.fixture(scope="module")
def copy() -> Copy:
    """A replica of ours that got all that the primaries sent."""
    directory = MemoryDirectory(chunk=8 << 20)
    ((shard, recovered),) = open_shards(directory, 1, 0, LIMITS, Now(1, 1), lambda prefix: "20261121_000000")
    copy = Copy(shard, recovered)
    for name in (FIRST, SECOND):
        for message in messages(name, EventType.STORAGE):
            copy.write(message)
    copy.end_event()
    return copy


@pytest.mark.parametrize("node", ["cluster-node0", "cluster-node2"])
def test_a_replica_writes_the_files_of_the_references_nodes(copy: Copy, node: str, tmp_path: Path) -> None:
    store = unpack_store(node, tmp_path)
    files = copy.files
    ends = {"journal": files.journal_end, "data": files.data_end, "qlist": files.qlist_end}
    for kind, file in (("journal", files.journal), ("data", files.data), ("qlist", files.qlist)):
        (path,) = store.glob(f"*.bmq_{kind}")
        written = path.read_bytes()
        assert bytes(file.buffer[: ends[kind]]) == written[: ends[kind]]
        # When they stopped, they wrote one more sync point.
        assert len(written) - ends[kind] == (60 if kind == "journal" else 0)


def test_what_is_missing_is_sent_as_the_reference_sends_it(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "EVENT_BYTES_MAX", 1 << 30)
    start = offset_behind(copy.files, Position(1, 1941))
    end = offset_behind(copy.files, Position(2, 17405))
    assert start is not None
    assert end is not None
    body = bytearray()
    assert pack_records(body, copy.files, 0, start, end) == end
    assert body == bodies(HEALING, EventType.PARTITION_SYNC)


def test_live_records_are_sent_as_the_reference_sends_them(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "EVENT_BYTES_MAX", 1 << 30)
    awaited = {
        int.from_bytes(message.record[2:8], "big")
        for message in messages(SECOND, EventType.STORAGE)
        if message.flags & StorageFlag.RECEIPT_REQUESTED
    }
    start = offset_behind(copy.files, Position(1, 1941))
    assert start is not None
    body = bytearray()
    pack_records(body, copy.files, 0, start, copy.files.journal_end, awaited)
    assert body == bodies(SECOND, EventType.STORAGE)


@pytest.mark.parametrize(("sent", "answered"), [(FIRST, FIRST_RECEIPTS), (SECOND, SECOND_RECEIPTS)])
def test_the_references_receipts_name_messages_that_ask_for_one(sent: str, answered: str) -> None:
    """Ours do: they name the last of a step (see `Partition.flush`)."""
    asking = {
        (int.from_bytes(message.record[8:12], "big"), int.from_bytes(message.record[2:8], "big"))
        for message in messages(sent, EventType.STORAGE)
        if message.flags & StorageFlag.RECEIPT_REQUESTED
    }
    receipts = [
        parse_receipt(data, frame.body, frame.end) for data, frame in events(answered, EventType.REPLICATION_RECEIPT)
    ]
    assert asking
    assert {(receipt.primary_lease_id, receipt.sequence_number) for receipt in receipts} <= asking
    numbers = [receipt.sequence_number for receipt in receipts]
    assert numbers == sorted(numbers)
    assert receipts[-1] == Receipt(0, max(number for _, number in asking), receipts[-1].primary_lease_id)
