# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Recovery of a partition's state from its files: its queues, and the messages that are still wanted.

The journal is read once, in whole columns. A message is alive unless a later record deletes or purges it, deletes its
queue, or confirms it for the last app (source: mqbs::FileStore::recoverMessages).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from broker.bmq.store.partition_files import FileEnds, PartitionFiles, readable, zero_from
from formats.bmq.disk.data import DATA_HEADER, DataHeaderFlags, parse_data_record
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, open_file
from formats.bmq.disk.journal import (
    ANY_RECORD,
    CONFIRM_RECORD,
    DELETION_RECORD,
    GUID_SIZE,
    MESSAGE_RECORD,
    QUEUE_OP_RECORD,
    ConfirmReason,
    DeletionRecordFlag,
    QueueOpRecord,
    QueueOpType,
    RecordType,
    scan,
    select,
)
from formats.bmq.disk.keys import KEY_SIZE, NULL_KEY
from formats.bmq.disk.padding import DWORD, WORD
from formats.bmq.disk.qlist import AppInfo, parse_queue_record
from formats.bmq.stores.recover import journal_extent
from formats.errors import FormatError

_NOBODY: frozenset[bytes] = frozenset()

# A type that keeps zeros at the end of bytes in numpy.
_MESSAGE_KEY: Final = np.dtype(f"V{KEY_SIZE + GUID_SIZE}")

__all__ = [
    "Recovered",
    "RecoveredMessage",
    "RecoveredQueue",
    "Refusing",
    "apply_queue_op",
    "data_headers",
    "deleted_guids",
    "guids_by_queue",
    "is_among",
    "is_refused",
    "judge",
    "last_purges",
    "purges",
    "record_keys",
    "recover",
    "reference_counts",
    "refused_by_purges",
    "refusing_purges",
    "removed_guids",
]


class RecoveredMessage(NamedTuple):
    """A message that some app still wants; `confirmed` has the keys of all other apps.

    `offset` of its DATA record and `size` of the application's data are in bytes; `timestamp` is its arrival in seconds
    since the epoch, `checksum` the CRC32-C of the data.
    """

    guid: bytes
    queue_key: bytes
    offset: int
    ref_count: int
    compression: int
    size: int
    has_properties: bool
    schema_id: int
    confirmed: frozenset[bytes]
    timestamp: int
    checksum: int


@dataclass(slots=True)
class RecoveredQueue:
    """A queue that the journal creates and does not delete.

    `since` has the index of the record that added each later app, even if removed: earlier messages are not for it.
    """

    uri: str
    key: bytes
    apps: list[AppInfo] = field(default_factory=list)
    since: dict[bytes, int] = field(default_factory=dict)


@dataclass(slots=True)
class Recovered:
    """The state of one partition. `messages` are in the order of their arrival.

    `gone` are, by queue key, the concatenated GUIDs of messages whose removal is in the journal, or that no app wants
    any longer; `ended` are the latter; `timestamp` is the last record's, in seconds since the epoch.
    """

    queues: dict[bytes, RecoveredQueue]
    messages: list[RecoveredMessage]
    primary_lease_id: int
    sequence_number: int
    records: int
    bytes_cut: int
    gone: dict[bytes, bytes] = field(default_factory=dict)
    timestamp: int = 0
    ended: dict[bytes, bytearray] = field(default_factory=dict)


def recover(files: PartitionFiles, written: FileEnds | None = None) -> Recovered:
    """Read the files, set their ends, and clear everything after them. Raises FormatError if they cannot be read.

    `written` are the ends known to a process that wrote the files; reading the rest would take longer than everything
    else.
    """
    journal_written, data_written, qlist_written = written or (None, None, None)
    extent = journal_extent(readable(files.journal, journal_written))
    records = scan(files.journal.buffer, extent.first_record_offset, extent.record_count)
    queues = _queues(files, records)
    messages, ended, data_end = _messages(files, records, queues)
    files.journal_end = extent.end
    files.data_end = max(data_end, open_file(readable(files.data), FileType.DATA).first_record_offset)
    if data_end:
        files.data_end = parse_data_record(files.data.buffer, data_end).end
    files.qlist_end = _qlist_end(files, records)
    cut = sum(
        zero_from(file, end, dirty_end)
        for file, end, dirty_end in (
            (files.journal, files.journal_end, journal_written),
            (files.data, files.data_end, data_written),
            (files.qlist, files.qlist_end, qlist_written),
        )
    )
    gone = removed_guids(records)
    for key, guids in ended.items():
        gone[key] = gone.get(key, b"") + guids
    last = ANY_RECORD.unpack(files.journal.buffer, extent.end - JOURNAL_RECORD_SIZE) if extent.record_count else None
    return Recovered(
        queues,
        messages,
        last.primary_lease_id if last else 0,
        last.sequence_number if last else 0,
        extent.record_count,
        cut,
        gone,
        last.timestamp if last else 0,
        ended,
    )


def removed_guids(records: NDArray[np.void]) -> dict[bytes, bytes]:
    """Collect, by queue key, the GUIDs of messages that records delete, or purge with their queue.

    Messages refused for want of replicas are left out: their producers may post them again. A deletion has a flag for
    that, a purge names the first such message.
    """
    gone = deleted_guids(records)
    purged = last_purges(purges(records))
    if purged:
        deletions, deleted_at = select(records, RecordType.DELETION)
        are_refused = is_refused(deletions)
        refused = dict(zip(record_keys(deletions[are_refused]), deleted_at[are_refused].tolist(), strict=True))
        found, at = select(records, RecordType.MESSAGE)
        if refused:
            keys = record_keys(found)
            rows = np.array([index > refused.get(key, -1) for key, index in zip(keys, at.tolist(), strict=True)], bool)
            found, at = found[rows], at[rows]
        refusing = refusing_purges(records)
        if refusing:
            rows = ~refused_by_purges(found, at, refusing)
            found, at = found[rows], at[rows]
        for key, index in purged.items():
            gone[key] = guids_by_queue(found[at < index]).get(key, b"") + gone.get(key, b"")
    return {key: guids for key, guids in gone.items() if guids}


def deleted_guids(records: NDArray[np.void]) -> dict[bytes, bytes]:
    """Collect the GUIDs of `removed_guids` except purged ones."""
    deletions, _ = select(records, RecordType.DELETION)
    are_refused = is_refused(deletions)
    return guids_by_queue(deletions[~are_refused] if are_refused.any() else deletions)


def is_refused(deletions: NDArray[np.void]) -> NDArray[np.bool_]:
    """Mark the deletions of messages that were never acknowledged, for want of replicas."""
    refused: NDArray[np.bool_] = DELETION_RECORD.column(deletions, "deletion_flag") == DeletionRecordFlag.NO_SC_QUORUM
    return refused


class Refusing(NamedTuple):
    """A purge of a whole queue, at index `row` of the journal, that refused all messages from one on.

    That message's record has this lease id and sequence number.
    """

    queue_key: bytes
    row: int
    primary_lease_id: int
    sequence_number: int


def refusing_purges(records: NDArray[np.void], since: int = 0) -> list[Refusing]:
    """Find purges that refused messages; `since` is the index of the first of the records."""
    found, at = select(records, RecordType.QUEUE_OP)
    refuses = (found["queue_op_type"] == QueueOpType.PURGE) & (
        QUEUE_OP_RECORD.column(found, "start_sequence_number") != 0
    )
    data = found[refuses].tobytes()
    out = []
    for n, index in enumerate(at[refuses].tolist()):
        op = QUEUE_OP_RECORD.unpack(data, n * JOURNAL_RECORD_SIZE)
        if op.app_key == NULL_KEY:
            out.append(Refusing(op.queue_key, since + index, op.start_primary_lease_id, op.start_sequence_number))
    return out


def refused_by_purges(
    found: NDArray[np.void], at: NDArray[np.int64], refusing: Iterable[Refusing]
) -> NDArray[np.bool_]:
    """Mark the messages that these purges refused; `at` are their indexes in the journal."""
    refused = np.zeros(len(found), bool)
    keys = found["queue_key"].reshape(-1, 1).view(np.uint8)
    leases, numbers = [MESSAGE_RECORD.column(found, name) for name in ("primary_lease_id", "sequence_number")]
    for purge in refusing:
        is_its_own = (keys == np.frombuffer(purge.queue_key, np.uint8)).all(axis=1) & (at < purge.row)
        is_later = (leases == purge.primary_lease_id) & (numbers >= purge.sequence_number)
        refused |= is_its_own & (is_later | (leases > purge.primary_lease_id))
    return refused


def guids_by_queue(found: NDArray[np.void]) -> dict[bytes, bytes]:
    # As numbers: comparing rows of bytes takes forty times as long, and a partition waits for its new primary.
    keys = np.zeros((len(found), 8), np.uint8)
    keys[:, :KEY_SIZE] = found["queue_key"].reshape(-1, 1).view(np.uint8)
    numbers = keys.view(np.uint64).reshape(-1)
    if len(numbers) and (numbers == numbers[0]).all():
        return {keys[0, :KEY_SIZE].tobytes(): found["guid"].tobytes()}
    order = np.argsort(numbers, kind="stable")
    guids, ordered = found["guid"][order].tobytes(), numbers[order]
    is_first = np.ones(len(ordered), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(is_first)
    ends = [*(starts * GUID_SIZE).tolist(), len(guids)]
    names = ordered[starts].view(np.uint8).reshape(-1, 8)[:, :KEY_SIZE]
    return {name.tobytes(): guids[start:end] for name, start, end in zip(names, ends, ends[1:], strict=False)}


def _queues(files: PartitionFiles, records: NDArray[np.void]) -> dict[bytes, RecoveredQueue]:
    found, at = select(records, RecordType.QUEUE_OP)
    queues: dict[bytes, RecoveredQueue] = {}
    data = found.tobytes()
    for n, index in enumerate(at.tolist()):
        apply_queue_op(files, queues, QUEUE_OP_RECORD.unpack(data, n * JOURNAL_RECORD_SIZE), index)
    return queues


def apply_queue_op(files: PartitionFiles, queues: dict[bytes, RecoveredQueue], op: QueueOpRecord, index: int) -> None:
    if op.queue_op_type in (QueueOpType.CREATION, QueueOpType.ADDITION):
        record = parse_queue_record(files.qlist.buffer, op.queue_uri_record_offset_words * WORD)
        queue = queues.setdefault(op.queue_key, RecoveredQueue(record.uri, op.queue_key))
        known = {app.app_key for app in queue.apps}
        queue.apps += [app for app in record.apps if app.app_key not in known]
        if op.queue_op_type == QueueOpType.ADDITION:
            for app in record.apps:
                queue.since.setdefault(app.app_key, index)
    elif op.queue_op_type == QueueOpType.DELETION and op.queue_key in queues:
        if op.app_key == NULL_KEY:
            del queues[op.queue_key]
        else:
            queue = queues[op.queue_key]
            queue.apps = [app for app in queue.apps if app.app_key != op.app_key]


def _qlist_end(files: PartitionFiles, records: NDArray[np.void]) -> int:
    found, _ = select(records, RecordType.QUEUE_OP)
    # Only creating operations refer to QLIST, whatever the field holds in others.
    kinds = found["queue_op_type"]
    making = (kinds == QueueOpType.CREATION) | (kinds == QueueOpType.ADDITION)
    offsets = QUEUE_OP_RECORD.column(found[making], "queue_uri_record_offset_words")
    end = open_file(readable(files.qlist), FileType.QLIST).first_record_offset
    if offsets.size and int(offsets.max()):
        end = max(end, parse_queue_record(files.qlist.buffer, int(offsets.max()) * WORD).end)
    return end


def _messages(
    files: PartitionFiles, records: NDArray[np.void], queues: dict[bytes, RecoveredQueue]
) -> tuple[list[RecoveredMessage], dict[bytes, bytearray], int]:
    """Return the messages alive, the GUIDs of ended ones, and the offset of the last DATA record (0: none).

    An ended message has no deletion: a process may die between an app's purge or confirm and the deletion.
    """
    found, at = select(records, RecordType.MESSAGE)
    offsets = MESSAGE_RECORD.column(found, "message_offset_dwords").astype(np.int64) * DWORD
    last_offset = int(offsets.max()) if offsets.size else 0
    keys = record_keys(found)
    # The newest message by queue and GUID: a GUID may be reused after the end of its first message.
    newest = dict(zip(keys, range(len(keys)), strict=True))
    is_alive, since = _undeleted(records, newest, at)
    purged = purges(records)
    last_purge = last_purges(purged)
    confirmed = _confirmed(records, newest, is_alive, since, last_purge)
    rows = np.flatnonzero(is_alive)
    found, offsets = found[rows], offsets[rows]
    columns = (
        rows.tolist(),
        at[rows].tolist(),
        found["guid"].tolist(),
        found["queue_key"].tolist(),
        offsets.tolist(),
        reference_counts(found).tolist(),
        MESSAGE_RECORD.column(found, "compression").tolist(),
        MESSAGE_RECORD.column(found, "timestamp").tolist(),
        MESSAGE_RECORD.column(found, "crc32c").tolist(),
        *data_headers(files, offsets),
    )
    # In queues without later apps and without purges, all apps want an unconfirmed message.
    simple = {key for key, queue in queues.items() if not queue.since and key not in purged}
    messages = []
    ended: dict[bytes, bytearray] = {}
    for row, index, guid, queue_key, offset, ref_count, compression, timestamp, checksum, *header in zip(
        *columns, strict=True
    ):
        queue = queues.get(queue_key)
        if queue is None:
            continue
        said = confirmed.get(keys[row]) if confirmed else None
        done: frozenset[bytes] | None = _NOBODY
        if said is not None or queue_key not in simple:
            done = judge(queue, index, ref_count, *(said or (_NOBODY, _NOBODY)), purged.get(queue_key, ()))
        if done is not None:
            size, has_properties, schema_id = header
            place = (queue_key, offset, ref_count, compression, size, has_properties, schema_id)
            messages.append(RecoveredMessage(guid, *place, done, timestamp, checksum))
        elif index > last_purge.get(queue_key, -1):
            ended.setdefault(queue_key, bytearray()).extend(guid)
    return messages, ended, last_offset


def _undeleted(
    records: NDArray[np.void], newest: dict[bytes, int], at: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], dict[bytes, int]]:
    """Mark the messages that are not deleted, given `newest`, rows of `at` by key; `at` are the messages' indexes.

    Also returns, by key, the deletion of an earlier message with the same GUID.
    """
    is_alive = np.ones(len(at), bool)
    if len(newest) < len(at):
        is_alive[:] = False
        is_alive[np.fromiter(newest.values(), np.int64, len(newest))] = True
    deletions, deleted_at = select(records, RecordType.DELETION)
    keys = record_keys(deletions)
    rows = _rows_of(keys, newest)
    known = np.flatnonzero(rows >= 0)
    rows = rows[known]
    is_its_own = at[rows] < deleted_at[known]
    is_alive[rows[is_its_own]] = False
    return is_alive, {keys[n]: int(deleted_at[n]) for n in known[~is_its_own].tolist()}


def _rows_of(keys: list[bytes], rows: dict[bytes, int]) -> NDArray[np.int64]:
    """Look up many keys; -1 for missing ones."""
    return np.fromiter(map(rows.get, keys, repeat(-1)), np.int64, len(keys))


def reference_counts(found: NDArray[np.void]) -> NDArray[np.int64]:
    counts: NDArray[np.int64] = MESSAGE_RECORD.column(found, "ref_count_low").astype(np.int64)
    counts |= MESSAGE_RECORD.column(found, "ref_count_high").astype(np.int64) << 12
    return counts


def judge(
    queue: RecoveredQueue,
    index: int,
    ref_count: int,
    done: frozenset[bytes],
    unasked: frozenset[bytes],
    purged: Sequence[tuple[bytes, int]],
) -> frozenset[bytes] | None:
    """Return the apps that do not want the message at `index` of the journal, or None if no app wants it.

    Apps in `done` have confirmed it, apps in `unasked` never wanted it; `purged` are the purges of its queue.
    """
    for app_key, purged_at in purged:
        if index < purged_at:
            if app_key == NULL_KEY:
                return None
            # Apps added later, or that never wanted it, are not counted.
            if queue.since.get(app_key, -1) < index and app_key not in unasked:
                done |= {app_key}
    if len(done) >= max(1, ref_count):
        return None
    done |= unasked
    if queue.since:
        done |= {app_key for app_key, since in queue.since.items() if since > index}
    return done


def data_headers(files: PartitionFiles, offsets: NDArray[np.int64]) -> tuple[list[int], list[bool], list[int]]:
    """Read size of the application's data, presence of properties, and schema id of DATA records."""
    buffer = files.data.buffer
    if offsets.size and int(offsets.max()) + DATA_HEADER.size > len(buffer):
        raise FormatError("MessageRecord.message_offset_dwords", int(offsets.max()), "lies after the end of DATA")
    rows = np.frombuffer(buffer, np.uint8)[offsets[:, None] + np.arange(DATA_HEADER.size)].reshape(-1)
    headers = rows.view(DATA_HEADER.dtype)
    sizes = DATA_HEADER.column(headers, "message_words").astype(np.int64) * WORD
    ends = offsets + sizes
    if offsets.size and int(ends.max()) > len(buffer):
        raise FormatError("DataHeader.message_words", int(offsets[ends.argmax()]), "goes beyond the end of DATA")
    padding = np.frombuffer(buffer, np.uint8)[ends - 1].astype(np.int64)
    before = DATA_HEADER.column(headers, "header_words").astype(np.int64)
    before += DATA_HEADER.column(headers, "options_words").astype(np.int64)
    flags = DATA_HEADER.column(headers, "flags") & DataHeaderFlags.MESSAGE_PROPERTIES
    return (
        (sizes - before * WORD - padding).tolist(),
        (flags != 0).tolist(),
        DATA_HEADER.column(headers, "schema_id").tolist(),
    )


def _confirmed(
    records: NDArray[np.void],
    newest: dict[bytes, int],
    is_alive: NDArray[np.bool_],
    since: dict[bytes, int],
    purged: dict[bytes, int],
) -> dict[bytes, tuple[frozenset[bytes], frozenset[bytes]]]:
    """Return, by live message, the apps that are done with it and the apps that never wanted it (auto-confirm).

    A message's reference count excludes the latter, whose records come before it; `since` has the deletions of earlier
    messages with the same GUID, `purged` the purges of queues.
    """
    found, confirmed_at = select(records, RecordType.CONFIRM)
    out: dict[bytes, tuple[frozenset[bytes], frozenset[bytes]]] = {}
    keys = record_keys(found)
    rows = _rows_of(keys, newest)
    known = np.flatnonzero(rows >= 0)
    wanted = known[is_alive[rows[known]]]
    found = found[wanted]
    auto = (CONFIRM_RECORD.column(found, "reason") == ConfirmReason.AUTO_CONFIRMED).tolist()
    columns = zip(wanted.tolist(), found["app_key"].tolist(), auto, confirmed_at[wanted].tolist(), strict=True)
    for n, app_key, is_auto, index in columns:
        key = keys[n]
        if since.get(key, -1) < index and purged.get(key[:KEY_SIZE], -1) < index:
            done, unasked = out.get(key, (_NOBODY, _NOBODY))
            out[key] = (done, unasked | {app_key}) if is_auto else (done | {app_key}, unasked)
    return out


def last_purges(purged: dict[bytes, list[tuple[bytes, int]]]) -> dict[bytes, int]:
    """Return, by queue, the index of the last purge of all apps: earlier confirms are of messages that are gone."""
    return {
        queue_key: max(index for app_key, index in found if app_key == NULL_KEY)
        for queue_key, found in purged.items()
        if any(app_key == NULL_KEY for app_key, _ in found)
    }


def purges(records: NDArray[np.void], since: int = 0) -> dict[bytes, list[tuple[bytes, int]]]:
    """Collect, by queue, (app key, index) of its purges from index `since` on; a null key purges all apps."""
    found, at = select(records[since:], RecordType.QUEUE_OP)
    out: dict[bytes, list[tuple[bytes, int]]] = {}
    data = found.tobytes()
    for n, index in enumerate(at.tolist()):
        op = QUEUE_OP_RECORD.unpack(data, n * JOURNAL_RECORD_SIZE)
        if op.queue_op_type in (QueueOpType.PURGE, QueueOpType.DELETION):
            out.setdefault(op.queue_key, []).append((op.app_key, since + index))
    return out


def is_among(numbers: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark the numbers that are in `wanted`. numpy's `isin` imports modules on its first call, for 10 ms."""
    ordered = np.sort(wanted)
    at = np.searchsorted(ordered, numbers)
    found: NDArray[np.bool_] = at < len(ordered)
    found[found] = ordered[at[found]] == numbers[found]
    return found


def record_keys(found: NDArray[np.void]) -> list[bytes]:
    parts = [found[name].reshape(-1, 1).view(np.uint8) for name in ("queue_key", "guid")]
    keys: list[bytes] = np.concatenate(parts, axis=1).view(_MESSAGE_KEY).reshape(-1).tolist()
    return keys
