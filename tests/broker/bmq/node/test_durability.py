"""The state of the disk when output leaves a node, by policy, and the number of syncs."""

from __future__ import annotations

import pytest

from broker.bmq.node.durability import NEVER, Durability, FsyncMode, FsyncPolicy, parse_fsync
from broker.bmq.store.partition_files import PartitionLimits
from tests.broker.bmq.rig import READ, WRITE, Client, Rig, guid, put_event, start

URI = "bmq://priority/q"


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("never", NEVER),
        ("always", FsyncPolicy(FsyncMode.ALWAYS)),
        ("1", FsyncPolicy(FsyncMode.INTERVAL, 1)),
        ("250", FsyncPolicy(FsyncMode.INTERVAL, 250)),
    ],
)
def test_policies_by_name(text: str, policy: FsyncPolicy) -> None:
    assert parse_fsync(text) == policy


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "sometimes", "3600001", "²"])
def test_other_words_are_no_policy(text: str) -> None:
    with pytest.raises(ValueError, match="neither never, nor always"):
        parse_fsync(text)


class Disk:
    """The flushes of a node's folder."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.durability = Durability(rig.node.partitions.values(), rig.node.ledger)
        self.client = rig.connect()

    def sync(self) -> list[str]:
        """The kinds of the files, in order; `/` is the folder."""
        flushed = self.rig.directory.flushed
        flushed.clear()
        self.durability.sync()
        return [name.rpartition(".")[2] if "." in name else "/" for name in flushed]


@pytest.fixture
def disk() -> Disk:
    """All is synced, and queue 1 is open for reading and writing."""
    disk = Disk(start())
    disk.client.open(1, URI, READ | WRITE)
    disk.client.configure(1)
    disk.sync()
    return disk


@pytest.fixture
def client(disk: Disk) -> Client:
    return disk.client


def test_the_first_time_all_there_is_and_the_folder_before_the_journal() -> None:
    assert Disk(start()).sync() == ["bmq_data", "bmq_qlist", "/", "bmq_journal", "bmq_csl", "/"]


def test_nothing_written_costs_nothing(disk: Disk) -> None:
    assert disk.sync() == []


def test_a_message_is_in_data_before_the_journal(disk: Disk, client: Client) -> None:
    client.post(1, guid(1), b"one")
    assert disk.sync() == ["bmq_data", "bmq_journal"]
    assert disk.sync() == []


def test_one_sync_is_for_all_messages_of_a_step(disk: Disk, client: Client) -> None:
    client.send(b"".join(put_event(1, guid(number), b"payload") for number in range(100)))
    assert len(client.acks()) == 100
    assert disk.sync() == ["bmq_data", "bmq_journal"]


def test_a_confirm_is_in_the_journal_alone(disk: Disk, client: Client) -> None:
    client.post(1, guid(1), b"one")
    disk.sync()
    client.confirm(1, guid(1))
    assert disk.sync() == ["bmq_journal"]


def test_a_new_queue_is_in_the_ledger_and_in_qlist(disk: Disk, client: Client) -> None:
    client.open(2, "bmq://priority/other", WRITE)
    assert disk.sync() == ["bmq_qlist", "bmq_journal", "bmq_csl"]


def test_a_rollover_brings_new_files_into_the_folder_before_their_journal_counts(disk: Disk) -> None:
    disk.rig.node.partitions[0].roll_over()
    assert disk.sync() == ["bmq_data", "bmq_qlist", "/", "bmq_journal"]
    assert disk.sync() == []


def test_a_tail_that_was_written_anew_is_synced_though_it_ends_where_the_old_one_did(disk: Disk) -> None:
    disk.rig.node.partitions[0].records.primary_lease_id += 1
    assert disk.sync() == ["bmq_data", "bmq_qlist", "bmq_journal"]


def test_each_partition_is_looked_at() -> None:
    disk = Disk(start(num_partitions=3, limits=PartitionLimits(journal=32 << 10, data=64 << 10, qlist=4 << 10)))
    disk.sync()
    disk.rig.node.partitions[2].roll_over()
    assert disk.sync() == ["bmq_data", "bmq_qlist", "/", "bmq_journal"]
