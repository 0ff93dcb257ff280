"""The disk of a machine with a store of RocketMQ: a tree of folders, and what a loss of power leaves of it.

See docs/contribute/fault-model.md: what a process wrote into a mapped page outlives the process. It outlives
the machine if it was flushed; of the rest some sectors are there and some are not. Of the commit log, those are there
that were written first: otherwise a node may refuse to start, as only an operator can tell what made the damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from tests.broker.fakes import Crash, MemoryDirectory

__all__ = ["FLUSHES_MAX", "Disk", "Tree"]

SECTOR_BYTES = 512
LOG_FOLDER = "commitlog"
FLUSHES_MAX = 1 << 40


@dataclass
class _Shared:
    """The state of the disk itself: its room, and how many flushes the machine lives through."""

    free: int = 1 << 40
    flushes_left: int = FLUSHES_MAX


@dataclass
class Tree(MemoryDirectory):
    """A folder with folders in it; see `broker.rocketmq.store.ports.Folder`.

    The folders `made` and `gone` since the last flush may be missing, or there again, after a loss of power.
    """

    shared: _Shared = field(default_factory=_Shared)
    inside: dict[str, Tree] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)
    gone: dict[str, Tree] = field(default_factory=dict)

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """Yield the path and the bytes of every file in the tree, by name."""
        for name, content in sorted(self.files.items()):
            yield name, bytes(content.data)
        for name, folder in sorted(self.inside.items()):
            for path, data in folder.contents():
                yield f"{name}/{path}", data

    def path_of(self, name: str) -> str:
        return f"{self.path}/{name}"

    def folders(self) -> list[str]:
        return sorted(self.inside)

    def folder(self, name: str) -> Tree:
        if name not in self.inside:
            self.inside[name] = Tree(chunk=self.chunk, shared=self.shared)
            self.made.append(name)
        return self.inside[name]

    def remove_folder(self, name: str) -> None:
        removed = self.inside.pop(name, None)
        if removed is None:
            raise FileNotFoundError(name)
        if name in self.made:
            self.made.remove(name)
        else:
            self.gone[name] = removed

    def take(self, size: int) -> bool:
        if size > max(0, self.shared.free):
            return False
        self.shared.free -= size
        return True

    def wait_for(self, name: str) -> None:
        if not self.shared.flushes_left:
            raise Crash
        self.shared.flushes_left -= 1

    def flush(self) -> None:
        super().flush()
        self.made.clear()
        self.gone.clear()

    def left(self, shared: _Shared) -> Tree:
        """The folder as the next process finds it: all that was written, nothing open."""
        found = super().after_crash()
        return Tree(
            chunk=self.chunk,
            files=found.files,
            platter=found.platter,
            unflushed=found.unflushed,
            shared=shared,
            inside={name: tree.left(shared) for name, tree in self.inside.items()},
            made=list(self.made),
            gone={name: tree.left(shared) for name, tree in self.gone.items()},
        )

    def lose_entries(self, random: Random) -> None:
        """Undo the latest of what was done to the folders and not flushed."""
        self.undo(random.randint(0, len(self.unflushed)))
        for name in self.made:
            if random.random() < 0.5:
                self.inside.pop(name, None)
        for name, tree in self.gone.items():
            if name not in self.inside and random.random() < 0.5:
                self.inside[name] = tree
        self.made.clear()
        self.gone.clear()
        for tree in self.inside.values():
            tree.lose_entries(random)

    def dirty(self, *, is_log: bool = False) -> Iterator[tuple[bytearray, int, bytes, bool]]:
        """All sectors that are not on the platter as they were written: the file's bytes, where, what is there
        instead, and whether they are the log's. Those of the log come in the order in which they were written.
        """
        for name, content in sorted(self.files.items()):
            new = bytes(content.data)
            old = self.platter.get(name, b"")[: len(new)].ljust(len(new), b"\0")
            if old != new:
                for at in range(0, len(new), SECTOR_BYTES):
                    if new[at : at + SECTOR_BYTES] != old[at : at + SECTOR_BYTES]:
                        yield content.data, at, old[at : at + SECTOR_BYTES], is_log
        for name, tree in self.inside.items():
            yield from tree.dirty(is_log=name == LOG_FOLDER)

    def settle(self) -> None:
        """Count all that is there as being on the platter."""
        self.unflushed.clear()
        self.made.clear()
        self.gone.clear()
        self.platter = {name: bytes(content.data) for name, content in self.files.items()}
        for tree in self.inside.values():
            tree.settle()


class Disk:
    """The store's folder, and the small files beside it, each of which is replaced in one step."""

    def __init__(self, random: Random, chunk: int) -> None:
        self._random = random
        self.root = Tree(chunk=chunk)
        self.files: dict[str, bytes] = {}

    @property
    def shared(self) -> _Shared:
        return self.root.shared

    def process_died(self) -> None:
        """All that was written is there, nothing is open."""
        self.root = self.root.left(_Shared(self.shared.free))

    def power_lost(self) -> None:
        """Lose some of what was not flushed, and keep the rest."""
        self.process_died()
        self.root.lose_entries(self._random)
        dirty = list(self.root.dirty())
        log = [each for each in dirty if each[3]]
        for data, at, old, _ in log[self._random.randint(0, len(log)) :]:
            data[at : at + len(old)] = old
        for data, at, old, is_log in dirty:
            if not is_log and self._random.random() < 0.5:
                data[at : at + len(old)] = old
        self.root.settle()
