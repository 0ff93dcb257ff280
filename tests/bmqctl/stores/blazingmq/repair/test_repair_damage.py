"""Repairs of stores with any damage: each ends with a sound result that keeps everything undamaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bmqctl.stores.blazingmq.repair.repair import repair_store
from bmqctl.stores.blazingmq.repair.report import Mode, RepairReport
from broker.bmq.assembly.opening import open_ledger, open_partitions
from broker.bmq.store.partition_files import PartitionLimits
from broker.common.clock import Now
from formats.bmq.disk.data import parse_data_record
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import ConfirmRecord, DeletionRecord, MessageRecord, QueueOpRecord, QueueOpType
from formats.bmq.disk.qlist import parse_queue_record
from formats.bmq.stores.recover import iter_data, iter_journal, iter_ledger, iter_qlist
from tests.bmqctl.stores.blazingmq.small_store import EXTENSIONS, START_S, build_small_store, message_guid, read_files
from tests.broker.fakes import Content, MemoryDirectory
from tests.families import examples
from tests.golden.archives import only

JOURNAL, DATA, QLIST, LEDGER = EXTENSIONS

PURGED = {bytes.fromhex(message_guid(1000))}

Files = dict[str, bytes]


class Damage(NamedTuple):
    """A change to a file, see `_apply`. Offsets are taken modulo the file's size."""

    extension: str
    kind: str
    at: int
    size: int
    value: int


def _apply(content: bytes, damage: Damage) -> bytes:
    """A bit flipped, the file cut, a range zeroed or overwritten, or two blocks swapped."""
    if not content:
        return content
    out = bytearray(content)
    at = damage.at % len(out)
    size = min(1 + damage.size, len(out) - at)
    match damage.kind:
        case "flip":
            out[at] ^= 1 << damage.value % 8
        case "cut":
            del out[at:]
        case "zeros":
            out[at : at + size] = bytes(size)
        case "noise":
            out[at : at + size] = bytes((damage.value * 167 + each * 89) % 256 for each in range(size))
        case _:
            # Blocks of records, where there are records, so that they stay readable at another's place.
            unit = JOURNAL_RECORD_SIZE if damage.extension == JOURNAL else 8
            first = 44 if damage.extension == JOURNAL else 40
            count = (len(out) - first) // unit
            length = 1 + damage.size // unit
            one, other = sorted((damage.at % max(1, count), damage.value % max(1, count)))
            length = min(length, other - one, count - other)
            a, b, step = first + one * unit, first + other * unit, length * unit
            out[a : a + step], out[b : b + step] = out[b : b + step], out[a : a + step]
    return bytes(out)


DAMAGE = st.builds(
    Damage,
    st.sampled_from(EXTENSIONS),
    st.sampled_from(["flip", "flip", "flip", "cut", "zeros", "noise", "swap"]),
    st.integers(0, 1 << 16),
    st.integers(0, 200),
    st.integers(0, 1 << 12),
)


class Story(NamedTuple):
    """The contents of a sound store, record by record, each with its bytes by file and offset."""

    messages: dict[bytes, list[tuple[str, int, int]]]
    confirms: dict[tuple[bytes, bytes], list[tuple[str, int, int]]]
    deletions: dict[bytes, list[tuple[str, int, int]]]


def _story(files: Files) -> Story:
    story = Story({}, {}, {})
    queues: dict[bytes, list[tuple[str, int, int]]] = {}
    for offset, record in iter_journal(files[JOURNAL]):
        own = (JOURNAL, offset, JOURNAL_RECORD_SIZE)
        if isinstance(record, QueueOpRecord):
            if record.queue_op_type in (QueueOpType.CREATION, QueueOpType.ADDITION):
                entry = parse_queue_record(files[QLIST], record.queue_uri_record_offset_words * 4)
                queues.setdefault(record.queue_key, []).extend([own, (QLIST, entry.offset, entry.end - entry.offset)])
        elif isinstance(record, MessageRecord):
            data = parse_data_record(files[DATA], record.message_offset_dwords * 8)
            place = (DATA, data.offset, data.end - data.offset)
            story.messages[record.guid] = [own, place, *queues[record.queue_key]]
        elif isinstance(record, ConfirmRecord):
            # Automatic ones come before their message.
            story.confirms[record.guid, record.app_key] = [own, *story.messages.get(record.guid, [])]
        elif isinstance(record, DeletionRecord):
            story.deletions[record.guid] = [own, *story.messages[record.guid]]
    return story


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_small_store(tmp_path_factory.mktemp("small") / "store")


class Repaired(NamedTuple):
    before: Files
    damaged: Files
    report: RepairReport
    out: Path


def _repair(sound: Path, work: Path, damages: list[Damage], mode: Mode) -> Repaired:
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(sound, work / "damaged")
    before = read_files(sound)
    for damage in damages:
        path = only(work / "damaged", damage.extension)
        path.write_bytes(_apply(path.read_bytes(), damage))
    damaged = read_files(work / "damaged")
    report = repair_store(work / "damaged", work / "out", mode, lambda what, done, total: None)
    assert read_files(work / "damaged") == damaged, "the damaged store was written to"
    return Repaired(before, damaged, report, work / "out")


Check = Callable[[Repaired], None]


def _check(repaired: Repaired) -> None:
    before, damaged, report, out = repaired
    assert report.errors == 0, report.counts
    story = _story(before)

    def intact(parts: list[tuple[str, int, int]]) -> bool:
        return all(damaged[file][at : at + size] == before[file][at : at + size] for file, at, size in parts)

    # A record whose number another claims is damaged, too: nothing says which of them is right.
    kept = _story({extension: only(out, extension).read_bytes() for extension in (JOURNAL, DATA, QLIST)})
    for guid, parts in story.messages.items():
        if intact(parts):
            assert guid in kept.messages, f"{guid.hex()} was not damaged"
            if guid in story.deletions and intact(story.deletions[guid]):
                assert guid in kept.deletions, f"{guid.hex()} came back"
            for (of, app_key), own in story.confirms.items():
                if of == guid and intact(own):
                    assert (guid, app_key) in kept.confirms, f"a confirm of {guid.hex()} was lost"
    # Nothing is invented: every message has the data that it had. A GUID has no checksum: a damaged one is another.
    for guid in kept.messages:
        if guid in story.messages:
            assert _payload(out, kept, guid) == _payload_of(before, story, guid)


def _check_node(repaired: Repaired) -> None:
    """A node opens the result: it has every message that was not damaged, and that nobody was done with."""
    before, damaged, report, out = repaired
    directory = MemoryDirectory()
    for path in out.iterdir():
        content = bytearray(path.read_bytes())
        directory.files[path.name] = Content(content, len(content))
    now = Now(START_S, 1_000_000)
    limits = PartitionLimits(1 << 16, 1 << 16, 1 << 16)
    opened = open_partitions(directory, 1, 0, limits, now, lambda prefix: f"{prefix}20300101_000000")
    open_ledger(directory, 1 << 16, now, lambda prefix: f"{prefix}20300101_000000", opened)
    ((_, recovered),) = opened
    assert len(recovered.messages) <= sum(partition.outstanding for partition in report.partitions)
    found = {message.guid for message in recovered.messages}
    story = _story(before)
    queues = {record.queue_key for _, record in iter_journal(before[JOURNAL]) if isinstance(record, QueueOpRecord)}
    assert set(recovered.queues) <= queues or damaged[JOURNAL] != before[JOURNAL]
    for guid, parts in story.messages.items():
        sound = all(damaged[file][at : at + size] == before[file][at : at + size] for file, at, size in parts)
        if sound and guid not in story.deletions and guid not in PURGED:
            assert guid in found, f"{guid.hex()} is not served"


def _payload(out: Path, story: Story, guid: bytes) -> bytes:
    return _payload_of({DATA: only(out, DATA).read_bytes()}, story, guid)


def _payload_of(files: Files, story: Story, guid: bytes) -> bytes:
    (_, at, _) = story.messages[guid][1]
    return bytes(parse_data_record(files[DATA], at).app_data(files[DATA]))


def _ends(files: Files, extension: str) -> list[tuple[int, int]]:
    """Return where the first and the last record of a file begin and end."""
    content = files[extension]
    if extension == JOURNAL:
        found = [(offset, offset + JOURNAL_RECORD_SIZE) for offset, _ in iter_journal(content)]
    elif extension == DATA:
        found = [(record.offset, record.end) for record in iter_data(content)]
    elif extension == QLIST:
        found = [(record.offset, record.end) for record in iter_qlist(content)]
    else:
        found = [(record.offset, record.end) for record in iter_ledger(content)]
    return [found[0], found[-1]]


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.parametrize("place", [0, 1], ids=["first", "last"])
def test_a_record_that_was_never_finished(sound: Path, tmp_path: Path, place: int, extension: str, mode: Mode) -> None:
    """The first record of a file, or the last, of which some bytes were written, and zeros follow to its end."""
    start, end = _ends(read_files(sound), extension)[place]
    for written in sorted({0, 1, 4, (end - start) // 2, end - start - 4, end - start - 1}):
        size = end - start - written
        repaired = _repair(
            sound, tmp_path / str(written), [Damage(extension, "zeros", start + written, size - 1, 0)], mode
        )
        if mode is Mode.REPLICA:
            _check_replica(repaired)
        else:
            _check(repaired)
            _check_node(repaired)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damages=st.lists(DAMAGE, min_size=1, max_size=4))
def test_any_damage(sound: Path, tmp_path: Path, damages: list[Damage]) -> None:
    repaired = _repair(sound, tmp_path / "work", damages, Mode.ALONE)
    _check(repaired)
    _check_node(repaired)


def _check_replica(repaired: Repaired) -> None:
    """Check that everything kept precedes the damage and, but for uncovered bits, equals the other replicas' data."""
    before, damaged, report, out = repaired
    assert report.errors == 0, report.counts
    journals = list(out.glob(f"*{JOURNAL}"))
    if not journals:
        return
    written = journals[0].read_bytes()
    assert damaged[JOURNAL][44:].startswith(written[44:]), "a record is not as it was found"
    for extension in (DATA, QLIST):
        content = only(out, extension).read_bytes()
        assert damaged[extension][36:].startswith(content[36:]) or damaged[extension][:40] != before[extension][:40]
    # It goes as far as it can.
    harmless = {extension for extension in EXTENSIONS if damaged[extension] == before[extension]}
    if {JOURNAL, DATA, QLIST, LEDGER} == harmless:
        assert written == before[JOURNAL]


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damages=st.lists(DAMAGE, min_size=1, max_size=4))
def test_any_damage_of_a_replica(sound: Path, tmp_path: Path, damages: list[Damage]) -> None:
    _check_replica(_repair(sound, tmp_path / "work", damages, Mode.REPLICA))
