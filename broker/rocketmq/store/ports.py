"""Folders as the store of RocketMQ sees them: a tree, unlike the one folder of a BlazingMQ store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from broker.common.files import Directory

__all__ = ["Folder"]


class Folder(Directory, Protocol):
    """A folder with folders in it."""

    def path_of(self, name: str) -> str:
        """Return the path of a file in it."""
        ...

    def folders(self) -> Iterable[str]:
        """Return the names of the folders in it."""
        ...

    def folder(self, name: str) -> Folder:
        """Return the folder of that name in it, created if missing."""
        ...

    def remove_folder(self, name: str) -> None:
        """Delete a folder in it with its content. Raises `FileNotFoundError` if it is not there."""
        ...
