"""The store of a broker: a commit log, and the consume queues and index derived from it.

The commit log is authoritative. A message is entered into its queue and the index in the step that appends it. After a
crash, `opening.open_store` corrects missing or surplus entries from the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from broker.common.files import StoreFile
from broker.rocketmq.store.branches import branch_part, branch_tags
from broker.rocketmq.store.commit_log import CommitLog, Found
from broker.rocketmq.store.consume_queue import ConsumeQueue
from broker.rocketmq.store.cutting import cut_files, note_cut
from broker.rocketmq.store.deletions import Deletions
from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.files.extent import is_current
from broker.rocketmq.store.files.file_rows import FileRow
from broker.rocketmq.store.files.flush_mark import FlushMark, find_mark, make_mark, need_small, read_mark, write_mark
from broker.rocketmq.store.files.index_files import IndexFiles
from broker.rocketmq.store.holding import HeldBack, HeldMessage
from broker.rocketmq.store.ports import Folder
from broker.rocketmq.store.queue_table import QueueTable
from broker.rocketmq.store.runs import QueuePart, Run
from broker.rocketmq.store.terms import DueTime, Flush, Stored, StoreOptions
from formats.rocketmq.files.checkpoints import CHECKPOINT_BYTES, STORE_CHECKPOINT, StoreCheckpoint
from formats.rocketmq.files.consume_queue import ConsumeQueueEntry
from formats.rocketmq.files.index import record_hashes
from formats.rocketmq.java import tag_hash
from formats.rocketmq.lite import QUEUE_ID, Branch, is_lite_queue
from formats.rocketmq.properties import decode_properties
from formats.schema import Buffer

__all__ = ["DueTime", "Flush", "MessageStore", "StoreOptions", "Stored"]

log = logging.getLogger("broker.rocketmq.store")

ABORT = "abort"
CHECKPOINT = "checkpoint"
COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
INDEX = "index"


class MessageStore:
    """An open store; made by `opening.open_store`."""

    def __init__(self, root: Folder, options: StoreOptions, name_of: Callable[[int], str], due_ms: DueTime) -> None:
        self._root = root
        self._options = options
        self._due_ms = due_ms
        self.log = CommitLog(FileRow(root.folder(COMMIT_LOG), options.commit_log_file_bytes))
        self.index = IndexFiles(root.folder(INDEX), options.index_slots, options.index_entries, name_of)
        queue_options = (options.consume_queue_file_bytes, options.queue_files_max)
        self.queue_table = QueueTable(root.folder(CONSUME_QUEUE), *queue_options)
        self.queues = self.queue_table.queues
        self._checkpoint: StoreFile = need_small(root, CHECKPOINT, CHECKPOINT_BYTES)
        self._mark: StoreFile | None = find_mark(root)
        self._unflushed_root: tuple[Folder, ...] = (root,)  # until once: these two files may be new in it
        self._unflushed_queues: dict[ConsumeQueue, None] = {}
        self.flushed = self._stored_ms = self._cuts = 0
        self._marked: Flush | None = None  # the last flush, which is in the mark and not yet in the checkpoint
        self._held: HeldBack | None = None
        self._shown: Callable[[str, int], None] | None = None
        self._is_full = False
        self.deletions = Deletions(root, counts=self.marked_end is not None)

    # -- messages

    def put(self, run: Run, confirmed: int | None = None) -> None:
        """Append a run, and enter its records into their queues and the index.

        For records of another broker's log, `confirmed` is the offset before which that log is confirmed. A queue that
        does not end where they belong restarts there: it was removed at the other broker. Raises `DiskFull`; no record
        is stored then.
        """
        held = self._held
        for part in run.parts:
            queue, first = part.queue, part.first
            if queue is None:
                continue
            if held is None and queue.end != first:
                queue.begin_at(first)
            if held is None or held.next_offset(queue) == first:
                queue.make_later_room(first, part.count)
        self.log.append(run.offset, memoryview(run.data))
        if held is None or (confirmed is not None and not held and run.end <= confirmed):
            for part in run.parts:
                self._enter(part)
            if held is not None:
                held.confirmed = max(held.confirmed, run.end)
            self._stored_ms = run.stored_ms
        else:
            for message in run.messages():
                held.add(message)
        try:
            self.index.put(run.keys)
        except DiskFull as error:
            log.error("not all messages from %d to %d are in the index: %s", run.offset, run.end, error)

    def _enter(self, part: QueuePart) -> None:
        queue = part.queue
        if queue is not None:
            queue.add_packed(b"".join(part.entries))
            self._unflushed_queues[queue] = None
            if self._held is not None and self._shown is not None:
                self._shown(part.topic, part.queue_id)

    def run_of(self, found: Found, data: Buffer = b"") -> Run:
        """Make the run of one record of any kind. Raises `DiskFull`."""
        offset, size, record = found
        topic, queue_id, stored_ms = record.topic, record.queue_id, record.stored_ms
        properties = decode_properties(record.properties)
        queue = self.queue_table.of(found)
        part = QueuePart(topic, queue_id, queue, record.queue_offset)
        part.add(offset, size, 0 if queue is None else self.tags_code(topic, properties, stored_ms))
        branch = branch_part(self, topic, properties)
        parts = [part]
        if branch is not None:
            branch.add(offset, size, branch_tags(properties))
            parts.append(branch)
        keys = [(key_hash, offset, stored_ms) for key_hash in record_hashes(topic, record.system_flags, properties)]
        return Run(offset, data, parts, keys, stored_ms)

    def next_offset(self, queue: ConsumeQueue) -> int:
        """Return the offset of a queue's next message, unreadable ones included."""
        return queue.end if self._held is None else self._held.next_offset(queue)

    def get(self, topic: str, queue_id: int, queue_offset: int, most: int) -> Iterator[ConsumeQueueEntry]:
        """Return the entries of up to `most` messages of a queue, from `queue_offset` on."""
        queue = self.queues.get((topic, queue_id))
        if queue is not None and queue.begin <= queue_offset:
            for number in range(queue_offset, min(queue.end, queue_offset + most)):
                yield queue.get(number)

    def find_time(self, topic: str, queue_id: int, ms: int) -> int:
        """Return the offset of the first message stored at `ms` or later; the queue's end if there is none."""
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            return 0
        return queue.find_time(ms, lambda entry: self.log.read(entry.physical_offset).record.stored_ms)

    def span(self, topic: str, queue_id: int) -> tuple[int, int]:
        queue = self.queues.get((topic, queue_id))
        return (0, 0) if queue is None else (queue.begin, queue.end)

    def end(self, topic: str, queue_id: int) -> int:
        """Return what `next_offset` does; 0 without the queue."""
        queue = self.queues.get((topic, queue_id))
        return 0 if queue is None else self.next_offset(queue)

    def stored_ms(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the storing time of a message in a queue, in ms; -1 if it is missing."""
        queue = self.queues.get((topic, queue_id))
        if queue is None or not queue.begin <= queue_offset < queue.end:
            return -1
        return self.log.read(queue.get(queue_offset).physical_offset).record.stored_ms

    def delete_topic(self, topic: str) -> None:
        """Remove the queues of a topic, durably; its messages stay in the log until they expire.

        A removed lite topic may come back after a crash, to expire again. Raises `DiskFull`; nothing is removed then.
        """
        if not is_lite_queue(topic) and any(map(self.next_offset, self.queue_table.of_topic(topic))):
            self.deletions.note(topic, self.log.end)
        for queue in self.queue_table.take(topic):
            self._unflushed_queues.pop(queue, None)
            if self._held is not None:
                self._held.forget(queue)
            queue.close()
        self.queue_table.remove(topic)

    # -- readable messages

    def hold_back(self, unnoted: int | None = None) -> None:
        """Enter messages into their queues only once `confirm` allows it, from now on.

        The confirmed offset is the last one noted on the disk; without a note it is `unnoted`, or the end of the log.
        """
        begin = self.checkpoint.confirm_offset or (self.log.end if unnoted is None else max(self.log.begin, unnoted))
        try:
            self.log.check_begin(begin)
        except ValueError:
            begin = self.log.end
        held = HeldBack(begin)
        for found in self.log.records(begin):
            topic, queue_id, stored_ms = found.record.topic, found.record.queue_id, found.record.stored_ms
            if self.deletions.covers(topic, found.offset):
                held.add(HeldMessage(found.offset, found.size, stored_ms, topic, queue_id, None))
            else:
                for message in self.run_of(found).messages():
                    held.add(message)
        self.cut_queues(begin)
        self._held = held

    def tell_shown(self, shown: Callable[[str, int], None]) -> None:
        """Call `shown` for each message that becomes readable from now on."""
        self._shown = shown

    @property
    def is_holding_back(self) -> bool:
        return self._held is not None

    @property
    def readable_end(self) -> int:
        return self.log.end if self._held is None else self._held.begin(self.log.end)

    @property
    def confirmed(self) -> int:
        """The offset of the log before which everything may be read."""
        return self.log.end if self._held is None else self._held.confirmed

    def confirm(self, offset: int) -> None:
        """Allow reading the log before an offset, as far as the log reaches."""
        held = self._held
        if held is None:
            return
        held.confirmed = max(held.confirmed, min(offset, self.log.end))
        while (message := held.first()) is not None:
            try:
                self._show(message)
            except DiskFull as error:
                # The message stays first, and is tried again.
                if not self._is_full:
                    self._is_full = True
                    log.error("the message at %d cannot be entered into its queue: %s", message.offset, error)
                return
            held.drop_first()
            self._is_full = False
            self._stored_ms = message.stored_ms
            if message.queue is not None and self._shown is not None:
                self._shown(message.topic, message.queue_id)

    def _show(self, message: HeldMessage) -> None:
        queue = message.queue
        if queue is not None:
            if queue.end != message.queue_offset or queue.begins_later:
                queue.begin_at(message.queue_offset)
            queue.add(message.offset, message.size, message.tags_code)
            self._unflushed_queues[queue] = None

    # -- following the log

    def dispatch(self, found: Found, *, queue: bool = True, index: bool = True) -> bool:
        """Add missing entries for a record; return False if its queue has a gap before it."""
        record = found.record
        properties = decode_properties(record.properties)
        whole = True
        entries = self.queue_table.of(found) if queue else None
        if entries is not None:
            tags_code = self.tags_code(record.topic, properties, record.stored_ms)
            try:
                entries.append(record.queue_offset, ConsumeQueueEntry(found.offset, found.size, tags_code))
                self._unflushed_queues[entries] = None
            except ValueError:
                whole = False
        if index and found.offset >= self.index.end_offset:
            hashes = record_hashes(record.topic, record.system_flags, properties)
            self.index.put([(key_hash, found.offset, record.stored_ms) for key_hash in hashes])
        self._stored_ms = record.stored_ms
        return whole

    def dispatch_branch(self, found: Found, branch: Branch) -> bool:
        """Add a missing entry to a lite topic's queue; return False if it has a gap before it."""
        queue, tags_code = (
            self.open_queue(branch.queue, QUEUE_ID),
            branch_tags(decode_properties(found.record.properties)),
        )
        try:
            queue.append(branch.offset, ConsumeQueueEntry(found.offset, found.size, tags_code))
        except ValueError:
            return False
        self._unflushed_queues[queue] = None
        return True

    def tags_code(self, topic: str, properties: Mapping[str, str], stored_ms: int) -> int:
        """Return the tags code of a message's queue entry: the due time of a delayed one."""
        due = self._due_ms(topic, properties, stored_ms)
        if due is not None:
            return due
        tags = properties.get("TAGS")
        return tag_hash(tags) if tags else 0

    def open_queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a queue, creating it if missing. Raises `DiskFull` and `NoPlace`."""
        return self.queues.get((topic, queue_id)) or self.queue_table.open(topic, queue_id)

    # -- the disk

    def cut_queues(self, end: int, is_whole: Callable[[str, int, int], bool] | None = None) -> None:
        """Drop the queues' entries of messages from `end` of the log on, and have that flushed.

        The log must not grow over the place before: a loss of power may bring back old bytes that look like an entry of
        it. After a crash, `is_whole` returns whether a queue has a whole entry at an offset. All queues are flushed
        then, as earlier cuts may not be on the disk.
        """
        for key, queue in self.queues.items():
            if queue.cut_log(end, None if is_whole is None else partial(is_whole, *key)) or is_whole is not None:
                self._unflushed_queues[queue] = None

    def begin_flush(self) -> Flush | None:
        """Return the files to flush, for `end_flush`; None if everything is on the disk."""
        if self.log.end == self.flushed and not self._unflushed_queues:
            return None
        log_files, ends = self.log.files, (self.log.end, self.readable_end)
        times = (self._stored_ms, self.index.full_ms)
        flush = Flush(log_files.unflushed(self.flushed, self.log.end), *ends, *times, log_files.changes, self._cuts)
        for queue in self._unflushed_queues:
            flush.files.extend(queue.unflushed())
        self._unflushed_queues.clear()
        flush.files.extend(self.queue_table.unflushed())
        flush.files.extend(self.index.unflushed())
        if self._mark is None:
            self._mark = make_mark(self._root)
        flush.files.extend((self._checkpoint, *filter(None, (self._mark,)), *self._unflushed_root))
        self._unflushed_root = ()
        return flush

    def end_flush(self, flush: Flush) -> None:
        """Note that the files of `flush` are on the disk: now in the mark, with the next flush in the checkpoint."""
        if flush.cuts != self._cuts:
            return
        self.flushed = max(self.flushed, flush.log_end)
        self.log.files.flushed(flush.log_changes)
        self._write_checkpoint()  # a checkpoint newer than the mark would count as another broker's
        if flush.stored_ms:
            self._marked = flush
            if flush.stored_ms < self.checkpoint.commit_log_ms:
                # The clock was set back, or is another master's. The last mark counts until the disk has this.
                self._write_checkpoint()
            elif self._mark is not None:
                write_mark(self._mark, flush.stored_ms, flush.queues_end)

    def _write_checkpoint(self) -> None:
        flush, self._marked = self._marked, None
        if flush is not None and flush.cuts == self._cuts and self._checkpoint.reserve(CHECKPOINT_BYTES):
            ms = flush.stored_ms
            new = self.checkpoint._replace(commit_log_ms=ms, consume_queue_ms=ms, index_ms=flush.index_ms)
            if self._held is not None:
                new = new._replace(confirm_offset=flush.queues_end)
            STORE_CHECKPOINT.pack_into(self._checkpoint.buffer, 0, new)

    @property
    def log_end(self) -> int:
        return self.log.end

    def begin_log_flush(self) -> tuple[Callable[[], None], Callable[[], None]]:
        """Return a function that waits until the commit log as written now is on the disk, and one that notes it.

        Everything else can be derived from the log.
        """
        end, changes, cuts = self.log.end, self.log.files.changes, self._cuts
        files = self.log.files.unflushed(self.flushed, end)

        def wait() -> None:
            for file in files:
                file.flush()

        def note() -> None:
            self.flushed = max(self.flushed, end if cuts == self._cuts else 0)
            self.log.files.flushed(changes)

        return wait, note

    def flush(self) -> None:
        """Wait until everything is on the disk, and note it in the checkpoint."""
        flush = self.begin_flush()
        if flush is not None:
            for file in flush.files:
                file.flush()
            self.end_flush(flush)
        if self._mark is not None:
            self._mark.flush()
        self._write_checkpoint()
        self._checkpoint.flush()

    @property
    def marked_end(self) -> int | None:
        """The offset of the log before which everything is on the disk, if a mark records it."""
        mark = self.mark
        if mark is None or not is_current(mark, self.checkpoint.commit_log_ms):
            return None
        return mark.log_end if self.log.begin <= mark.log_end <= self.log.files.end else None

    @property
    def mark(self) -> FlushMark | None:
        """The mark of the last flush, current or not."""
        return None if self._mark is None else read_mark(self._mark)

    def begin_mark(self) -> None:
        """Mark on the disk that there was never a message. Without disk space, there is no mark."""
        if self._mark is None:
            self._mark = make_mark(self._root)
            if self._mark is not None:
                write_mark(self._mark, 0, 0)
                self._mark.flush()

    @property
    def checkpoint(self) -> StoreCheckpoint:
        return STORE_CHECKPOINT.unpack(self._checkpoint.buffer)

    def truncate(self, offset: int) -> None:
        """Drop the messages from `offset` of the log on, durably, even if the process ends meanwhile.

        Waits for the disk. Raises `ValueError` if the log cannot end there, and `DiskFull`; nothing is dropped then.
        """
        self.log.check_begin(offset)
        if offset == self.log.end:
            return
        self.index.cut_log(offset, lambda at: self.log.read(at).record.stored_ms)
        self._checkpoint.flush()  # or a start after a loss of power would find a time before the note's
        note_cut(self._root, self.checkpoint.commit_log_ms, offset)
        self.end_truncating(offset)

    def end_truncating(self, offset: int) -> None:
        self._cuts += 1
        if self._held is not None:
            self._held.cut(offset)
        cut_files(self._root, self._mark, self.log, [*self.queues.values()], self.index, offset)
        self.flushed = min(self.flushed, offset)
        self.deletions.follow_log(self.log.begin, offset)

    def expire(self, before: int) -> int:
        """Remove the log's files that end at `before` or earlier, with the entries for them; return their number."""
        removed = self.log.files.drop_before(before)
        if removed:
            self.drop_expired()
        return removed

    def drop_expired(self) -> None:
        begin = self.log.files.begin
        for queue in self.queues.values():
            queue.drop_log(begin)
        self.index.drop_log(begin)
        self.deletions.follow_log(begin, self.log.end)

    def close(self) -> None:
        """Flush and close everything; the next start needs no recovery."""
        self.flush()
        self.log.files.close()
        for queue in self.queues.values():
            queue.close()
        self.index.close()
        self._checkpoint.close()
        if self._mark is not None:
            self._mark.close()
        if ABORT in self._root.names():
            self._root.remove(ABORT)
