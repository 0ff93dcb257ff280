"""Changes between the slices in which queues are put back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.bmq.node.changes import reconfigure
from broker.bmq.node.restoring import Restoration
from broker.bmq.store.recovery import Recovered, recover
from formats.bmq.codes import AckStatus
from tests.broker.bmq.rig import ACK, READ, WRITE, Rig, guid, start

QUEUE = "bmq://priority/q"


@pytest.fixture
def rig() -> Rig:
    """A node that holds one message, and whose partition has two copies."""
    rig = start()
    client = rig.connect()
    client.open(1, QUEUE, WRITE | ACK)
    assert client.post(1, guid(1), b"kept") is AckStatus.SUCCESS
    rig.node.partitions[0].kept.copies_wanted = 2
    rig.node.partitions[0].kept.is_copied = True
    return rig


def begun(rig: Rig) -> Restoration:
    """A restoration of the node's only partition that has yet to end."""
    partition = rig.node.partitions[0]
    recovered: Recovered = recover(partition.files)
    restoration = Restoration(rig.node, partition)
    restoration.begin(recovered.queues, recovered.timestamp)
    for message in recovered.messages:
        restoration.take(message)
    return restoration


@pytest.mark.parametrize("is_cut_off", [False, True])
def test_a_node_that_is_cut_off_meanwhile_keeps_no_posts_as_acknowledged(rig: Rig, is_cut_off: bool) -> None:
    restoration = begun(rig)
    rig.node.partitions[0].kept.is_cut_off = is_cut_off
    restoration.end()
    client = rig.connect()
    client.open(1, QUEUE, WRITE | ACK)
    client.put(1, guid(2), b"posted")
    assert [ack.guid for ack in client.acks()] == ([] if is_cut_off else [guid(2)])
    assert (guid(2) in rig.node.queues[QUEUE].awaiting) is is_cut_off


def test_a_domain_that_is_configured_anew_meanwhile_counts(rig: Rig) -> None:
    restoration = begun(rig)
    domain = rig.node.domains["priority"]
    reconfigure(rig.node, domain, replace(domain.config, queue_messages_max=1))
    restoration.end()
    client = rig.connect()
    client.open(1, QUEUE, READ | WRITE | ACK)
    assert client.post(1, guid(2), b"the last") is AckStatus.SUCCESS
    assert client.post(1, guid(3), b"one too many") is AckStatus.LIMIT_MESSAGES
