"""A partition that a primary of the reference has filled to the brim, in the hands of ours, with replicas."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from broker.bmq.replication.partition_table import State
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.disk import journal_packing
from formats.bmq.disk.data import write_data_record
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.padding import DWORD
from tests.broker.bmq.replication.partition_bus import KEY, Bus, Node, payload
from tests.broker.bmq.rig import guid

LIMITS = PartitionLimits(journal=300 * JOURNAL_RECORD_SIZE, data=128 << 10, qlist=4 << 10)
HEALED = [State.PRIMARY_HEALED, State.REPLICA_HEALED, State.REPLICA_HEALED]
LEFT = 18


def brim(bus: Bus, node: Node) -> int:
    """Write messages as the reference's primary does, which keeps no room for their removal; the number of them."""
    stored, count = node.stored, 0
    files = stored.files
    assert files.journal.reserve(LIMITS.journal)
    assert files.data.reserve(LIMITS.data)
    while files.journal_end + LEFT * JOURNAL_RECORD_SIZE < LIMITS.journal:
        data, at = payload(count), files.data_end
        files.data_end = write_data_record(files.data.buffer, at, data)
        stored.records.sequence_number += 1
        head = files.journal.buffer, files.journal_end, stored.primary_lease_id, stored.sequence_number, bus.now.wall_s
        journal_packing.pack_message(*head, 1, 0, KEY, at // DWORD, guid(count), crc32c(data))
        files.journal_end += JOURNAL_RECORD_SIZE
        count += 1
    bus.settle()
    return count


@pytest.mark.parametrize("kills", [False, True])
def test_it_is_drained_within_its_files_and_copies_stay_the_same(kills: bool) -> None:
    bus = Bus(limits=LIMITS, amount=64)
    bus.assign(0)
    bus.settle()
    count = brim(bus, bus.nodes[0])
    bus.check_equal()
    primary = bus.assign(1)
    bus.settle(1000)
    assert bus.states() == [State.REPLICA_HEALED, State.PRIMARY_HEALED, State.REPLICA_HEALED]
    assert primary.stored.room.tight is not None
    before = primary.stored.files
    for number in range(count):
        primary.remove(number)
        if number % 7 == 0:
            bus.settle()
        if kills and number % 100 == 50:
            bus.settle()
            gone = bus.primary_id or 0
            bus.kill(gone)
            primary = bus.assign((gone + 1) % 3)
            bus.settle(1000)
            bus.restart(gone)
            bus.settle(3000)
            assert set(primary.store) == {guid(each) for each in range(number + 1, count)}
    bus.settle()
    assert primary.stored.files is not before
    assert primary.stored.room.tight is None
    assert {node.stored.room.limits.journal for node in bus.nodes.values()} == {LIMITS.journal}
    bus.check_equal()
    for node in bus.nodes.values():
        assert all(len(node.directory.files[name].data) <= LIMITS.data for name in node.directory.names())
        assert len(node.stored.files.journal.buffer) == LIMITS.journal
    primary.post(*range(1000, 1010))
    bus.settle()
    assert primary.acked == list(range(1000, 1010))
    bus.check_equal()
