"""A tree of folders in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.rocketmq.store.ports import Folder
from tests.broker.fakes import MemoryDirectory

__all__ = ["MemoryFolder"]


@dataclass
class MemoryFolder(MemoryDirectory):
    """A folder with folders in it; see `broker.rocketmq.store.ports.Folder`."""

    inside: dict[str, MemoryFolder] = field(default_factory=dict)

    def folders(self) -> list[str]:
        return sorted(self.inside)

    def folder(self, name: str) -> MemoryFolder:
        return self.inside.setdefault(name, MemoryFolder(self.free, self.chunk))

    def remove_folder(self, name: str) -> None:
        del self.inside[name]

    def after_crash(self) -> MemoryFolder:
        found = super().after_crash()
        inside = {name: folder.after_crash() for name, folder in self.inside.items()}
        return MemoryFolder(found.free, found.chunk, files=found.files, platter=found.platter, inside=inside)

    def contents(self) -> dict[str, bytes]:
        """The bytes of every file in the tree, by its path."""
        found = {name: bytes(content.data) for name, content in self.files.items()}
        for name, folder in self.inside.items():
            found.update((f"{name}/{path}", data) for path, data in folder.contents().items())
        return found


def _keeps_to_the_port(folder: MemoryFolder) -> Folder:
    return folder
