"""A partition with records, and ways to damage its files."""

from __future__ import annotations

import pytest

from broker.bmq.assembly.opening import StoreDamaged
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.codes import AckStatus
from tests.broker.bmq.rig import ACK, WRITE, Rig, guid, start
from tests.broker.fakes import MemoryDirectory

QUEUE = "bmq://priority/q"
LIMITS = PartitionLimits(journal=16 << 10, data=8 << 10, qlist=1 << 10)


def filled(messages: int = 5) -> Rig:
    rig = start(limits=LIMITS)
    producer = rig.connect()
    producer.open(1, QUEUE, WRITE | ACK)
    for number in range(messages):
        assert producer.post(1, guid(number), b"message %d" % number) is AckStatus.SUCCESS
    return rig


def damaged(directory: MemoryDirectory) -> StoreDamaged:
    with pytest.raises(StoreDamaged) as caught:
        start(directory, limits=LIMITS)
    return caught.value


DAMAGE: dict[str, tuple[str, int, str]] = {
    "journal header": ("journal", 0, "header"),
    "journal header's length": ("journal", 32, "header"),
    "data header": ("data", 8, "header"),
    "qlist header": ("qlist", 0, "header"),
    "record magic": ("journal", 44 + 2 * 60 + 57, "record-magic"),
    "payload": ("data", 40 + 12, "payload-checksum"),
    "queue uri": ("qlist", 36 + 20, "qlist-record"),
    "queue name": ("qlist", 36 + 20 + 15, "qlist-mismatch"),
    "ledger": ("csl", 8 + 32, "ledger-checksum"),
}
