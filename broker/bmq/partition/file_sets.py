# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The sets of files of a partition: how a new one replaces the old one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker.bmq.core.messages import Full
from broker.bmq.store.partition_files import PartitionFiles, PartitionLimits
from broker.bmq.store.removals import Removals
from broker.common.clock import Now
from broker.common.files import Directory

__all__ = ["FileSets"]

log: Final = logging.getLogger("broker.partition")


class FileSets:
    """The sets of one partition in a directory, each named by the time that `make_timestamp` gives it.

    With `outlives_power`, new files are flushed to the disk before they replace others. `removals` outlive their
    journals.
    """

    __slots__ = ("_directory", "_now", "_partition_id", "make_timestamp", "outlives_power", "removals")

    def __init__(
        self,
        partition_id: int,
        directory: Directory,
        now: Now,
        make_timestamp: Callable[[str], str],
        *,
        outlives_power: bool,
    ) -> None:
        self._partition_id = partition_id
        self._directory = directory
        self._now = now
        self.make_timestamp = make_timestamp
        self.outlives_power = outlives_power
        self.removals = Removals(directory, partition_id, make_timestamp)

    def timestamp(self) -> str:
        """Return the timestamp of the next set. Raises OSError."""
        return self.make_timestamp(f"bmq_{self._partition_id}.")

    def create(self, limits: PartitionLimits) -> PartitionFiles:
        """Make a set. Raises `Full` if the disk has no room."""
        fresh = None
        try:
            fresh = PartitionFiles.create(self._directory, self._partition_id, self.timestamp(), limits)
        except OSError as error:
            log.error("Partition [%d]: no new files: %s", self._partition_id, error.strerror)
        if fresh is None:
            raise Full("STORAGE_FAILURE", f"partition {self._partition_id}: no disk space for new files")
        return fresh

    def keep_removals(self, old: PartitionFiles) -> None:
        self.removals.give_up(old, self._now.ms, synced=self.outlives_power)

    def finish(self, fresh: PartitionFiles, write_header: Callable[[], None]) -> None:
        """Make `fresh` the files with which the next process continues; earlier ones may be removed then.

        The header marks the set as complete, so it reaches the disk after everything else, including the new files'
        names; nothing is removed before.
        """
        if self.outlives_power:
            fresh.flush()
            fresh.directory.flush()
        write_header()
        if self.outlives_power:
            fresh.journal.flush()

    def retire(self, old: PartitionFiles) -> None:
        """Take old files out of service: another process finds the newer ones whole."""
        name = old.journal.name

        def note(error: Exception) -> None:
            reason = error.strerror if isinstance(error, OSError) else error
            log.error("Partition [%d]: %s cannot be archived: %s", self._partition_id, name, reason)

        old.retire(note)
