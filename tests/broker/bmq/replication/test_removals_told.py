"""A node that receives a whole partition learns of earlier removals, as it may lead the partition soon."""

from __future__ import annotations

import struct

import pytest

from broker.bmq.core.config import NodeIdentity
from broker.bmq.links.agreement import disagreement, to_features
from broker.bmq.session.negotiation import REMOVALS_FEATURE, own_identity
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.codes import EventType, RecoveryFileChunkType
from formats.bmq.wire.recovery import append_chunk, iter_chunks
from formats.errors import FormatError
from tests.broker.bmq.replication.partition_bus import APP, KEY, Bus, Node
from tests.broker.bmq.rig import guid
from tests.broker.fakes import MemoryDirectory

LIMITS = PartitionLimits(journal=16 << 10, data=32 << 10, qlist=4 << 10)
COUNT = 600


def begun(*, takes_removals: bool = True) -> Bus:
    """Post and remove many messages, over several rollovers, while node 2 is down from the start."""
    bus = Bus(limits=LIMITS, takes_removals=takes_removals)
    bus.kill(2)
    bus.assign(0)
    bus.settle()
    primary = bus.nodes[0]
    for number in range(COUNT):
        primary.post(number)
        primary.remove(number)
        if number % 10 == 9:
            bus.settle()
    assert len(primary.directory.archived) > 6
    return bus


def known_to(node: Node) -> set[int]:
    return {number for number in range(COUNT) if not node.history.is_new(guid(number))}


def join_anew(bus: Bus) -> None:
    bus.disks[2] = MemoryDirectory()
    bus.restart(2)
    bus.settle(3000)


def test_a_replica_that_began_with_nothing_leads_and_knows_what_was_removed() -> None:
    bus = begun()
    join_anew(bus)
    assert EventType.RECOVERY in bus.nodes[2].events
    bus.kill(0)
    new = bus.assign(2)
    bus.settle(2000)
    assert known_to(new) == set(range(COUNT))


def test_it_knows_no_longer_than_the_others() -> None:
    bus = begun()
    bus.run(200_000)
    join_anew(bus)
    assert EventType.RECOVERY in bus.nodes[2].events
    bus.run(150_000)
    # Records have the time.
    bus.nodes[0].post(COUNT)
    bus.settle()
    bus.kill(0)
    known = {}
    for node_id in (1, 2):
        node = bus.assign(node_id)
        bus.settle(2000)
        known[node_id] = known_to(node)
    # But for what the journal in use tells, all is older than the 300 s for which a message may be posted again.
    assert known[2] == known[1]
    assert len(known[2]) < COUNT / 3


def test_a_primary_that_began_with_nothing_is_told_by_the_replica_that_heals_it() -> None:
    bus = begun()
    bus.kill(0)
    bus.disks[2] = MemoryDirectory()
    bus.start(2)
    new = bus.assign(2)
    bus.settle(3000)
    assert new.serving
    assert known_to(new) == set(range(COUNT))


def test_a_node_that_does_not_say_that_it_takes_them_is_told_nothing() -> None:
    """The reference's nodes do not."""
    bus = begun(takes_removals=False)
    join_anew(bus)
    assert EventType.RECOVERY not in bus.nodes[2].events
    bus.check_equal()


def test_a_node_that_has_the_partition_is_told_nothing_again() -> None:
    bus = begun()
    join_anew(bus)
    bus.kill(2)
    bus.nodes[0].post(COUNT)
    bus.settle()
    bus.restart(2).events.clear()
    bus.settle(2000)
    assert EventType.RECOVERY not in bus.nodes[2].events
    bus.check_equal()


@pytest.mark.parametrize("leader", [1, 2])
@pytest.mark.parametrize("amount", [0, 1])
def test_message_that_no_app_wants_is_known_after_a_rollover_though_its_primary_died_before_removing_it(
    leader: int, amount: int
) -> None:
    """The next primary finds that when it takes over, and a replica when it rolls over."""
    bus = Bus(limits=LIMITS, amount=amount)
    bus.assign(0)
    bus.settle()
    primary = bus.nodes[0]
    primary.post(0, 1)
    primary.stored.records.settle(KEY, APP[1], (primary.store[guid(0)],))
    bus.settle()
    bus.kill(0)
    primary = bus.assign(1)
    bus.settle(2000)
    primary.stored.roll_over()
    primary.post(2)
    bus.settle(2000)
    assert [len(bus.nodes[each].directory.archived) for each in (1, 2)] == [3, 3]  # one set of files
    bus.kill(leader)
    bus.restart(0)
    bus.restart(leader)
    new = bus.assign(leader)
    bus.settle(3000)
    assert new.serving
    assert set(new.store) == {guid(1), guid(2)}
    assert known_to(new) == {0}


def test_nodes_say_that_they_take_them_and_agree_with_those_that_do_not() -> None:
    me = NodeIdentity("local", 1, "host", "bmqbrkr.tsk", 1, 999_999, "rig", cluster_features=to_features({"nodes": 3}))
    assert REMOVALS_FEATURE in own_identity(me, 1, "local").features.split(";")
    assert REMOVALS_FEATURE not in own_identity(me, 1, "other").features
    told = own_identity(me, 1, "local").features
    assert disagreement(me.cluster_features, told) is None
    assert disagreement(me.cluster_features, told.replace(f"{REMOVALS_FEATURE};", "")) is None
    assert disagreement(to_features({"nodes": 5}), told) is not None


def chunk(data: bytes, kind: RecoveryFileChunkType = RecoveryFileChunkType.UNDEFINED) -> memoryview:
    body = bytearray()
    append_chunk(body, kind, 0, 0, data + bytes(-len(data) % 4))
    return memoryview(body)


HEAD = struct.Struct("<qqI")


@pytest.mark.parametrize(
    "body",
    [
        chunk(b"short"),
        chunk(HEAD.pack(1, 1, 1000) + b"x" * 8),
        chunk(HEAD.pack(1, -1, 0)),
        chunk(HEAD.pack(-1, 1, 0)),
        chunk(HEAD.pack(1, 1 << 62, 0)),
        chunk(HEAD.pack(1, 1, 16) + struct.pack("<5s3xII", b"queue", 1 << 31, 1 << 31)),
        chunk(HEAD.pack(1, 1, 7) + b"queue.."),
        chunk(HEAD.pack(1, 1, 0), RecoveryFileChunkType.JOURNAL),
    ],
)
def test_invalid_block_is_refused(body: memoryview) -> None:
    bus = begun()
    bus.disks[2] = MemoryDirectory()
    bus.restart(2)
    receiver = bus.nodes[2].partition
    while not receiver.copy.records.is_fresh:
        assert bus.step()
    for each in iter_chunks(body, 0, len(body)):
        with pytest.raises(FormatError):
            receiver.on_recovery(0, each)
        # Nobody else is asked, and nothing comes of what others send.
        receiver.on_recovery(1, each)
