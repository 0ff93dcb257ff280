"""Notes of removed topics, so that a start enters no earlier records into their queues.

Queues are rebuilt from the log, which keeps the messages of a removed topic until they expire. Apache's broker has no
such note: after a crash it brings messages of the topic back. A note is a file of our own in `bmqctl.deleted`, with the
topic's name and the content of `bmqctl.flushed`, without a time. Notes do not count if the original has run since: it
may have cut the log.
"""

from __future__ import annotations

from typing import Final

from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.files.flush_mark import FLUSH_MARK, need_small, read_mark, write_mark
from broker.rocketmq.store.ports import Folder

__all__ = ["DELETED_NAME", "Deletions"]

DELETED_NAME: Final = "bmqctl.deleted"
# Each note is a file.
NOTES_MAX: Final = 10_000


class Deletions:
    """The removed topics, each with the end of the log at its last removal.

    With `counts` false, notes of earlier processes are removed.
    """

    def __init__(self, root: Folder, *, counts: bool, most: int = NOTES_MAX) -> None:
        self._root = root
        self._most = most
        self._ends: dict[str, int] = {}
        if DELETED_NAME not in root.folders():
            return
        folder = root.folder(DELETED_NAME)
        for topic in list(folder.names()):
            file = folder.open(topic, FLUSH_MARK.size)
            note = read_mark(file) if counts else None
            file.close()
            if note is None:
                folder.remove(topic)
            else:
                self._ends[topic] = note.log_end

    def note(self, topic: str, end: int) -> None:
        """Note on the disk that the queues of a topic have no record before `end` of the log.

        Raises `DiskFull`, also for too many notes, which are removed when the records expire.
        """
        if topic not in self._ends and len(self._ends) >= self._most:
            text = f"{self._most} deleted topics have messages that have not expired"
            raise DiskFull(f"{self._root.path_of(DELETED_NAME)}: {text}")
        folder = self._root.folder(DELETED_NAME)
        file = need_small(folder, topic, FLUSH_MARK.size)
        write_mark(file, 0, end)
        file.flush()
        file.close()
        folder.flush()
        self._root.flush()
        self._ends[topic] = end

    def covers(self, topic: str, offset: int) -> bool:
        """Return whether a record at an offset of the log precedes the topic's last removal."""
        return offset < self._ends.get(topic, 0)

    def follow_log(self, begin: int, end: int) -> None:
        """Drop notes about expired records, and limit the others to the end of a log that was cut.

        Call this before the log grows again: new records may take the place of those that were cut.
        """
        for topic, noted in list(self._ends.items()):
            if noted <= begin:
                self._root.folder(DELETED_NAME).remove(topic)
                del self._ends[topic]
            elif noted > end:
                self.note(topic, end)
