"""Changes of queues and their apps for which the partition has no room: the ledger stays as the queues are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.bmq.core.messages import Full
from broker.bmq.node.changes import collect_idle_queues, reconfigure
from broker.bmq.partition.room import SPARE_RECORDS_MAX
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.codes import AckStatus
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from tests.broker.bmq.rig import ACK, READ, WRITE, Rig, guid, start

FANOUT = "bmq://fanout/q"
IDLE = "bmq://priority/idle"
APPS = ("foo", "bar", "baz")
LIMITS = PartitionLimits(journal=(SPARE_RECORDS_MAX + 160) * JOURNAL_RECORD_SIZE, data=64 << 10, qlist=1 << 10)


def full() -> tuple[Rig, list[bytes]]:
    """A node with an unused queue, whose partition is full of the messages returned."""
    rig = start(limits=LIMITS)
    client = rig.connect()
    client.open(2, IDLE, WRITE | ACK)
    client.disconnect()
    client = rig.connect()
    client.open(1, FANOUT, WRITE | ACK)
    kept: list[bytes] = []
    while client.post(1, guid(len(kept)), b"a message") is AckStatus.SUCCESS:
        kept.append(guid(len(kept)))
    return rig, kept


def make_room(rig: Rig, kept: list[bytes]) -> None:
    for app_id in APPS:
        client = rig.connect()
        client.open(1, FANOUT, READ, app_id, 1)
        client.confirm(1, *kept, sub_id=1)
    rig.wait(1000)


def test_an_app_that_could_not_go_and_then_stays_is_in_the_ledger() -> None:
    rig, kept = full()
    domain = rig.node.domains["fanout"]
    with pytest.raises(Full):
        reconfigure(rig.node, domain, replace(domain.config, app_ids=("foo", "bar")))
    make_room(rig, kept)
    reconfigure(rig.node, domain, replace(domain.config, app_ids=APPS))
    recorded = {app.app_id: app.app_key for app in rig.node.ledger.state.queues[FANOUT].app_ids}
    assert recorded == {app.app_id: app.key for app in rig.node.queues[FANOUT].apps.values()}
    assert not rig.faults()


def test_a_queue_that_could_not_be_deleted_is_deleted_when_there_is_room() -> None:
    rig, kept = full()
    with pytest.raises(Full):
        collect_idle_queues(rig.node, 0, "priority")
    assert IDLE in rig.node.ledger.state.queues
    make_room(rig, kept)
    assert collect_idle_queues(rig.node, 0, "priority") == 1
    assert IDLE not in rig.node.ledger.state.queues
    assert IDLE not in rig.node.queues
    assert not rig.faults()
