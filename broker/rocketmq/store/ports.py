"""Folders as a RocketMQ store sees them: a tree, unlike the one folder of a BlazingMQ store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from broker.common.files import Directory

__all__ = ["Folder"]


class Folder(Directory, Protocol):
    """A folder with folders in it."""

    def path_of(self, name: str) -> str: ...

    def folders(self) -> Iterable[str]: ...

    def folder(self, name: str) -> Folder:
        """Return the folder of that name in it, creating it if missing."""
        ...

    def remove_folder(self, name: str) -> None:
        """Delete a folder in it with its content. Raises `FileNotFoundError` if it is missing."""
        ...
