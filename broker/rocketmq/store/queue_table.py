"""The consume queues of a store: a folder for each topic, and one for each queue in it."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from broker.common.files import Directory
from broker.rocketmq.store.commit_log import Found
from broker.rocketmq.store.consume_queue import ConsumeQueue
from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.files.file_rows import FileRow, OpenFiles
from broker.rocketmq.store.places import QUEUE_OFFSET_MAX, check_place, is_place, is_topic
from broker.rocketmq.store.ports import Folder
from broker.rocketmq.store.skips import Skips
from formats.rocketmq.flags import TRANSACTION_MASK, Transaction
from formats.rocketmq.numbers import INT_MAX, read_digits

__all__ = ["NOT_CONSUMED", "QueueTable"]

# Messages of these types are in no consume queue: they await their commit elsewhere, or are dropped.
NOT_CONSUMED: Final = (int(Transaction.PREPARED), int(Transaction.ROLLBACK))


class QueueTable:
    """The open queues, by topic and queue id. `misplaced` counts records whose queues cannot exist."""

    def __init__(self, folder: Folder, file_bytes: int, files_max: int) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        # Existing queues are opened regardless of the bound.
        self.files = OpenFiles(files_max)
        self.queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._numbers: dict[str, list[int]] = {}
        self.misplaced = Skips("records of queues that cannot be")
        for topic in folder.folders():
            for name in folder.folder(topic).folders():
                queue_id = read_digits(name, INT_MAX)
                if queue_id is not None and str(queue_id) == name and is_topic(topic):
                    self.open(topic, queue_id)
        # A killed process may have created folders without flushing them.
        self._has_changed = bool(self.queues)

    def open(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Open a queue, creating it if missing. Raises `DiskFull` and `NoPlace`."""
        check_place(topic, queue_id)
        try:
            row = FileRow(self._folder.folder(topic).folder(str(queue_id)), self._file_bytes, self.files)
        except OSError as error:
            raise DiskFull(f"queue {queue_id} of {topic}: {error.strerror}") from error
        queue = self.queues[topic, queue_id] = ConsumeQueue(row)
        self._numbers.setdefault(topic, []).append(queue_id)
        self._has_changed = True
        return queue

    def of(self, found: Found) -> ConsumeQueue | None:
        """Return the queue of a record, created if missing; None for a record that is not consumed. Raises `DiskFull`.

        A record whose queue cannot exist is counted, and has none.
        """
        record = found.record
        if record.system_flags & TRANSACTION_MASK in NOT_CONSUMED:
            return None
        if is_place(record.topic, record.queue_id) and 0 <= record.queue_offset <= QUEUE_OFFSET_MAX:
            return self.queues.get((record.topic, record.queue_id)) or self.open(record.topic, record.queue_id)
        reason = f"offset {record.queue_offset} of queue {record.queue_id} of topic {record.topic[:80]!r}"
        self.misplaced.note(f"offset {found.offset} of the log", reason)
        return None

    @property
    def last_end(self) -> tuple[int, str]:
        """The largest end in the log of a queue's last message, and that queue; 0 for none."""
        ends = ((queue.physical_end, key) for key, queue in self.queues.items())
        end, (topic, queue_id) = max(ends, default=(0, ("", 0)))
        return end, f"queue {queue_id} of topic {topic}"

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        return [self.queues[topic, number] for number in self._numbers.get(topic, ())]

    def take(self, topic: str) -> list[ConsumeQueue]:
        """Remove and return the queues of a topic, for the caller to close."""
        return [self.queues.pop((topic, number)) for number in self._numbers.pop(topic, ())]

    def remove(self, topic: str) -> None:
        """Remove the folder of a topic, if any. Its queues must be closed."""
        if not is_topic(topic):
            return
        with suppress(FileNotFoundError):
            self._folder.remove_folder(topic)
            self._has_changed = True

    def unflushed(self) -> list[Directory]:
        """Return the folders to flush; they count as flushed from now on."""
        if not self._has_changed:
            return []
        self._has_changed = False
        return [*{topic: self._folder.folder(topic) for topic, _ in self.queues}.values(), self._folder]
