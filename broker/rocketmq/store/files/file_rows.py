# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A row of files of equal size that hold one sequence of bytes, each named by its starting offset."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.common.files import Directory, StoreFile
from broker.rocketmq.store.errors import DiskFull, StoreFileDamaged
from broker.rocketmq.store.ports import Folder
from formats.rocketmq.files.names import offset_name, offset_of_name

__all__ = ["FileRow", "OpenFiles", "check_row", "open_file"]


class OpenFiles:
    """The count of open files, with its maximum `most`: each takes descriptors and mappings of the process."""

    def __init__(self, most: int) -> None:
        self.number = 0
        self.most = most

    def check_room(self, path: str) -> None:
        if self.number >= self.most:
            raise DiskFull(
                f"{path}: {self.number} files of queues are open, and no more may be; raise the limits of descriptors "
                "(ulimit -n, LimitNOFILE) and of mappings (vm.max_map_count), or delete topics"
            )


def open_file(directory: Directory, name: str, size: int) -> StoreFile:
    """Open a file of a folder, creating it if missing. Raises `DiskFull` if the system refuses."""
    try:
        return directory.open(name, size)
    except OSError as error:
        raise DiskFull(f"{directory.path}/{name}: {error.strerror}") from error


def check_row(path_of: Callable[[str], str], names: Iterable[str], file_size: int) -> list[int]:
    """Return the offsets of a row's files, in order; other files do not count.

    `path_of` returns the path of a file. Raises `StoreFileDamaged` if a file is missing between others, or there twice.
    """
    offsets = sorted(offset for name in names if (offset := offset_of_name(name)) is not None)
    for before, offset in zip([None, *offsets], offsets, strict=False):
        path = path_of(offset_name(offset))
        if offset == before:
            raise StoreFileDamaged(
                path, 0, "another folder of storePathCommitLog has this file, too", "move one of them"
            )
        if offset % file_size or (before is not None and offset != before + file_size):
            raise StoreFileDamaged(
                path,
                0,
                f"does not follow the file before it in a row of files of {file_size} bytes",
                "bring the missing file back from a replica or a backup, or set the file size to that of the store",
            )
    return offsets


class FileRow:
    """The files of a commit log or of a consume queue, all open and mapped; `opened` counts them.

    `begin` is the offset of the first file, `end` that after the last; with no files both are the same.
    """

    def __init__(self, directory: Folder, file_size: int, opened: OpenFiles | None = None) -> None:
        self._opened = opened or OpenFiles(1 << 62)
        self.directory = directory
        self.file_size = file_size
        self.files: list[StoreFile] = []
        self.begin = 0
        # Counts creations and removals of files; the other has its value at the directory's last flush. It starts at 1:
        # a killed process may not have flushed the directory.
        self.changes = 1
        self._changes_flushed = 0
        # The file last written to: its start, and the size of its allocated part.
        self._written: memoryview | None = None
        self._written_at = self._written_size = 0
        self._open_all()

    def _open_all(self) -> None:
        offsets = check_row(self.directory.path_of, self.directory.names(), self.file_size)
        for offset in offsets:
            file = self.directory.open(offset_name(offset), self.file_size)
            self.files.append(file)
            self._opened.number += 1
            if len(file.buffer) != self.file_size:
                raise StoreFileDamaged(
                    self.directory.path_of(file.name),
                    self.file_size,
                    f"has {len(file.buffer)} bytes, but the files of this store have {self.file_size}",
                    "set the file size to that of the store",
                )
        self.begin = offsets[0] if offsets else 0

    @property
    def end(self) -> int:
        return self.begin + len(self.files) * self.file_size

    def place(self, offset: int) -> tuple[StoreFile, int]:
        """Return the file with `offset`, and the place in it. Raises `IndexError` if there is none."""
        number, place = divmod(offset - self.begin, self.file_size)
        if number < 0:
            raise IndexError(offset)
        return self.files[number], place

    def room(self, offset: int, size: int) -> memoryview:
        """Return `size` writable bytes at `offset` in one file, created if missing, and allocated on the disk.

        Raises `DiskFull`.
        """
        buffer, place = self.spot(offset, size)
        return buffer[place : place + size]

    def spot(self, offset: int, size: int) -> tuple[memoryview, int]:
        """Reserve `size` bytes like `room`; return the file's buffer, and the place in it."""
        place = offset - self._written_at
        if self._written is not None and place >= 0 and place + size <= self._written_size:
            return self._written, place
        if offset >= self.end:
            self._extend(offset)
        file, place = self.place(offset)
        if not file.reserve(place + size):
            raise DiskFull(f"{self.directory.path_of(file.name)}: no disk space for {size} bytes at offset {place}")
        self._written, self._written_at, self._written_size = file.buffer, offset - place, file.granted
        return file.buffer, place

    def write(self, offset: int, data: memoryview) -> None:
        """Write long data at `offset`, into one file, created if missing. Raises `DiskFull`."""
        if offset >= self.end:
            self._extend(offset)
        file, place = self.place(offset)
        if not file.write(place, data):
            raise DiskFull(
                f"{self.directory.path_of(file.name)}: no disk space for {len(data)} bytes at offset {place}"
            )

    def _close(self, file: StoreFile) -> None:
        self._written = None
        self._opened.number -= 1
        file.close()

    def _remove(self, file: StoreFile) -> None:
        self._close(file)
        self.directory.remove(file.name)
        self.changes += 1

    def _extend(self, offset: int) -> None:
        start = offset - offset % self.file_size
        name = offset_name(start)
        assert not self.files or start == self.end
        self._opened.check_room(f"{self.directory.path}/{name}")
        file = open_file(self.directory, name, self.file_size)
        if not self.files:
            self.begin = start
        self.files.append(file)
        self._opened.number += 1
        self.changes += 1

    def cut(self, end: int) -> None:
        """Remove everything from `end` on: later files are deleted, and the rest of the last one is cleared."""
        while self.files and self.end - self.file_size >= end:
            self._remove(self.files.pop())
        if not self.files:
            self.begin = end - end % self.file_size
        if self.files and end < self.end:
            file, place = self.place(end)
            dirty_end = min(self.file_size, max(file.data_end, place))
            dirty = bytes(file.buffer[place:dirty_end])
            if dirty.count(0) < len(dirty) and file.reserve(dirty_end):
                file.buffer[place:dirty_end] = bytes(len(dirty))

    def drop_first(self) -> None:
        self._remove(self.files.pop(0))
        self.begin += self.file_size

    def drop_before(self, offset: int) -> int:
        """Remove the files that end at `offset` or earlier, except the last one; return their number."""
        removed = 0
        while len(self.files) > 1 and self.begin + self.file_size <= offset:
            self.drop_first()
            removed += 1
        return removed

    def unflushed(self, begin: int, end: int) -> list[StoreFile | Directory]:
        """Return the files to flush for the bytes between two offsets, and the directory if its files have changed.

        After the flush, call `flushed` with the present value of `changes`.
        """
        first = max(0, (begin - self.begin) // self.file_size)
        last = max(0, -((self.begin - end) // self.file_size))
        found: list[StoreFile | Directory] = list(self.files[first:last])
        if self.changes > self._changes_flushed:
            found.append(self.directory)
        return found

    def flushed(self, changes: int) -> None:
        """Note that the directory was flushed when `changes` had this value."""
        self._changes_flushed = max(self._changes_flushed, changes)

    def close(self) -> None:
        for file in self.files:
            self._close(file)
