"""Judges what a node that waits for its disk has there: what it was asked for, after each flush and when it speaks."""

from __future__ import annotations

from collections.abc import Iterable

from broker.bmq.core.ledger import Ledger
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.store.partition_files import FileEnds, PartitionFiles
from broker.common.files import Directory, StoreFile
from tests.broker.fakes import MemoryDirectory
from tests.simulator.judges.invariants import Violation

__all__ = ["Platter"]


class Platter:
    """The platter of one process's machine. Records that were judged once are not looked at again."""

    def __init__(
        self, name: str, directory: MemoryDirectory, partitions: Iterable[StoredPartition], ledger: Ledger
    ) -> None:
        self._name = name
        self._directory = directory
        self._partitions = tuple(partitions)
        self._ledger = ledger
        self._judged: dict[int, tuple[PartitionFiles, FileEnds]] = {}
        self._ledger_judged: tuple[StoreFile | None, int] = (None, 0)

    def sync(self, unsynced: Iterable[StoreFile | Directory]) -> None:
        """Flush, in this order. `Violation` if a power failure in between, or from then on, would take too much."""
        for each in unsynced:
            each.flush()
            for partition in self._partitions:
                if each is partition.files.journal:
                    self._check_named(partition)
        for partition in self._partitions:
            self._check_partition(partition)
        self._check_ledger()
        self._check_folder()

    def _starts(self, partition: StoredPartition) -> FileEnds:
        """The offset, in each file, from which on nothing was judged yet."""
        files, ends = self._judged.get(partition.partition_id, (None, partition.files.ends))
        return ends if files is partition.files else FileEnds(0, 0, 0)

    def _check_named(self, partition: StoredPartition) -> None:
        """A journal that is on the platter names payloads and queues that are there, too."""
        files, starts = partition.files, self._starts(partition)
        self._check(files.data, starts.data, files.data_end, "that its journal names")
        self._check(files.qlist, starts.qlist, files.qlist_end, "that its journal names")

    def _check_partition(self, partition: StoredPartition) -> None:
        files = partition.files
        if self._judged.get(partition.partition_id) == (files, files.ends):
            return
        self._check_named(partition)
        self._check(files.journal, self._starts(partition).journal, files.journal_end, "of which others may hear")
        self._judged[partition.partition_id] = files, files.ends

    def _check_ledger(self) -> None:
        file, end = self._ledger.file, self._ledger.end
        if file is None or self._ledger_judged == (file, end):
            return
        judged, start = self._ledger_judged
        self._check(file, start if judged is file else 0, end, "of which others may hear")
        self._ledger_judged = file, end

    def _check_folder(self) -> None:
        """Files that are in use are in the folder for good."""
        made = {name for name, content in self._directory.unflushed if content is None}
        sets = [files for files, _ in self._judged.values()]
        used = {file.name for files in sets for file in (files.journal, files.data, files.qlist)}
        if self._ledger.file is not None:
            used.add(self._ledger.file.name)
        for name in made & used:
            raise Violation(f"{self._name} has {name} in its folder until power fails")

    def _check(self, file: StoreFile, start: int, end: int, what: str) -> None:
        # Records written after a cut may begin before the judged ones.
        start = min(start, end)
        on_platter = self._directory.platter.get(file.name, b"")
        if on_platter[start:end] != bytes(file.buffer[start:end]):
            raise Violation(f"{self._name} has not all of {file.name} on its platter {what}")
