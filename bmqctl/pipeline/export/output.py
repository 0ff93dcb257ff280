"""The output of an export: a directory, local or on a file system that pyarrow knows (s3, gs, abfs, hdfs).

Names are relative to the directory, with slashes. Files below `KEPT` are hidden from Spark and other readers of tables:
the manifest, and unfinished files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

__all__ = ["KEPT", "Output", "OutputBusy", "OutputError", "open_output"]

KEPT = "_bmqctl"
_LOCK = f"{KEPT}/lock"
_CHUNK = 1 << 20


class OutputError(Exception):
    """An unusable output; the message is one line."""


class OutputBusy(OutputError):
    """Error that another export is writing there."""


class Output(NamedTuple):
    """A directory of a file system; picklable, so that executors write to it too."""

    uri: str
    files: fs.FileSystem
    root: str

    @property
    def is_local(self) -> bool:
        return isinstance(self.files, fs.LocalFileSystem)

    def path(self, name: str) -> str:
        """The path for `files`. Raises OutputError for a name that leads out of the directory."""
        return f"{self.root}/{self._inside(name)}"

    def url(self, name: str) -> str:
        """The URL for Spark. Raises OutputError for a name that leads out of the directory."""
        return f"{self.uri}/{self._inside(name)}"

    def _inside(self, name: str) -> str:
        if name.startswith("/") or ".." in name.split("/"):
            raise OutputError(f"{self.uri}: {name[:200]!r}, which a file in it names, is not in this directory")
        return name

    def read(self, name: str) -> bytes | None:
        """Read a whole small file; None if it does not exist."""
        try:
            with self.files.open_input_stream(self.path(name)) as stream:
                content: bytes = stream.read()
                return content
        except FileNotFoundError:
            return None

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield a file's bytes in pieces. Raises FileNotFoundError if it does not exist."""
        with self.files.open_input_stream(self.path(name)) as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk

    def write(self, name: str, content: bytes) -> None:
        """Write a small file atomically, replacing an earlier one."""
        if not self.is_local:  # object stores show an object when it is complete
            with self.files.open_output_stream(self.path(name)) as stream:
                stream.write(content)
            return
        path = Path(self.path(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.new")
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)

    def move(self, source: str, target: str) -> None:
        """Move a file, replacing `target`; do nothing if `source`, moved before, does not exist."""
        if self.files.get_file_info(self.path(source)).type == fs.FileType.NotFound:
            return
        if self.is_local:
            self.files.create_dir(self.path(target).rpartition("/")[0], recursive=True)
        self.files.move(self.path(source), self.path(target))

    def delete(self, name: str) -> None:
        try:
            self.files.delete_file(self.path(name))
        except FileNotFoundError:
            return

    def delete_tree(self, name: str) -> None:
        try:
            self.files.delete_dir(self.path(name))
        except FileNotFoundError:
            return

    def delete_empty(self, names: Iterable[str]) -> None:
        """Delete the empty directories among `names`, on file systems that have directories."""
        if self.is_local:
            for name in sorted(names, key=len, reverse=True):
                path = Path(self.path(name))
                if path.is_dir() and not any(path.iterdir()):
                    path.rmdir()

    def sizes(self, under: str) -> dict[str, int]:
        """Sizes in bytes of all files below a directory, by name; empty if it does not exist."""
        selector = fs.FileSelector(self.path(under), recursive=True, allow_not_found=True)
        start = len(self.root) + 1
        infos = self.files.get_file_info(selector)
        return {info.path[start:]: info.size for info in infos if info.type == fs.FileType.File}

    def directories(self, under: str) -> list[str]:
        selector = fs.FileSelector(self.path(under), allow_not_found=True)
        start = len(self.root) + 1
        infos = self.files.get_file_info(selector)
        return [info.path[start:] for info in infos if info.type == fs.FileType.Directory]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other exports of this machine. Raises OutputBusy if one is writing."""
        if not self.is_local:
            yield
            return
        path = Path(self.path(_LOCK))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as lock:
            try:
                flock(lock, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                raise OutputBusy(f"{self.uri}: another export is writing there") from None
            yield


def open_output(where: str) -> Output:
    """Open the output at a path or URI. Raises OutputError if pyarrow lacks its file system, or cannot reach it."""
    if "://" not in where:
        path = str(Path(where).absolute())
        return Output(path, fs.LocalFileSystem(), path)
    try:
        files, root = fs.FileSystem.from_uri(where)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError) as fault:
        raise OutputError(f"{where}: {str(fault).partition(chr(10))[0]}") from None
    uri = where.rstrip("/")
    return Output(root if isinstance(files, fs.LocalFileSystem) else uri, files, root.rstrip("/"))
