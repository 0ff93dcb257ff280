"""A tree of folders in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from broker.rocketmq.store.ports import Folder
from tests.broker.fakes import MemoryDirectory

__all__ = ["MemoryFolder"]


@dataclass
class MemoryFolder(MemoryDirectory):
    """A folder with folders in it; see `broker.rocketmq.store.ports.Folder`."""

    inside: dict[str, MemoryFolder] = field(default_factory=dict)

    def path_of(self, name: str) -> str:
        return f"{self.path}/{name}"

    def folders(self) -> list[str]:
        return sorted(self.inside)

    def folder(self, name: str) -> MemoryFolder:
        return self.inside.setdefault(name, MemoryFolder(self.free, self.chunk))

    def remove_folder(self, name: str) -> None:
        if self.inside.pop(name, None) is None:
            raise FileNotFoundError(name)

    def after_crash(self) -> MemoryFolder:
        found = super().after_crash()
        inside = {name: folder.after_crash() for name, folder in self.inside.items()}
        return MemoryFolder(
            found.free,
            found.chunk,
            files=found.files,
            platter=found.platter,
            unflushed=found.unflushed,
            inside=inside,
        )

    def settle(self) -> None:
        """Count all that is there as being on the disk."""
        self.unflushed.clear()
        self.platter = {name: bytes(content.data) for name, content in self.files.items()}
        for folder in self.inside.values():
            folder.settle()

    def without_power(self) -> MemoryFolder:
        """The folder as the next process finds it after a loss of power that left nothing but what was flushed."""
        found = self.after_crash()
        for folder in found._all():
            folder.undo(0)
            for name, content in folder.files.items():
                content.data[:] = folder.platter.get(name, b"").ljust(len(content.data), b"\0")
        return found

    def _all(self) -> Iterator[MemoryFolder]:
        yield self
        for folder in self.inside.values():
            yield from folder._all()

    def contents(self) -> dict[str, bytes]:
        """The bytes of every file in the tree, by its path."""
        found = {name: bytes(content.data) for name, content in self.files.items()}
        for name, folder in self.inside.items():
            found.update((f"{name}/{path}", data) for path, data in folder.contents().items())
        return found


def _keeps_to_the_port(folder: MemoryFolder) -> Folder:
    return folder
