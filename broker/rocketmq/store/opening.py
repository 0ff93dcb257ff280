"""Opens a store, and repairs it after a crash: everything else is derived from the commit log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from broker.rocketmq.store.branches import branch_of_record
from broker.rocketmq.store.commit_log import Found
from broker.rocketmq.store.consume_queue import ConsumeQueue
from broker.rocketmq.store.cutting import drop_cut_note, noted_cut
from broker.rocketmq.store.files.extent import Extent, check_extent
from broker.rocketmq.store.files.leftovers import LastEpoch, find_last_epoch, read_sound
from broker.rocketmq.store.message_store import (
    ABORT,
    DueTime,
    MessageStore,
    StoreOptions,
)
from broker.rocketmq.store.places import is_place
from broker.rocketmq.store.ports import Folder
from formats.errors import FormatError
from formats.rocketmq.files.consume_queue import ConsumeQueueEntry
from formats.rocketmq.files.record import Record
from formats.rocketmq.lite import QUEUE_ID, SECOND_PREFIX

__all__ = ["open_store"]

log = logging.getLogger("broker.rocketmq.store")

ABORT_BYTES: Final = 8

# Distance by which the clock may have stepped before the checkpoint (source: StoreCheckpoint.getMinTimestamp).
CHECKPOINT_SLACK_MS: Final = 3000


def _never_due(topic: str, properties: Mapping[str, str], stored_ms: int) -> int | None:
    return None


def open_store(
    root: Folder,
    options: StoreOptions,
    name_of: Callable[[int], str],
    due_ms: DueTime = _never_due,
    epoch_begins: Sequence[int] = (),
) -> MessageStore:
    """Open the store in a folder, creating it if needed, and repair the effects of a crash.

    `name_of` makes an index file's name from a time. Consume queues are rebuilt if all are missing, or if the messages
    examined leave a gap. A single queue's missing folder is not noticed otherwise; the remedy is to remove the others
    too. `epoch_begins` are the offsets of the log's epochs, if any: they identify the rest of a longer log that the
    original has left after the end. Raises `StoreDamaged` or `DiskFull`; entries that refer to missing files of the log
    are not dropped then.
    """
    crashed = ABORT in root.names()
    store = MessageStore(root, options, name_of, due_ms)
    _begin(store, root, crashed, bool(epoch_begins))
    begin = start = _clean_begin(store)
    indexed = -1
    dispatched_ms = None if crashed else store.checkpoint.consume_queue_ms
    # The original writes no mark, and a mark of ours is older than its checkpoint.
    epoch = find_last_epoch(store.log.files, epoch_begins, dispatched_ms) if store.marked_end is None else None
    if crashed:
        begin, start, indexed = _prepare_mending(store)
    elif epoch is not None:
        last = _last_entered(store, begin, epoch)
        begin, start = (begin, last) if last is not None else _forget_entries(store)
    if crashed:
        # Entries whose pages did not reach the disk may be between ones that did, or be there by half.
        store.cut_queues(begin, partial(_has_entry, store))
    for queue in store.queues.values():
        queue.drop_log(store.log.begin)
    if crashed:
        _drop_removed(store)
    gaps: set[tuple[str, int]] = set()
    missing = not store.queues
    if missing:
        start = store.log.begin
    flushed_end, was_flushed = _flushed(store) if crashed else (0, lambda record: True)
    for found in store.log.recover(start, flushed_end, was_flushed, epoch):
        record = found.record
        index = found.offset > indexed if crashed else found.offset >= begin
        if store.deletions.covers(record.topic, found.offset):
            store.dispatch(found, queue=False, index=index)
            continue
        _restore_lite(store, found, start, gaps)
        key = (record.topic, record.queue_id)
        if is_place(*key) and _is_behind_gap(store, key, record.queue_offset, start):
            gaps.add(key)
            continue
        if not store.dispatch(found, index=index):
            gaps.add(key)
    store.cut_queues(store.log.end)
    store.deletions.follow_log(store.log.begin, store.log.end)
    if gaps:
        _fill_gaps(store, gaps)
    store.flushed = store.log.end if not crashed else store.log.begin
    return store


def _begin(store: MessageStore, root: Folder, crashed: bool, was_cut: bool) -> None:
    """Note that the store is in use, once its log's files are known to be there. Raises `StoreDamaged`."""
    _end_cut(store, root, crashed)
    files = store.log.files
    flushed = (store.checkpoint.commit_log_ms, store.mark)
    last_end = store.queue_table.last_end
    check_extent(Extent(files.directory.path, files.end, bool(files.files), *last_end, *flushed, crashed, was_cut))
    if not crashed:
        # While this file exists, a start counts as one after a crash.
        root.open(ABORT, ABORT_BYTES).close()
    if not files.files and not store.checkpoint.commit_log_ms and not last_end[0]:
        # From now on, entries for messages that a loss of power has taken can be recognized.
        store.begin_mark()
    # Even after a crash: a killed process may have made folders without flushing them.
    root.flush()
    drop_cut_note(root)


def _drop_removed(store: MessageStore) -> None:
    for (topic, _), queue in store.queues.items():
        if store.deletions.covers(topic, queue.physical_end - 1):
            queue.cut_log(0)


def _has_entry(store: MessageStore, topic: str, queue_id: int, number: int) -> bool:
    """Return whether a queue has a whole entry at an offset. Half of one may refer to any earlier place in the log.

    An entry whose record has expired or is damaged counts as whole if it refers to a later place than the one before.
    """
    queue = store.queues[topic, queue_id]
    entry = queue.get(number)
    if entry.physical_offset < store.log.begin:
        return _continues(queue, number, entry)
    try:
        _, size, record = store.log.read(entry.physical_offset)
    except IndexError:
        return False
    except ValueError:
        return number > queue.begin and _continues(queue, number, entry)
    # Only the original enters messages into some second queues, by other properties.
    is_there = topic.startswith(SECOND_PREFIX) or (topic, queue_id, number) == _place(record)
    return is_there and size == entry.size


def _continues(queue: ConsumeQueue, number: int, entry: ConsumeQueueEntry) -> bool:
    before = None if number == queue.begin else queue.get(number - 1)
    return before is None or (before.size > 0 and before.physical_offset < entry.physical_offset)


def _is_behind_gap(store: MessageStore, key: tuple[str, int], offset: int, start: int) -> bool:
    """Return whether a queue is empty, though it had messages before an offset."""
    fresh = key not in store.queues or store.queues[key].end == store.queues[key].begin
    return fresh and offset > 0 and start > store.log.begin


def _restore_lite(store: MessageStore, found: Found, start: int, gaps: set[tuple[str, int]]) -> None:
    branch = branch_of_record(found.record)
    if branch is not None:
        key = (branch.queue, QUEUE_ID)
        if _is_behind_gap(store, key, branch.offset, start) or not store.dispatch_branch(found, branch):
            gaps.add(key)


def _flushed(store: MessageStore) -> tuple[int, Callable[[Record], bool]]:
    """Return an offset, and a function of a record: everything before either was on the disk before a crash.

    Thus a loss of power takes no acknowledged message unnoticed. Where senders wait for the disk, the mark may lag by
    some group commits, but their messages are on the disk: there is no damage before their end.
    """
    marked = store.marked_end
    if marked is not None:
        return marked, lambda record: False
    flushed_ms = store.checkpoint.commit_log_ms
    return 0, lambda record: record.stored_ms <= flushed_ms


def _end_cut(store: MessageStore, root: Folder, crashed: bool) -> None:
    cut = noted_cut(root, store.checkpoint.commit_log_ms) if crashed else None
    if cut is not None and store.log.begin <= cut <= store.log.files.end:
        store.end_truncating(cut)


def _last_entered(store: MessageStore, end: int, epoch: LastEpoch) -> int | None:
    """Return the offset of the message that was entered last, if it ends at `end`.

    None where a queue has entries of an old, longer log after its end: its last entry is wrong then.
    """
    found = None
    for (topic, queue_id), queue in store.queues.items():
        if queue.end == queue.begin:
            continue
        offset = queue.get(queue.end - 1).physical_offset
        record = read_sound(store.log.files, offset)
        if record is None or (topic, queue_id, queue.end - 1) not in _places(record):
            return None
        if queue.physical_end == end and record.stored_ms == epoch.dispatched_ms:
            found = offset
    return found


def _places(record: Record) -> list[tuple[str, int, int]]:
    branch = branch_of_record(record)
    lite = [] if branch is None else [(branch.queue, QUEUE_ID, branch.offset)]
    return [_place(record), *lite]


def _place(record: Record) -> tuple[str, int, int]:
    return record.topic, record.queue_id, record.queue_offset


def _forget_entries(store: MessageStore) -> tuple[int, int]:
    """Drop all entries of queues and index; return where the log begins."""
    log.warning("the queues end elsewhere than the log: they are rebuilt from it")
    for queue in store.queues.values():
        queue.cut_log(0)
    store.index.drop_after(0)
    return store.log.begin, store.log.begin


def _prepare_mending(store: MessageStore) -> tuple[int, int, int]:
    """Keep only the part of the index that was certainly on the disk before a crash.

    Returns three offsets of the log: messages before the first are indexed, records are read from the second on, and
    the third is that of the last message with all its keys in the index.
    """
    marked = store.marked_end
    store.log.end = store.log.files.end
    if marked is None:
        begin = _crash_begin(store)
        store.index.drop_after(store.checkpoint.index_ms)
        index_begin = max(store.log.begin, store.index.end_offset)
        return begin, _file_begin(store, min(begin, index_begin)), -1

    def stored_ms(offset: int) -> int:
        try:
            return store.log.read(offset).record.stored_ms
        except FormatError as error:
            reason = f"{error.reason}, but everything before {marked} had been flushed"
            raise store.log.damaged(offset, reason) from None

    store.index.cut_log(marked, stored_ms, keeps_last=False)
    indexed = store.index.end_offset
    # Messages between have no keys, or the index files are missing.
    return marked, min(marked, max(store.log.begin, indexed)), indexed


def _fill_gaps(store: MessageStore, gaps: set[tuple[str, int]]) -> None:
    for key in gaps:
        if key in store.queues:
            store.queues[key].cut_log(0)
    for found in list(store.log.recover(store.log.begin)):
        if store.deletions.covers(found.record.topic, found.offset):
            continue
        if (found.record.topic, found.record.queue_id) in gaps:
            store.dispatch(found, index=False)
        branch = branch_of_record(found.record)
        if branch is not None and (branch.queue, QUEUE_ID) in gaps:
            store.dispatch_branch(found, branch)


def _file_begin(store: MessageStore, offset: int) -> int:
    files = store.log.files
    if not files.files:
        return files.begin
    offset = min(max(offset, files.begin), files.end - 1)
    return offset - offset % files.file_size


def _clean_begin(store: MessageStore) -> int:
    """Return the offset of the log after the consume queues' messages, or its begin if it does not reach them."""
    end = store.queue_table.last_end[0] or store.log.begin
    return end if end <= store.log.files.end else store.log.begin


def _crash_begin(store: MessageStore) -> int:
    """Return the start of the last log file whose first message was on the disk by the checkpoint."""
    files = store.log.files
    checkpoint = store.checkpoint
    safe_ms = min(checkpoint.commit_log_ms, checkpoint.consume_queue_ms) - CHECKPOINT_SLACK_MS
    for number in range(len(files.files) - 1, 0, -1):
        start = files.begin + number * files.file_size
        try:
            first = store.log.read(start).record
        except (IndexError, ValueError):
            continue
        if 0 < first.stored_ms <= safe_ms:
            return start
    return files.begin
