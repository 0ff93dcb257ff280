"""A disk in memory that fails on demand: it fills up, its writer is killed, its bits rot."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from broker.common.files import Directory, StoreFile, put_away
from formats.bmq.disk.files import FileType, initial_bytes
from formats.schema import Buffer

__all__ = ["Crash", "MemoryDirectory", "MemoryFile"]

JOURNAL_HEADER_SIZE = len(initial_bytes(FileType.JOURNAL, 0))


class Crash(BaseException):
    """The process is killed here; what was written before is what the next one finds."""


@dataclass
class Content:
    """The contents of a file: its bytes, and the number of them that are allocated on the disk."""

    data: bytearray
    backed: int = 0


class MemoryFile:
    """One open file; see `broker.common.files.StoreFile`."""

    def __init__(self, directory: MemoryDirectory, name: str, content: Content) -> None:
        self._directory = directory
        self._name = name
        self._content = content
        self._granted = 0
        self._is_closed = False
        self._buffer = memoryview(content.data)

    @property
    def name(self) -> str:
        return self._name

    @property
    def buffer(self) -> memoryview:
        return self._buffer

    @property
    def granted(self) -> int:
        return self._granted

    @property
    def data_end(self) -> int:
        return self._content.backed

    def reserve(self, end: int) -> bool:
        self._directory.step()
        self.check()
        if end <= self._granted:
            return True
        if end > len(self._content.data):
            return False
        wanted = min(len(self._content.data), -(-end // self._directory.chunk) * self._directory.chunk)
        for stop in (wanted, end):
            if self._directory.take(stop - self._content.backed):
                self._content.backed = max(self._content.backed, stop)
                self._granted = stop
                return True
        return False

    def write(self, start: int, data: Buffer) -> bool:
        if not self.reserve(start + len(data)):
            return False
        self._buffer[start : start + len(data)] = data
        return True

    def flush(self) -> None:
        if self._is_closed:
            # A thread that has files flushed may come to one that was removed meanwhile.
            return
        self.check()
        self._directory.wait_for(self._name)
        self._directory.platter[self._name] = bytes(self._content.data)

    def close(self, size: int | None = None) -> None:
        self._directory.step()
        self.check()
        self._is_closed = True
        self._buffer.release()
        length = len(self._content.data)
        # Resizing raises BufferError while somebody holds a view, as unmapping a file does.
        self._content.data += b"\0"
        del self._content.data[length if size is None else size :]
        if size is not None:
            self._directory.take(min(0, size - self._content.backed))
            self._content.backed = min(size, self._content.backed)

    def check(self) -> None:
        """Check that nothing was written beyond the reserved part: with a real disk that would kill the process."""
        tail = bytes(self._buffer[self._content.backed :])
        assert tail == bytes(len(tail)), f"{self._name}: written behind the {self._content.backed} bytes that have disk"


@dataclass
class MemoryDirectory:
    """The folder of a store. `free` is the disk that is left, in bytes; `chunk` is how much a file takes at a time.

    Archived files leave the disk, unless `keeps_archive`.

    `steps_left` calls that change something succeed, then `Crash` is raised: the moments between them are those at
    which a killed process leaves the folder in different states.
    """

    free: int = 1 << 40
    chunk: int = 1
    steps_left: int = 1 << 40
    keeps_archive: bool = False
    files: dict[str, Content] = field(default_factory=dict)
    archived: dict[str, bytes] = field(default_factory=dict)
    # Damaged files that were set aside, which takes no disk here.
    damaged: list[tuple[str, bytes]] = field(default_factory=list)
    # The names of the files that were waited for, in order; its own path is the folder.
    flushed: list[str] = field(default_factory=list)
    # As many are waited for, then `Crash` is raised.
    flushes_left: int = 1 << 40
    # The contents of each file that survive a power failure.
    platter: dict[str, bytes] = field(default_factory=dict)
    # Changes to the folder since it was flushed, in order: a file that is there since then, by its name, or what the
    # disk has of one that is there no longer.
    unflushed: list[tuple[str, bytes | None]] = field(default_factory=list)
    # As many flushes fail, and leave undone what they were asked for.
    flushes_failing: int = 0
    # The process has no descriptor left: no file can be opened.
    is_out_of_descriptors: bool = False
    # As many files can be opened, and none after that.
    opens_left: int = 1 << 40

    @property
    def path(self) -> str:
        return "/memory"

    def names(self) -> list[str]:
        return sorted(self.files)

    def open(self, name: str, size: int) -> MemoryFile:
        self.step()
        self.take_descriptor(name)
        if name not in self.files:
            self.unflushed.append((name, None))
        content = self.files.setdefault(name, Content(bytearray()))
        content.data += bytes(max(0, size - len(content.data)))
        return MemoryFile(self, name, content)

    def remove(self, name: str) -> None:
        self.step()
        self.take(-self.files.pop(name).backed)
        self.unflushed.append((name, self.platter.pop(name, b"")))

    def archive(self, name: str) -> None:
        self.step()
        content = self.files.pop(name)
        self.unflushed.append((name, self.platter.pop(name, b"")))
        if not self.keeps_archive:
            self.take(-content.backed)
        self.archived[name] = bytes(content.data)

    def put_away(self, files: Sequence[tuple[StoreFile, int]], failed: Callable[[Exception], None]) -> None:
        put_away(self, files, failed)

    def set_aside(self, name: str) -> str:
        self.step()
        content = self.files.pop(name)
        self.platter.pop(name, None)
        self.take(-content.backed)
        self.damaged.append((name, bytes(content.data)))
        return f"{self.path}/damaged/{name}"

    def flush(self) -> None:
        self.wait_for(self.path)
        self.unflushed.clear()

    # -- faults

    def take_descriptor(self, name: str) -> None:
        """A file, or the folder itself, is to be opened."""
        if self.is_out_of_descriptors or not self.opens_left:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), name)
        self.opens_left -= 1

    def step(self) -> None:
        """One more call that changes something."""
        if not self.steps_left:
            raise Crash
        self.steps_left -= 1

    def wait_for(self, name: str) -> None:
        if not self.flushes_left:
            raise Crash
        self.flushes_left -= 1
        if self.flushes_failing:
            self.flushes_failing -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)
        self.flushed.append(name)

    def take(self, size: int) -> bool:
        """Use `size` bytes of disk, or give them back when negative; return False when the disk is full."""
        if size > max(0, self.free):
            return False
        self.free -= size
        return True

    def after_crash(self) -> MemoryDirectory:
        """The folder as the next process finds it, were this one killed now: all that was written, nothing open."""
        files = {name: Content(bytearray(content.data), content.backed) for name, content in self.files.items()}
        return MemoryDirectory(
            self.free,
            self.chunk,
            keeps_archive=self.keeps_archive,
            files=files,
            archived=dict(self.archived),
            damaged=list(self.damaged),
            platter=dict(self.platter),
            unflushed=list(self.unflushed),
        )

    def undo(self, kept: int) -> None:
        """Lose what was done to the folder since it was flushed, but for the first `kept` changes: power has failed."""
        for name, content in reversed(self.unflushed[kept:]):
            if content is None:
                self.files.pop(name, None)
                self.platter.pop(name, None)
            else:
                self.files[name] = Content(bytearray(content), len(content))
                self.platter[name] = content
                self.archived.pop(name, None)
        self.unflushed.clear()

    def torn_since(self, before: MemoryDirectory, kept: int) -> MemoryDirectory:
        """Return the directory like `after_crash`, with only the first `kept` bytes of the writes since `before`.

        Payloads and queue records are written before the journal records that name them, and the header of a journal
        last of all, in one piece.
        """
        torn = self.after_crash()
        for name in sorted(torn.files, key=lambda name: name.endswith("journal")):
            new, old = torn.files[name].data, before.files[name].data
            changed = [at for at in range(len(new)) if new[at] != old[at]]
            if name.endswith("journal"):
                changed = [at for at in changed if at >= JOURNAL_HEADER_SIZE]
                if kept <= len(changed):
                    new[:JOURNAL_HEADER_SIZE] = old[:JOURNAL_HEADER_SIZE]
            for at in changed:
                if kept:
                    kept -= 1
                else:
                    new[at] = old[at]
        return torn

    def flip(self, name: str, offset: int, mask: int = 1) -> None:
        """Let bits of one byte rot."""
        self.files[name].data[offset] ^= mask

    def find(self, suffix: str) -> str:
        """The newest file whose name ends so."""
        return max(name for name in self.files if name.endswith(suffix))


def _keeps_to_the_ports(directory: MemoryDirectory, file: MemoryFile) -> tuple[Directory, StoreFile]:
    return directory, file
