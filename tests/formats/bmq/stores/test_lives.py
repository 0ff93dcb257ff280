"""`stores.lives` against a model in plain Python, over journals that make no sense, however they are cut."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType
from formats.bmq.disk.journal import (
    RECORD_MAGIC,
    ConfirmReason,
    ConfirmRecord,
    DeletionRecord,
    DeletionRecordFlag,
    MessageRecord,
    QueueOpRecord,
    QueueOpType,
    decode_record,
    scan,
)
from formats.bmq.disk.journal_packing import pack_confirm, pack_deletion, pack_message, pack_queue_op
from formats.bmq.disk.keys import NULL_KEY
from formats.bmq.stores import live_events
from formats.bmq.stores.lives import BITS, End, Lives, Role, Step, guid_bytes
from formats.bmq.stores.recover import iter_journal, journal_extent
from tests.families import examples
from tests.formats.bmq.conftest import Store
from tests.golden.archives import STORES

QUEUE, OTHER = b"queue", b"other"
QUEUES = (QUEUE, OTHER)
GUIDS = tuple(bytes([0x40, *bytes(7), n, *bytes(7)]) for n in range(3))
GUID = GUIDS[0]
LEASE = 3


def app(number: int) -> bytes:
    return number.to_bytes(5, "big")


class Journal:
    """Records one after another; sequence numbers are those of the places plus 1, times plus 100."""

    def __init__(self) -> None:
        self.bytes = bytearray()

    def _write(self, pack: Callable[..., None], *fields: object) -> None:
        index = len(self.bytes) // JOURNAL_RECORD_SIZE
        self.bytes += bytes(JOURNAL_RECORD_SIZE)
        pack(self.bytes, len(self.bytes) - JOURNAL_RECORD_SIZE, LEASE, index + 1, index + 100, *fields)

    def message(self, queue: bytes, guid: bytes, ref_count: int) -> None:
        self._write(pack_message, ref_count, 0, queue, len(self.bytes), guid, 7)

    def confirm(self, queue: bytes, guid: bytes, app_key: bytes, reason: int = ConfirmReason.CONFIRMED) -> None:
        self._write(pack_confirm, reason, queue, app_key, guid)

    def deletion(self, queue: bytes, guid: bytes, flag: int = DeletionRecordFlag.NONE) -> None:
        self._write(pack_deletion, flag, queue, guid)

    def queue_op(self, kind: QueueOpType, queue: bytes, app_key: bytes = NULL_KEY, start: int = 0) -> None:
        self._write(pack_queue_op, kind, queue, app_key, 0, LEASE if start else 0, start)

    def unreadable(self) -> None:
        self.bytes += RECORD_MAGIC.to_bytes(4, "big") * (JOURNAL_RECORD_SIZE // 4)


@dataclass
class Life:
    index: int
    timestamp: int
    queue: bytes
    guid: bytes
    sequence_number: int
    data_offset: int
    ref_count: int
    confirmed: set[bytes] = field(default_factory=set)
    automatic: set[bytes] = field(default_factory=set)
    purged: set[bytes] = field(default_factory=set)

    def shown(self) -> tuple[object, ...]:
        roles = tuple(frozenset(apps) for apps in (self.confirmed, self.automatic, self.purged))
        numbers = (self.index, self.timestamp, self.sequence_number, self.data_offset, self.ref_count)
        return (*numbers, self.queue, self.guid, len(self.confirmed), *roles)


class Model:
    """One record at a time."""

    def __init__(self, records: bytes) -> None:
        self.alive: dict[tuple[bytes, bytes], Life] = {}
        self.arrived: list[tuple[object, ...]] = []
        self.ended: list[tuple[object, ...]] = []
        self.faults: dict[str, list[int]] = {n: [] for n in ("unknown", "duplicates", "repeated", "excess", "early")}
        self.pending: dict[bytes, tuple[bytes, set[bytes]]] = {}
        for index in range(len(records) // JOURNAL_RECORD_SIZE):
            try:
                record: Any = decode_record(records, index * JOURNAL_RECORD_SIZE)
            except ValueError:
                continue
            self.take(index, record)

    def take(self, index: int, record: Any) -> None:
        if isinstance(record, QueueOpRecord):
            self.purge(index, record)
            return
        key = (record.queue_key, record.guid)
        life = self.alive.get(key)
        if isinstance(record, ConfirmRecord) and record.reason & ConfirmReason.AUTO_CONFIRMED:
            announced = self.pending.get(record.queue_key)
            if announced is None or announced[0] != record.guid:
                announced = self.pending[record.queue_key] = (record.guid, set())
            announced[1].add(record.app_key)
        elif isinstance(record, MessageRecord):
            announced = self.pending.pop(record.queue_key, None)
            if life is not None:
                self.faults["duplicates"].append(index)
                return
            offset = record.message_offset_dwords
            life = Life(index, record.timestamp, *key, record.sequence_number, offset, record.ref_count)
            if announced is not None and announced[0] == record.guid:
                life.automatic = announced[1]
            self.alive[key] = life
            self.arrived.append(life.shown())
        elif life is None:
            self.faults["unknown"].append(index)
        elif isinstance(record, ConfirmRecord):
            if record.app_key in life.confirmed:
                self.faults["repeated"].append(index)
            else:
                life.confirmed.add(record.app_key)
                if len(life.confirmed) > life.ref_count:
                    self.faults["excess"].append(index)
        elif isinstance(record, DeletionRecord):
            self.delete(index, record, self.alive.pop(key))

    def delete(self, index: int, record: DeletionRecord, life: Life) -> None:
        purges = len(life.purged - life.confirmed - life.automatic)
        done = len(life.confirmed) + purges
        if record.deletion_flag & DeletionRecordFlag.TTL_EXPIRATION:
            end = End.EXPIRED
        elif record.deletion_flag & DeletionRecordFlag.NO_SC_QUORUM:
            end = End.NO_QUORUM
        else:
            end = End.PURGED if purges and done >= life.ref_count else End.CONFIRMED
        if not record.deletion_flag and done < life.ref_count - 1:
            self.faults["early"].append(index)
        self.ended.append((*life.shown(), index, record.timestamp, end))

    def purge(self, index: int, op: QueueOpRecord) -> None:
        if op.queue_op_type not in (QueueOpType.PURGE, QueueOpType.DELETION):
            return
        end = End.PURGED if op.queue_op_type == QueueOpType.PURGE else End.QUEUE_DELETED
        start = (op.start_primary_lease_id, op.start_sequence_number)
        for life in [life for life in self.alive.values() if life.queue == op.queue_key]:
            if op.app_key == NULL_KEY:
                del self.alive[life.queue, life.guid]
                self.ended.append((*life.shown(), index, op.timestamp, end))
            elif end is End.PURGED and (LEASE, life.sequence_number) >= start:
                life.purged.add(op.app_key)


def shown(lives: Lives, rows: Any, beyond: Any) -> list[tuple[object, ...]]:
    """Rows as `Life.shown` has them; what several fields say of an app is held against each other."""
    out = []
    keys = lives.queue_keys()
    for row in rows:
        roles = []
        for role in Role:
            mask = int(row[role.name.lower()])
            known = lives.app_keys(int(row["queue"]))
            roles.append({known[bit] for bit in range(BITS) if mask >> bit & 1})
            roles[-1] |= {known[n] for n, r in beyond.get(int(row["index"]), {}).items() if r is role}
        names = ("index", "timestamp", "sequence_number", "data_offset_dwords", "ref_count")
        assert row["primary_lease_id"] == LEASE
        out.append(
            (
                *(int(row[name]) for name in names),
                keys[row["queue"]],
                guid_bytes(int(row["guid_high"]), int(row["guid_low"])),
                int(row["confirms"]),
                *map(frozenset, roles),
            )
        )
    return out


def followed(journal: bytes, cuts: list[int]) -> Model:
    """Feed a journal to `Lives` in pieces, and return the result in the form of the model."""
    lives = Lives()
    seen = Model(b"")
    count = len(journal) // JOURNAL_RECORD_SIZE
    bounds = [0, *sorted({cut for cut in cuts if cut < count}), count]
    records = scan(journal, 0, count)
    for start, end in pairwise(bounds):
        # A copy that is spoilt afterwards: nothing may be kept of it.
        piece = records[start:end].copy()
        step = lives.feed(np.arange(start, end), piece)
        piece[:] = np.zeros(1, piece.dtype)[0]
        seen.arrived += shown(lives, step.arrived, {})
        beyond_of_step = {**step.beyond}
        for row, by, at, why in zip(
            shown(lives, step.ended, beyond_of_step), step.ended_by, step.ended_at, step.end, strict=True
        ):
            seen.ended.append((*row, int(by), int(at), End(why)))
        for name, found in seen.faults.items():
            found += getattr(step, name).tolist()
    alive = lives.alive()
    assert len(alive) == len(lives)
    for row in shown(lives, alive, lives.beyond):
        life = Life(*row[:2], *row[5:7], *row[2:5], *map(set, row[8:]))  # type: ignore[arg-type]
        assert life.shown() == row
        seen.alive[life.queue, life.guid] = life
    assert set(lives.beyond) <= {life.index for life in seen.alive.values()}
    return seen


def agree(journal: bytes, cuts: list[int]) -> Model:
    model, seen = Model(journal), followed(journal, cuts)
    assert seen.arrived == model.arrived
    assert seen.ended == model.ended
    assert seen.faults == model.faults
    assert {key: life.shown() for key, life in seen.alive.items()} == {
        key: life.shown() for key, life in model.alive.items()
    }
    return seen


queues, guids = st.sampled_from(QUEUES), st.sampled_from(GUIDS)
apps = st.integers(1, 3).map(app)
records = st.one_of(
    st.tuples(st.just("message"), queues, guids, st.integers(0, 3)),
    st.tuples(st.just("message"), queues, guids, st.integers(0, 3)),
    st.tuples(st.just("confirm"), queues, guids, st.one_of(apps, st.just(NULL_KEY)), st.sampled_from((0, 0, 1, 2, 3))),
    st.tuples(st.just("confirm"), queues, guids, apps),
    st.tuples(st.just("deletion"), queues, guids, st.sampled_from((0, 0, 0, 1, 2, 4, 6))),
    st.tuples(
        st.just("queue_op"),
        st.sampled_from((QueueOpType.PURGE, QueueOpType.PURGE, QueueOpType.DELETION, QueueOpType.CREATION)),
        queues,
        st.one_of(apps, apps, st.just(NULL_KEY)),
        st.integers(0, 30),
    ),
    st.just(("unreadable",)),
)


def written(lines: list[tuple[Any, ...]]) -> bytes:
    journal = Journal()
    for name, *fields in lines:
        getattr(journal, name)(*fields)
    return bytes(journal.bytes)


@pytest.mark.parametrize("cuts", [[], [1], [2], [1, 2, 3]])
def test_a_repeated_message_takes_no_automatic_confirms(cuts: list[int]) -> None:
    # The purge of one app parts the journal where the message is alive.
    lines: list[tuple[Any, ...]] = [
        ("message", QUEUE, GUID, 1),
        ("confirm", QUEUE, GUID, app(2), ConfirmReason.AUTO_CONFIRMED),
        ("queue_op", QueueOpType.PURGE, QUEUE, app(1)),
        ("message", QUEUE, GUID, 1),
    ]
    (life,) = agree(written(lines), cuts).alive.values()
    assert not life.automatic


@pytest.mark.slow
@settings(max_examples=examples(400))
@given(st.lists(records, max_size=60), st.lists(st.integers(0, 60), max_size=6))
def test_is_the_model_however_the_journal_is_cut(lines: list[tuple[Any, ...]], cuts: list[int]) -> None:
    agree(written(lines), cuts)


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(st.lists(records, max_size=40), st.lists(st.integers(0, 40), max_size=3))
def test_is_the_model_when_all_hashes_collide(lines: list[tuple[Any, ...]], cuts: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_events, "mix", lambda high, low, queue: np.zeros(len(high), np.uint64))
        agree(written(lines), cuts)


@pytest.mark.parametrize("cuts", [[], [40], [70, 139, 140], list(range(300))])
def test_more_apps_than_bits(cuts: list[int]) -> None:
    journal = Journal()
    many = BITS + 6
    for guid in GUIDS:
        journal.message(QUEUE, guid, many)
        for number in range(many):
            journal.confirm(QUEUE, guid, app(number + 1))
        journal.confirm(QUEUE, guid, app(many))
        journal.confirm(QUEUE, guid, app(many + 1))
    journal.queue_op(QueueOpType.PURGE, QUEUE, app(many + 2))
    journal.deletion(QUEUE, GUIDS[1])
    seen = agree(bytes(journal.bytes), cuts)
    assert [len(found) for found in seen.faults.values()] == [0, 0, 3, 3, 0]
    assert len(seen.alive) == 2


def test_the_last_confirm_is_the_deletion() -> None:
    journal = Journal()
    journal.message(QUEUE, GUID, 2)
    journal.confirm(QUEUE, GUID, app(1))
    journal.deletion(QUEUE, GUID)
    journal.message(QUEUE, GUID, 3)
    journal.confirm(QUEUE, GUID, app(1))
    journal.deletion(QUEUE, GUID)
    assert agree(bytes(journal.bytes), [4]).faults["early"] == [5]


@pytest.mark.parametrize("cuts", [[], [2], [1, 2, 3]])
def test_an_app_that_confirms_again(cuts: list[int]) -> None:
    journal = Journal()
    journal.message(QUEUE, GUID, 3)
    journal.confirm(QUEUE, GUID, app(1))
    journal.confirm(QUEUE, GUID, app(1))
    journal.confirm(QUEUE, GUID, app(2))
    assert agree(bytes(journal.bytes), cuts).faults["repeated"] == [2]


def test_a_purge_of_the_last_app() -> None:
    journal = Journal()
    journal.message(QUEUE, GUID, 2)
    journal.message(QUEUE, GUIDS[1], 2)
    journal.confirm(QUEUE, GUIDS[1], app(1))
    journal.queue_op(QueueOpType.PURGE, QUEUE, app(2), start=2)
    journal.deletion(QUEUE, GUIDS[1])
    seen = agree(bytes(journal.bytes), [])
    assert [row[-1] for row in seen.ended] == [End.PURGED]
    assert seen.alive[QUEUE, GUID].purged == set()


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("step", [1 << 17, 97])
def test_golden_journals(store: Callable[[str], Store], name: str, step: int) -> None:
    buffer = store(name).file(FileType.JOURNAL)
    extent = journal_extent(buffer)
    lives = Lives()
    ended: list[Step] = []
    for start in range(0, extent.record_count, step):
        count = min(step, extent.record_count - start)
        at = extent.first_record_offset + start * JOURNAL_RECORD_SIZE
        ended.append(lives.feed(np.arange(start, start + count), scan(buffer, at, count)))
    wanted: dict[tuple[bytes, bytes], int] = {}
    confirms = 0
    for offset, record in iter_journal(buffer):
        if isinstance(record, MessageRecord):
            wanted[record.queue_key, record.guid] = (offset - extent.first_record_offset) // JOURNAL_RECORD_SIZE
        elif isinstance(record, DeletionRecord):
            del wanted[record.queue_key, record.guid]
        elif isinstance(record, ConfirmRecord):
            confirms += 1
    assert lives.alive()["index"].tolist() == sorted(wanted.values())
    assert sum(int(each.ended["confirms"].sum()) for each in ended) + int(lives.alive()["confirms"].sum()) == confirms
    for each in ended:
        for column in (each.unknown, each.duplicates, each.repeated, each.excess, each.early):
            assert not len(column)


@pytest.mark.slow
def test_memory_is_that_of_the_messages_alive() -> None:
    """Ten of every thousand messages stay until the next thousand; all hundred thousand take the first one's memory."""
    journal = Journal()
    for number in range(1000):
        journal.message(QUEUE, number.to_bytes(16, "big"), 1)
    for number in range(1000):
        journal.deletion(QUEUE, number.to_bytes(16, "big"))
    # The last ten deletions come in the next round.
    at = 1990 * JOURNAL_RECORD_SIZE
    records = scan(journal.bytes[at:] + journal.bytes[:at], 0, 2000)
    raw = records.view(np.uint8).reshape(len(records), JOURNAL_RECORD_SIZE)
    lives = Lives()
    sizes = []
    tracemalloc.start()
    try:
        for number in range(100):
            raw[10:1010, 36] = number
            raw[1010:, 28] = number
            lives.feed(np.arange(len(records)) + number * len(records), records)
            raw[:10, 28] = number
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert len(lives) == 10
    assert sizes[-1] < sizes[4] + (32 << 10)
