"""Tables in memory, and the small files that store them, written in a thread.

A change takes effect in memory at once, and encodes only the changed entries. All changes of a step go to the disk
together, and so do changes during a write (group commit). The request for a change is answered when the change is on
the disk; if it cannot be written, it is undone, and the request refused.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["BackgroundWriter", "Keep", "Keeper", "KeptFile", "KeptTable", "Stored"]

log = logging.getLogger("broker.kept")

FINISH_S: Final = 30.0

# Writes the content of a file, and flushes it to the disk. Raises `OSError`.
Keep = Callable[[bytes], None]
# Called with None when changes are on the disk, or with the error that undid them.
Stored = Callable[[OSError | None], None]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")
Version = TypeVar("Version")


class BackgroundWriter(Protocol):
    """Runs one piece of work at a time in a thread, and calls `done` in the loop."""

    def begin(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None: ...

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the work, and call `done`. Return False after the timeout."""
        ...


class KeptFile:
    """A file with the content that `content` returns. `settled` is called after each write, with its error or None.

    Without a `Keeper`, each change is written at once.
    """

    def __init__(self, keep: Keep, content: Callable[[], bytes], settled: Stored) -> None:
        self._keep = keep
        self._content = content
        self._settled = settled
        self.keeper: Keeper | None = None
        # Called after the next write, and after the one in progress.
        self.waiting: list[Stored] = []
        self._under_way: list[Stored] = []
        # The error of the last write; logged once, until a write succeeds.
        self.error: OSError | None = None

    def changed(self) -> None:
        """Write the file, or have its keeper write it. Raises `OSError` if the file cannot be written at once."""
        if self.keeper is not None:
            self.keeper.note(self)
            return
        self.end(self.begin()())
        if self.error is not None:
            raise self.error

    def store_now(self) -> None:
        """Wait until all changes are on the disk. Raises the `OSError` of the last write."""
        if self.keeper is not None:
            self.keeper.finish()
        if self.error is not None:
            raise self.error

    def begin(self) -> Callable[[], OSError | None]:
        """Return a function that writes the present content, in any thread, and returns its error or None."""
        data, keep = self._content(), self._keep
        self._under_way, self.waiting = self.waiting, []

        def write() -> OSError | None:
            try:
                keep(data)
            except OSError as error:
                return error
            return None

        return write

    def end(self, error: OSError | None) -> None:
        if error is not None and self.error is None:
            log.error("a change cannot be stored, and is undone: %s", error)
        self.error = error
        self._settled(error)
        waits, self._under_way = self._under_way, []
        if error is not None:
            waits += self.waiting
            self.waiting = []
        for wait in waits:
            wait(error)


class Keeper:
    """Writes files, at most once per step: in the thread of `beside`, or else at the end of the step."""

    def __init__(self, beside: BackgroundWriter | None = None) -> None:
        self._beside = beside
        self._dirty: dict[KeptFile, None] = {}
        self._touched: dict[KeptFile, None] = {}
        self._is_writing = False

    def adopt(self, *files: KeptFile) -> None:
        for file in files:
            file.keeper = self

    def note(self, file: KeptFile) -> None:
        self._dirty[file] = self._touched[file] = None

    def touch(self, file: KeptFile) -> None:
        """Delay the answer to the present request, which relies on a change, until a file is written."""
        self._touched[file] = None

    def take_touched(self) -> list[KeptFile]:
        """Take the files whose next write the answer to the present request must wait for."""
        if not self._touched:
            return []
        touched, self._touched = list(self._touched), {}
        return touched

    def when_stored(self, files: list[KeptFile], done: Stored) -> None:
        """Call `done` when the present content of the files is on the disk, or could not be written."""
        left, first = len(files), None

        def written(error: OSError | None) -> None:
            nonlocal left, first
            left, first = left - 1, first or error
            if not left:
                done(first)

        for file in files:
            file.waiting.append(written)
            # A write in progress may have taken the content from before the change.
            self._dirty[file] = None

    def end_step(self) -> None:
        """Start to write the changed files, unless a write is in progress."""
        if self._touched:
            self._touched.clear()
        if self._is_writing or not self._dirty:
            return
        files, self._dirty = list(self._dirty), {}
        self._is_writing = True
        works = [file.begin() for file in files]
        errors: list[OSError | None] = []

        def work() -> None:
            errors.extend(each() for each in works)

        def done(error: Exception | None) -> None:
            self._is_writing = False
            unknown = None if error is None else OSError(errno.EIO, str(error))
            for place, file in enumerate(files):
                file.end(errors[place] if place < len(errors) else unknown)

        if self._beside is None:
            work()
            done(None)
        else:
            self._beside.begin(work, done)

    def finish(self) -> None:
        """Write all changed files, and wait. Raises `OSError` if a write in progress does not end within `FINISH_S`."""
        if self._is_writing and (self._beside is None or not self._beside.wait(FINISH_S)):
            raise OSError(errno.ETIMEDOUT, "the disk does not complete a write")
        beside, self._beside = self._beside, None
        try:
            self.end_step()
        finally:
            self._beside = beside


class KeptTable(Generic[K, V, T, Version]):
    """A table, and the file that stores it.

    `encode` returns the text, or texts, of an entry; `compose` returns the content of the file from those of all
    entries. Only `change` modifies `table`, which remains the same dictionary; `edition` is a new object after each
    change. `version` is the version on the disk. `stored` is called with the keys of each write. `weight` sums `weigh`
    over all entries.
    """

    def __init__(
        self,
        keep: Keep,
        table: dict[K, V],
        version: Version,
        encode: Callable[[K, V], T],
        compose: Callable[[Iterable[T], Version], bytes],
        stored: Callable[[Iterable[K]], None] = lambda keys: None,
        weigh: Callable[[K, V], int] = lambda key, value: 0,
    ) -> None:
        self.table = table
        self.texts = {key: encode(key, value) for key, value in table.items()}
        self.edition = object()
        self.version = self.next_version = version
        self.file = KeptFile(keep, self._content, self._settled)
        self._encode = encode
        self._compose = compose
        self._stored = stored
        self._weigh = weigh
        self.weight = sum(weigh(key, value) for key, value in table.items())
        # The former values of entries: changed since the last write began, and being written.
        self._before: dict[K, V | None] = {}
        self._before_write: dict[K, V | None] = {}
        self._written_version = version

    def change(self, changes: Mapping[K, V | None], version: Version) -> None:
        """Set entries, and remove those whose value is None. Raises `OSError` like `KeptFile.changed`."""
        for key, value in changes.items():
            self._before.setdefault(key, self.table.get(key))
            self._set(key, value)
        self.next_version = version
        self.edition = object()
        self.file.changed()

    def put(self, entries: Mapping[K, V | None], version: Version) -> None:
        """Set the entries that differ from the table's; if there are none, the version remains.

        Delays the answer to the present request until all are on the disk. Raises `OSError` like `KeptFile.changed`.
        """
        changes = {key: value for key, value in entries.items() if self.table.get(key) != value}
        for key in entries:
            self.rely_on(key)
        if changes:
            self.change(changes, version)

    def rely_on(self, key: K) -> None:
        if self.file.keeper is not None and not self.is_stored(key):
            self.file.keeper.touch(self.file)

    def is_stored(self, key: K) -> bool:
        """Return True if the disk has an entry as it is in the table."""
        return key not in self._before and key not in self._before_write

    def _set(self, key: K, value: V | None) -> None:
        old = self.table.get(key)
        if old is not None:
            self.weight -= self._weigh(key, old)
        if value is None:
            self.table.pop(key, None)
            self.texts.pop(key, None)
        else:
            self.weight += self._weigh(key, value)
            self.texts[key] = self._encode(key, value)
            self.table[key] = value

    def _content(self) -> bytes:
        self._before_write, self._before = self._before, {}
        self._written_version = self.next_version
        return self._compose(self.texts.values(), self.next_version)

    def _settled(self, error: OSError | None) -> None:
        written, self._before_write = self._before_write, {}
        if error is None:
            self.version = self._written_version
            self._stored(written)
            return
        # Values from before the failed write are older than values from before later changes.
        undone, self._before = {**self._before, **written}, {}
        for key, value in undone.items():
            self._set(key, value)
        self.next_version = self.version
        self.edition = object()
