"""Files for checks, read by range, so that memory does not grow with a file of 32 GiB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import scan
from formats.schema import Buffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FileView", "Source", "scan_source"]

"""At least the size of the headers at the start of a file."""


class Source(Protocol):
    """A file's name (no directory), its size in bytes, and its bytes.

    `read` gives the `size` bytes from `offset`, or fewer at the end of the file.
    """

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    def read(self, offset: int, size: int) -> memoryview: ...


class FileView(NamedTuple):
    """A `Source` over bytes in memory or mapped, without copies."""

    name: str
    buffer: Buffer

    @property
    def size(self) -> int:
        return len(self.buffer)

    def read(self, offset: int, size: int) -> memoryview:
        return memoryview(self.buffer)[offset : offset + size]


def scan_source(journal: Source, first_record_offset: int, index: int, count: int) -> NDArray[Any]:
    """Read `count` records from number `index` on, like `formats.bmq.disk.journal.scan`."""
    start = first_record_offset + index * JOURNAL_RECORD_SIZE
    return scan(journal.read(start, count * JOURNAL_RECORD_SIZE), 0, count)
