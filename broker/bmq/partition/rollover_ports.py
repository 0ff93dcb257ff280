# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The partition as one of its rollovers needs it; see `broker.bmq.partition.rollovers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.bmq.core.work import Task, Work
from broker.bmq.partition.file_sets import FileSets
from broker.bmq.partition.records import PartitionRecords
from broker.bmq.partition.room import PartitionRoom
from broker.bmq.store.partition_files import PartitionFiles
from broker.bmq.store.sieve import JournalSieve
from broker.common.clock import Now

__all__ = ["RollingPartition"]


class RollingPartition(Protocol):
    """A partition that rolls over. Until its files are changed, records are added to the old ones, or held."""

    @property
    def partition_id(self) -> int: ...

    @property
    def records(self) -> PartitionRecords: ...

    @property
    def room(self) -> PartitionRoom: ...

    @property
    def sets(self) -> FileSets: ...

    @property
    def sieve(self) -> JournalSieve: ...

    @property
    def now(self) -> Now: ...

    @property
    def work(self) -> Work | None:
        """The long tasks of the node; None if everything is done at once."""
        ...

    def hold_records(self) -> None:
        """Stop adding to the files: further records follow after the rollover."""
        ...

    def take_purges(self) -> list[Task]:
        """Take the unfinished purges, whose messages must not be carried over."""
        ...

    def change_files(self, fresh: PartitionFiles, write_header: Callable[[int], None]) -> None:
        """Write to new files from now on; `write_header` gets the offset of their first sync point."""
        ...

    def rollover_is_over(self) -> None: ...
