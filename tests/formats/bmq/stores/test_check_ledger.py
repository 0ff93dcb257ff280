"""The ledger by itself, and held against the partitions: what each disagreement is called, and where it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from formats.bmq.control import ber
from formats.bmq.control.messages_cluster import (
    AppIdInfo,
    ClusterMessage,
    LeaderAdvisory,
    LeaderAdvisoryCommit,
    LeaderMessageSequence,
    PartitionPrimaryAdvisory,
    PartitionPrimaryInfo,
    QueueAssignmentAdvisory,
    QueueInfo,
    QueueInfoUpdate,
    QueueUnAssignmentAdvisory,
    QueueUpdateAdvisory,
)
from formats.bmq.disk.ledger import LedgerRecordType, build_ledger_record, initial_ledger_bytes
from formats.bmq.stores.check_ledger import LedgerState, check_agreement, check_ledger, find_ledger_record
from formats.bmq.stores.check_queues import KnownQueue
from formats.bmq.stores.faults import CATALOGUE, Fault, Severity
from formats.bmq.stores.validate import FileView

NAME = "bmq_csl_20261121_051104_6C6F676964.bmq_csl"
LOG_ID = b"logid"
SECOND = 1_795_237_864
JOURNAL_NAME, QLIST_NAME = "bmq_0.20261121_051104.bmq_journal", "bmq_0.20261121_051104.bmq_qlist"
URI, OTHER_URI = "bmq://domain/one", "bmq://domain/two"
KEY, OTHER_KEY = b"queue", b"other"
FOO, BAR = b"foo\0\0", b"bar\0\0"


@dataclass
class Ledger:
    """A ledger written record by record; `offsets` are where they begin."""

    content: bytearray = field(default_factory=lambda: bytearray(initial_ledger_bytes(LOG_ID)))
    offsets: list[int] = field(default_factory=list)
    number: int = 0

    def add(self, make: Callable[[LeaderMessageSequence], Any], kind: LedgerRecordType) -> Ledger:
        self.number += 1
        choice = make(LeaderMessageSequence(elector_term=1, sequence_number=self.number))
        self.offsets.append(len(self.content))
        body = ber.encode(ClusterMessage(choice=choice))
        self.content += build_ledger_record(kind, 1, self.number, SECOND, body)
        return self

    def commit(self, number: int | None = None) -> Ledger:
        committed = LeaderMessageSequence(elector_term=1, sequence_number=number or self.number)
        return self.add(
            lambda own: LeaderAdvisoryCommit(sequence_number=own, sequence_number_committed=committed),
            LedgerRecordType.COMMIT,
        )

    def snapshot(self, *queues: QueueInfo, lease: int = 1, node: int = 0) -> Ledger:
        primary = PartitionPrimaryInfo(partition_id=0, primary_node_id=node, primary_lease_id=lease)
        return self.add(
            lambda own: LeaderAdvisory(sequence_number=own, partitions=(primary,), queues=queues),
            LedgerRecordType.SNAPSHOT,
        )

    def update(self, make: Callable[[LeaderMessageSequence], Any]) -> Ledger:
        return self.add(make, LedgerRecordType.UPDATE)

    def assign(self, *queues: QueueInfo) -> Ledger:
        return self.update(lambda own: QueueAssignmentAdvisory(sequence_number=own, queues=queues))

    def lead(self, lease: int, node: int) -> Ledger:
        primary = PartitionPrimaryInfo(partition_id=0, primary_node_id=node, primary_lease_id=lease)
        return self.update(lambda own: PartitionPrimaryAdvisory(sequence_number=own, partitions=(primary,)))

    def unassign(self, *queues: QueueInfo) -> Ledger:
        return self.update(
            lambda own: QueueUnAssignmentAdvisory(
                sequence_number=own, partition_id=0, primary_lease_id=1, primary_node_id=0, queues=queues
            )
        )

    def change_apps(self, added: dict[str, bytes], removed: dict[str, bytes]) -> Ledger:
        update = QueueInfoUpdate(
            uri=URI,
            key=KEY,
            partition_id=0,
            added_app_ids=infos(added),
            removed_app_ids=infos(removed),
            domain="domain",
        )
        return self.update(lambda own: QueueUpdateAdvisory(sequence_number=own, queue_updates=(update,)))

    def check(self) -> tuple[list[Fault], LedgerState]:
        found, faults = check_ledger(FileView(NAME, bytes(self.content))), []
        while True:
            try:
                faults.append(next(found))
            except StopIteration as end:
                return faults, end.value

    def state(self) -> LedgerState:
        faults, state = self.check()
        assert faults == []
        return state


def infos(apps: dict[str, bytes]) -> tuple[AppIdInfo, ...]:
    return tuple(AppIdInfo(app_id=app_id, app_key=key) for app_id, key in apps.items())


def queue(uri: str = URI, key: bytes = KEY, partition_id: int = 0, **apps: bytes) -> QueueInfo:
    return QueueInfo(uri=uri, key=key, partition_id=partition_id, app_ids=infos(apps or {"foo": FOO}))


@dataclass
class Partition:
    """The result of a file set's checks."""

    queues: dict[bytes, KnownQueue]
    leases: dict[int, int] = field(default_factory=lambda: {1: 44})
    primaries: dict[int, tuple[int, int]] = field(default_factory=lambda: {1: (0, 44)})
    partition_id: int = 0
    journal_name: str = JOURNAL_NAME
    qlist_name: str | None = QLIST_NAME


def partition(*queues: KnownQueue, **others: Any) -> Partition:
    return Partition({each.queue_key: each for each in queues}, **others)


def known(uri: str | None = URI, key: bytes = KEY, **apps: bytes) -> KnownQueue:
    return KnownQueue(key, 104, uri, None if uri is None else 36, apps or {"foo": FOO})


def disagreements(ledger: Ledger, *partitions: Partition) -> list[tuple[str, str, int]]:
    faults = list(check_agreement(ledger.state(), partitions))
    assert all(fault.reason and fault.severity is CATALOGUE[fault.code].severity for fault in faults)
    return [(fault.code, fault.file, fault.offset) for fault in faults]


SOUND = Ledger().snapshot().commit().assign(queue()).commit()


def test_a_ledger_that_agrees() -> None:
    assert disagreements(SOUND, partition(known())) == []
    assert disagreements(SOUND, partition(known(uri=None))) == []
    assert disagreements(SOUND, partition(known(), qlist_name=None)) == []


@pytest.mark.parametrize(
    ("found", "code", "file", "offset"),
    [
        pytest.param(partition(known(OTHER_URI)), "ledger-disagreement", QLIST_NAME, 36, id="URI"),
        pytest.param(partition(known(key=OTHER_KEY)), "ledger-disagreement", QLIST_NAME, 36, id="key"),
        pytest.param(partition(known(foo=BAR)), "ledger-disagreement", QLIST_NAME, 36, id="app key"),
        pytest.param(partition(known(bar=FOO)), "ledger-disagreement", QLIST_NAME, 36, id="app id"),
        pytest.param(partition(known(), partition_id=1), "ledger-disagreement", QLIST_NAME, 36, id="partition"),
        pytest.param(partition(known(), primaries={1: (7, 44)}), "ledger-disagreement", JOURNAL_NAME, 44, id="primary"),
        pytest.param(partition(known(), leases={1: 44, 2: 164}), "ledger-lease", JOURNAL_NAME, 164, id="lease"),
        pytest.param(
            partition(known(), known(OTHER_URI, OTHER_KEY)), "ledger-lacks", JOURNAL_NAME, 104, id="a queue more"
        ),
        pytest.param(partition(known(foo=FOO, bar=BAR)), "ledger-lacks", QLIST_NAME, 36, id="an app more"),
        pytest.param(partition(), "ledger-ahead", NAME, SOUND.offsets[2], id="a queue less"),
    ],
)
def test_one_disagreement(found: Partition, code: str, file: str, offset: int) -> None:
    assert disagreements(SOUND, found) == [(code, file, offset)]


def test_a_queue_of_a_partition_without_files() -> None:
    ledger = Ledger().snapshot(queue(), queue(OTHER_URI, OTHER_KEY, 3)).commit()
    assert disagreements(ledger, partition(known())) == [("ledger-ahead", NAME, ledger.offsets[0])]


def test_a_partition_with_queues_that_nobody_serves() -> None:
    """A broker with fewer partitions leaves a state without primaries of the others."""
    ledger = Ledger().snapshot(queue(OTHER_URI, OTHER_KEY, 1), queue()).commit()
    found = (partition(known()), partition(known(OTHER_URI, OTHER_KEY), partition_id=1))
    assert disagreements(ledger, *found) == [("partition-unserved", NAME, ledger.offsets[0])]


def test_an_app_that_only_the_ledger_has() -> None:
    ledger = Ledger().snapshot(queue(foo=FOO, bar=BAR)).commit()
    assert disagreements(ledger, partition(known())) == [("ledger-ahead", QLIST_NAME, 36)]


def test_uncommitted_advisory_does_not_count() -> None:
    """A stop may come between an advisory and its commit, and between these and the journal's record."""
    ledger = Ledger().snapshot().commit().assign(queue())
    assert disagreements(ledger, partition()) == []
    assert disagreements(ledger, partition(known())) == []
    ledger.commit()
    assert [code for code, *_ in disagreements(ledger, partition())] == ["ledger-ahead"]
    ledger.unassign(queue())
    assert disagreements(ledger, partition(known())) == []
    assert disagreements(ledger, partition()) == []
    ledger.commit()
    assert disagreements(ledger, partition()) == []
    assert [code for code, *_ in disagreements(ledger, partition(known()))] == ["ledger-lacks"]


def test_apps_come_and_go() -> None:
    ledger = Ledger().snapshot(queue()).commit().change_apps({"bar": BAR}, {"foo": FOO})
    assert disagreements(ledger, partition(known())) == []
    ledger.commit()
    assert disagreements(ledger, partition(known(bar=BAR))) == []
    assert [code for code, *_ in disagreements(ledger, partition(known()))] == ["ledger-lacks", "ledger-ahead"][::-1]


def test_a_commit_out_of_turn() -> None:
    """A cluster may have two advisories in progress at once."""
    ledger = Ledger().snapshot().assign(queue()).assign(queue(OTHER_URI, OTHER_KEY)).commit(3).commit(2)
    assert disagreements(ledger, partition(known(), known(OTHER_URI, OTHER_KEY))) == []


def test_a_snapshot_replaces_what_was() -> None:
    ledger = Ledger().snapshot(queue()).commit().snapshot(queue(OTHER_URI, OTHER_KEY)).commit()
    assert disagreements(ledger, partition(known(OTHER_URI, OTHER_KEY))) == []


def test_leases_of_advisories_count_at_once() -> None:
    ledger = Ledger().snapshot(queue()).commit().lead(2, 5)
    found = partition(known(), leases={1: 44, 2: 164}, primaries={2: (5, 164)})
    assert disagreements(ledger, found) == []


def test_damage_amid_the_records() -> None:
    """Later records still count: each has its own checksum."""
    ledger = Ledger().snapshot().commit().assign(queue()).commit().assign(queue(OTHER_URI, OTHER_KEY)).commit()
    ledger.content[ledger.offsets[2] + 40] ^= 1
    faults, state = ledger.check()
    assert [(fault.code, fault.offset) for fault in faults] == [("ledger-checksum", ledger.offsets[3] - 4)]
    assert state.damaged
    assert set(state.queues) == {OTHER_KEY}
    # Queues whose records the damage may have hidden are not reported against the journal.
    assert list(check_agreement(state, [partition(known(), known(OTHER_URI, OTHER_KEY))])) == []


def test_zeros_amid_the_records() -> None:
    ledger = Ledger().snapshot().commit().assign(queue()).commit()
    start, end = ledger.offsets[1:3]
    ledger.content[start:end] = bytes(end - start)
    faults, state = ledger.check()
    assert [(fault.code, fault.offset) for fault in faults] == [("ledger-record", start)]
    assert set(state.queues) == {KEY}


def test_every_length_of_an_unfinished_record() -> None:
    ledger = Ledger().snapshot().commit()
    end = len(ledger.content)
    ledger.assign(queue())
    whole = bytes(ledger.content)
    for size in range(end + 1, len(whole)):
        for tail in (b"", bytes(100)):
            ledger.content = bytearray(whole[:size] + tail)
            faults, state = ledger.check()
            assert [(f.code, f.severity, f.offset) for f in faults] == [("ledger-tail", Severity.WARNING, end)]
            assert (state.end, state.damaged) == (end, False)


def test_a_length_that_hides_the_rest_is_no_unfinished_record() -> None:
    ledger = Ledger().snapshot().commit().assign(queue()).commit()
    ledger.content[ledger.offsets[1] + 5] ^= 0x40
    faults, state = ledger.check()
    assert [(fault.code, fault.severity) for fault in faults] == [("ledger-record", Severity.ERROR)]
    assert set(state.queues) == {KEY}


def test_a_message_of_another_kind() -> None:
    ledger = Ledger().snapshot()
    at = len(ledger.content)
    ledger.content += build_ledger_record(LedgerRecordType.UPDATE, 1, 2, SECOND, b"\x30\x80\0\0")
    faults, state = ledger.check()
    assert [(fault.code, fault.offset) for fault in faults] == [("ledger-message", at)]
    assert state.damaged


def test_looking_for_records_in_noise() -> None:
    noise = bytes([0x81, 0, 0, 0] * 50)
    assert find_ledger_record(noise, 0) is None
    record = build_ledger_record(LedgerRecordType.UPDATE, 1, 2, SECOND, b"body")
    assert find_ledger_record(noise + record, 0) == len(noise)
    assert find_ledger_record(noise + b"\1" + record, 0) is None
