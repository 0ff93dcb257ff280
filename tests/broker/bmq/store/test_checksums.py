"""Checksums found by where payloads are: in any order, among any records."""

from __future__ import annotations

from random import Random

import pytest

from broker.bmq.store import checksums, finding
from broker.bmq.store.checksums import Checksums
from broker.bmq.store.partition_files import PartitionLimits
from broker.bmq.store.recovery import recover
from tests.broker.bmq.rig import ACK, READ, WRITE, guid, start

QUEUE = "bmq://fanout/q"
LIMITS = PartitionLimits(journal=64 << 10, data=128 << 10, qlist=4 << 10)


@pytest.mark.parametrize("seed", range(10))
def test_each_is_found_in_any_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr(finding, "ROWS", random.choice((1, 3, 4096)))
    monkeypatch.setattr(checksums, "NEAR_RECORDS", random.choice((1, 2, 32)))
    rig = start(limits=LIMITS)
    client = rig.connect()
    client.open(1, QUEUE, WRITE | ACK)
    client.open(2, QUEUE, READ, app="foo", sub_id=1)
    client.configure(2, "foo", subscription_id=1)
    posted: list[int] = []
    for number in range(120):
        client.put(1, guid(number), b"%d" % number * random.randrange(1, 9))
        posted.append(number)
        while random.random() < 0.6 and posted:
            client.confirm(2, guid(posted.pop(0)), sub_id=1)
    files = rig.node.partitions[0].files
    messages = recover(files, files.ends).messages
    found = Checksums()
    for message in random.sample(messages, len(messages)):
        assert found.find(files, message.offset) == message.checksum
    for message in messages:
        assert found.find(files, message.offset) == message.checksum
        assert found.find(files, message.offset + 8) is None
