# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The partition as its rollovers need it; see `broker.bmq.partition.stored_partition`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from broker.bmq.core.messages import Message
from broker.bmq.core.work import Task, Work
from broker.bmq.store.partition_files import PartitionFiles, PartitionLimits
from broker.bmq.store.removals import Removals
from broker.bmq.store.sieve import JournalSieve
from broker.common.clock import Now

__all__ = ["RollingPartition"]


class RollingPartition(Protocol):
    """A partition that rolls over. Until its files are changed, records are added to the old ones, or held."""

    @property
    def partition_id(self) -> int: ...

    @property
    def files(self) -> PartitionFiles: ...

    @property
    def limits(self) -> PartitionLimits: ...

    @property
    def stores(self) -> dict[bytes, Mapping[bytes, Message]]:
        """The messages by queue key and GUID."""
        ...

    @property
    def offsets_from(self) -> int:
        """The offset in DATA to which those of messages are relative."""
        ...

    @property
    def due(self) -> int:
        """The number of records that the messages will still need."""
        ...

    @property
    def outlives_power(self) -> bool: ...

    @property
    def removals(self) -> Removals: ...

    @property
    def sieve(self) -> JournalSieve: ...

    @property
    def now(self) -> Now: ...

    @property
    def work(self) -> Work | None:
        """The long tasks of the node; None if everything is done at once."""
        ...

    @property
    def message_count(self) -> int: ...

    @property
    def records_held(self) -> int:
        """Number of records that follow when the rollover is over."""
        ...

    @property
    def qlist_held(self) -> int:
        """Bytes of QLIST that follow when the rollover is over."""
        ...

    def hold_records(self) -> None:
        """Stop adding to the files: further records follow when the rollover is over."""
        ...

    def take_purges(self) -> list[Task]:
        """Take the unfinished purges, whose messages must not be carried over."""
        ...

    def change_files(self, fresh: PartitionFiles, write_header: Callable[[int], None]) -> None:
        """Write to new files from now on; `write_header` gets the offset of their first sync point."""
        ...

    def retire(self, old: PartitionFiles) -> None:
        """Take old files out of service."""
        ...

    def rollover_is_over(self) -> None:
        """Finish the rollover, whether it succeeded or not."""
        ...
