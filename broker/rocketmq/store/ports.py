"""Folders as the store of RocketMQ sees them: a tree, unlike the one folder of a BlazingMQ store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from broker.common.files import Directory

__all__ = ["Folder"]


class Folder(Directory, Protocol):
    """A folder with folders in it."""

    def path_of(self, name: str) -> str:
        """The path of a file in it."""
        ...

    def folders(self) -> Iterable[str]:
        """The names of the folders in it."""
        ...

    def folder(self, name: str) -> Folder:
        """The folder of that name in it; made when it is missing."""
        ...

    def remove_folder(self, name: str) -> None:
        """Delete a folder in it, with all that it has. Raises `FileNotFoundError` if it is not there."""
        ...
