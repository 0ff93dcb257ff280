# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Reconstruction of a missing QLIST file from the cluster's ledger, byte for byte.

The journal has the place in QLIST of each CREATION and ADDITION record, and its sync points have the end of QLIST;
together they give the size of each record. The ledger knows queues and apps by key. Every record is rebuilt at its
place, so that nodes with and without the original file agree. If the ledger lacks a name, nothing is made.

The size of the newest record is unknown if no sync point follows. It is then built from the first state that the ledger
has for it. If that is wrong, the primary's next record does not fit, and the primary heals this node. But if messages
of the queue follow the record and several states are possible, nothing is made: with the wrong one, an app would never
get these messages.

The reference ignores a set of files without QLIST, and begins with an empty set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from formats.bmq.codes import DEFAULT_APP_ID
from formats.bmq.control import ber
from formats.bmq.control.messages_cluster import (
    AppIdInfo,
    ClusterMessage,
    LeaderAdvisory,
    QueueAssignmentAdvisory,
    QueueInfo,
    QueueUnAssignmentAdvisory,
    QueueUpdateAdvisory,
)
from formats.bmq.disk.files import FileType, initial_bytes
from formats.bmq.disk.journal import (
    JOURNAL_OP_RECORD,
    MESSAGE_RECORD,
    QUEUE_OP_RECORD,
    QueueOpRecord,
    QueueOpType,
    RecordType,
    scan,
    select,
)
from formats.bmq.disk.keys import DEFAULT_APP_KEY, NULL_KEY
from formats.bmq.disk.padding import WORD
from formats.bmq.disk.qlist import build_queue_record
from formats.bmq.stores.recover import iter_ledger, journal_extent
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["DEFAULT_APPS", "LedgerNames", "NotTold", "make_qlist", "read_names"]

Apps = tuple[tuple[str, bytes], ...]

# The apps of a queue whose record names none.
DEFAULT_APPS: Apps = ((DEFAULT_APP_ID, DEFAULT_APP_KEY),)

# Limit of the search for a reading of a queue's history.
READINGS_MAX: Final = 1 << 14


class NotTold(Exception):
    """The ledger does not determine the contents of QLIST; the text says what is missing."""


@dataclass(slots=True)
class LedgerNames:
    """A queue in the ledger, with the successive states of its apps."""

    uri: str
    partition_id: int
    states: list[Apps] = field(default_factory=list)

    def add(self, apps: Apps) -> None:
        if not self.states or self.states[-1] != apps:
            self.states.append(apps)


def read_names(ledgers: Iterable[Buffer]) -> dict[bytes, LedgerNames]:
    """Read all queues that ledger files mention, including deleted ones, from the oldest file on.

    The rest of a file after an error is skipped: opening the ledger reports it.
    """
    names: dict[bytes, LedgerNames] = {}
    for ledger in ledgers:
        try:
            for record in iter_ledger(ledger):
                _note(names, ber.decode(ClusterMessage, record.body))
        except FormatError:
            continue
    return names


def _note(names: dict[bytes, LedgerNames], message: ClusterMessage) -> None:
    match message.choice:
        case LeaderAdvisory(queues=queues) | QueueAssignmentAdvisory(queues=queues):
            for info in queues:
                _names_of(names, info).add(_apps(info.app_ids))
        case QueueUnAssignmentAdvisory(queues=queues):
            for info in queues:
                _names_of(names, info)
        case QueueUpdateAdvisory(queue_updates=updates):
            for update in updates:
                known = names.get(update.key)
                if known is None:
                    continue
                before = known.states[-1] if known.states else ()
                removed = _apps(update.removed_app_ids)
                kept = tuple(app for app in before if app not in removed)
                known.add(kept + _apps(update.added_app_ids))


def _names_of(names: dict[bytes, LedgerNames], info: QueueInfo) -> LedgerNames:
    return names.setdefault(info.key, LedgerNames(info.uri, info.partition_id))


def _apps(infos: Iterable[AppIdInfo]) -> Apps:
    return tuple((info.app_id, info.app_key) for info in infos)


class _Entry(NamedTuple):
    """The bounds in QLIST of an operation's record; the end may be unknown."""

    start: int
    end: int | None

    def fits(self, text: bytes) -> bool:
        return self.end is None or len(text) == self.end - self.start


def make_qlist(journal: Buffer, partition_id: int, names: Mapping[bytes, LedgerNames]) -> bytes:
    """Return the QLIST file of a journal. Raises `NotTold` if the ledger does not determine all of it."""
    extent = journal_extent(journal)
    records = scan(journal, extent.first_record_offset, extent.record_count)
    found, at = select(records, RecordType.QUEUE_OP)
    ops = [QUEUE_OP_RECORD.unpack(raw.tobytes()) for raw in found]
    head = initial_bytes(FileType.QLIST, partition_id)
    made = [n for n, op in enumerate(ops) if _makes(op)]
    starts = [ops[n].queue_uri_record_offset_words * WORD for n in made]
    sync_points, synced_at = select(records, RecordType.JOURNAL_OP)
    behind = synced_at > (at[made[-1]] if made else -1)
    ends = JOURNAL_OP_RECORD.column(sync_points[behind], "qlist_file_offset_words")
    if made and starts[0] != len(head):
        raise NotTold("the journal does not say where the records were")
    bounds = [*starts[1:], int(ends[0]) * WORD if len(ends) else None]
    entries = {n: _Entry(start, end) for n, start, end in zip(made, starts, bounds, strict=False)}
    out = bytearray(head)
    followed: set[bytes] = set()
    if made and bounds[-1] is None:
        messages, posted_at = select(records, RecordType.MESSAGE)
        followed.update(MESSAGE_RECORD.column(messages[posted_at > at[made[-1]]], "queue_key").tolist())
    texts = _texts(ops, entries, partition_id, names, followed)
    for n in made:
        out += texts[n]
    return bytes(out)


def _makes(op: QueueOpRecord) -> bool:
    return op.queue_op_type in (QueueOpType.CREATION, QueueOpType.ADDITION)


def _texts(
    ops: Sequence[QueueOpRecord],
    entries: Mapping[int, _Entry],
    partition_id: int,
    names: Mapping[bytes, LedgerNames],
    followed: Set[bytes],
) -> dict[int, bytes]:
    """Return the records by operation; messages of the `followed` queues come after the newest record."""
    by_queue: dict[bytes, list[int]] = {}
    for n, op in enumerate(ops):
        if _makes(op) or op.queue_op_type == QueueOpType.DELETION:
            by_queue.setdefault(op.queue_key, []).append(n)
    texts: dict[int, bytes] = {}
    for key, numbers in by_queue.items():
        known = names.get(key)
        if known is None or known.partition_id != partition_id:
            raise NotTold(f"the ledger has no queue {key.hex().upper()} in partition {partition_id}")
        read = _read_history([_Step(ops[n], entries.get(n)) for n in numbers], key, known, is_followed=key in followed)
        if read is None:
            raise NotTold(f"the ledger does not say which apps queue '{known.uri}' had")
        texts.update(zip([n for n in numbers if n in entries], read, strict=True))
    return texts


class _Step(NamedTuple):
    """An operation that makes or deletes something; `entry` is the place of its record, if any."""

    op: QueueOpRecord
    entry: _Entry | None


class _Reading(NamedTuple):
    """A reading of a queue's first `done` operations.

    It has their records, the queue's apps (None: no queue), and the index of the ledger's state. `guess` has the apps
    in the record of unknown size, if read, and `passed` the number of earlier states that fit as well.
    """

    done: int
    apps: Apps | None
    state: int
    texts: tuple[bytes, ...]
    guess: Apps | None = None
    passed: int = 0


def _read_history(steps: Sequence[_Step], key: bytes, known: LedgerNames, *, is_followed: bool) -> list[bytes] | None:
    """Return the records of one queue's operations; None if no reading fits.

    In a reading, records fit their places, apps appear in the ledger's order, and the queue ends with a state of the
    ledger, preferably the last. Raises `NotTold` if messages follow a record of unknown size that fits several states.
    """
    first = known.states[0] if known.states else ()
    # The ledger may begin with the result of several additions of single apps.
    states = [*[first[:count] for count in range(len(first))], *known.states] or [()]
    wanted = {frozenset(state) for state in known.states}
    best: tuple[int, bool, _Reading] | None = None
    guesses: set[Apps] = set()
    left = [_Reading(0, None, 0, ())]
    for _ in range(READINGS_MAX):
        if not left:
            break
        reading = left.pop()
        if reading.done < len(steps):
            # The earliest state is tried first.
            left += reversed(_follow(reading, steps[reading.done], key, known.uri, states, len(first)))
            continue
        is_last = reading.apps is None or frozenset(reading.apps) == frozenset(states[-1])
        # Queues without apps of their own have one by default, which not every release writes.
        if not is_last and reading.apps and frozenset(reading.apps) not in wanted:
            continue
        if reading.guess is None and is_last:
            return list(reading.texts)
        if reading.guess is not None and reading.apps is not None:
            guesses.add(reading.guess or DEFAULT_APPS)
        if best is None or (reading.passed, not is_last) < best[:2]:
            best = reading.passed, not is_last, reading
    if is_followed and (len(guesses) > 1 or left):
        raise NotTold(f"the ledger does not say which apps queue '{known.uri}' had when its newest messages came")
    return None if best is None else list(best[2].texts)


def _follow(
    reading: _Reading, step: _Step, key: bytes, uri: str, states: Sequence[Apps], supposed: int
) -> list[_Reading]:
    """Return the ways to read one more operation; no ledger record names the first `supposed` states."""
    op, entry = step
    done = reading.done + 1
    before = reading.apps or ()
    if entry is None:
        kept = None if op.app_key == NULL_KEY else tuple(app for app in before if app[1] != op.app_key)
        return [reading._replace(done=done, apps=kept)]
    found: dict[bytes, _Reading] = {}
    is_new = op.queue_op_type == QueueOpType.CREATION
    is_sized = entry.end is not None
    for n in range(reading.state if is_sized else max(reading.state, supposed), len(states)):
        apps = states[n] if is_new else tuple(app for app in states[n] if app not in before)
        text = build_queue_record(uri, key, apps)
        if entry.fits(text) and (apps or is_new) and text not in found:
            texts = (*reading.texts, text)
            if is_sized:
                found[text] = _Reading(done, before + apps, n, texts)
            else:
                found[text] = _Reading(done, before + apps, n, texts, apps, len(found))
    return list(found.values())
