"""Particularities of a folder on a real disk: its lock, its archive, its allocation."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import threading
from pathlib import Path

import pytest

from broker.shell.files.appended_file import AppendedFile
from broker.shell.files.config_files import ConfigFile
from broker.shell.files.folders import FileFolder
from broker.shell.files.mapped_files import (
    AHEAD_BYTES,
    CHUNK_BYTES,
    UNMAPPED_BYTES,
    DataDirectory,
    DirectoryInUse,
    MappedFile,
    make_folder,
)
from broker.shell.files.store_lock import StoreLock
from broker.shell.host.calls import HOST
from tests.waiting import WAIT_S

# The first chunk of a file.
CHUNK_BYTES_MIN = 4 << 10


def folder(tmp_path: Path, kept: int = 0) -> DataDirectory:
    return DataDirectory(tmp_path / "store", tmp_path / "archive", kept)


def test_one_node_at_a_time_holds_a_folder(tmp_path: Path) -> None:
    first = folder(tmp_path)
    with pytest.raises(DirectoryInUse, match=f"pid {os.getpid()}"):
        folder(tmp_path)
    first.close()
    folder(tmp_path).close()


def test_an_archive_of_none_drops_the_files(tmp_path: Path) -> None:
    directory = folder(tmp_path)
    directory.open("bmq_0.20261121_051104.bmq_data", 100).close()
    directory.archive("bmq_0.20261121_051104.bmq_data")
    assert not (tmp_path / "archive").exists()
    directory.close()


def test_the_disk_of_a_deleted_file_is_given_back_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = folder(tmp_path)
    name = "bmq_0.20261121_051104.bmq_data"
    closed: list[threading.Thread] = []
    close = os.close

    def note(descriptor: int) -> None:
        closed.append(threading.current_thread())
        close(descriptor)

    for away in (directory.archive, directory.remove):
        directory.open(name, 100).close()
        monkeypatch.setattr(os, "close", note)
        away(name)
        assert name not in directory.names()
        for thread in threading.enumerate():
            if thread.name == f"delete {name}":
                thread.join(WAIT_S)
        monkeypatch.undo()
    assert len(closed) == 2
    assert threading.main_thread() not in closed
    directory.close()


def test_without_a_descriptor_a_file_is_deleted_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    directory = folder(tmp_path)
    directory.open("bmq_0.20261121_051104.bmq_data", 100).close()
    monkeypatch.setattr(os, "open", fail)
    directory.archive("bmq_0.20261121_051104.bmq_data")
    monkeypatch.undo()
    assert "bmq_0.20261121_051104.bmq_data" not in directory.names()
    directory.close()


def test_the_archive_keeps_the_newest_sets_of_each_partition(tmp_path: Path) -> None:
    directory = folder(tmp_path, kept=2)
    names = [
        f"bmq_{pid}.20261121_05110{n}.bmq_{kind}" for pid in (0, 1) for n in range(4) for kind in ("data", "qlist")
    ]
    for name in names:
        directory.open(name, 100).close()
        directory.archive(name)
    left = sorted(path.name for path in (tmp_path / "archive").iterdir())
    assert left == [name for name in sorted(names) if name[20] in "23"]
    directory.close()


def test_files_are_archived_to_another_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rename(*args: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    directory = folder(tmp_path, kept=1)
    file = directory.open("bmq_0.20261121_051104.bmq_data", 100)
    file.reserve(4)
    file.buffer[:4] = b"data"
    file.close(4)
    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(Path, "rename", rename)
    directory.archive("bmq_0.20261121_051104.bmq_data")
    assert (tmp_path / "archive" / "bmq_0.20261121_051104.bmq_data").read_bytes() == b"data"
    assert "bmq_0.20261121_051104.bmq_data" not in directory.names()
    directory.close()


def test_disk_is_taken_chunk_by_chunk(tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = MappedFile(path, 3 * CHUNK_BYTES)
    assert path.stat().st_blocks * 512 < CHUNK_BYTES_MIN
    assert file.reserve(CHUNK_BYTES)
    assert file.granted == CHUNK_BYTES
    assert file.reserve(CHUNK_BYTES + 1)
    assert file.granted == CHUNK_BYTES + AHEAD_BYTES
    assert path.stat().st_blocks * 512 >= 2 * CHUNK_BYTES
    file.close()


def test_a_file_takes_little_more_disk_than_is_in_use(tmp_path: Path) -> None:
    # As long as the file of a consume queue.
    path, size = tmp_path / "queue", 6_000_000
    file = MappedFile(path, size)
    for end in (1, 20, 4_000, 30_000, 1_000_000, size):
        assert file.reserve(end)
        assert file.granted >= end
        # The chunks in use, the current chunk, and the next one.
        assert path.stat().st_blocks * 512 <= 4 * max(end, CHUNK_BYTES_MIN)
        assert path.stat().st_size == size
    file.close()
    assert path.read_bytes() == bytes(size)


def test_a_file_takes_its_longest_chunks_once_it_is_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(HOST, "allocate", lambda fd, start, size: sizes.append(size))
    file = MappedFile(tmp_path / "log", 16 * CHUNK_BYTES)
    for end in range(100, 16 * CHUNK_BYTES, 4_000):
        assert file.reserve(end)
    file.close()
    assert sum(sizes) == 16 * CHUNK_BYTES
    # The rest is doubled from the least chunk on.
    assert sizes.count(CHUNK_BYTES) == 15
    assert len(sizes) == 15 + CHUNK_BYTES.bit_length() - CHUNK_BYTES_MIN.bit_length() + 1


def test_new_files_are_for_this_account_only(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "new" / "store", tmp_path / "archives" / "old", 1)
    for name in ("bmq_0.20261121_051104.bmq_data", "bmq_0.20261121_051105.bmq_data"):
        directory.open(name, 100).close()
    directory.archive("bmq_0.20261121_051104.bmq_data")
    directory.set_aside("bmq_0.20261121_051105.bmq_data")
    directory.close()
    FileFolder(tmp_path / "tree").folder("t").folder("0").open("00000000000000000000", 100).close()
    StoreLock(tmp_path / "tree").release()
    config = ConfigFile(tmp_path / "tree" / "config" / "topics.json")
    for _ in range(2):
        config.write(b"{}")
    AppendedFile(tmp_path / "raft" / "journal").replace(b"")
    made = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert len(made) == 18
    assert {path: mode for path, mode in made.items() if mode != (0o700 if path.is_dir() else 0o600)} == {}


def test_folders_that_exist_keep_their_modes(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o750)
    folder(shared).close()
    assert stat.S_IMODE(shared.stat().st_mode) == 0o750


def descriptors_within(folder: Path) -> list[Path]:
    """Return this process's open files below a folder. Others may come and go, as the collector finds them."""
    targets = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            targets.append(entry.readlink())
    return [target for target in targets if target.is_relative_to(folder)]


def test_a_folder_that_cannot_be_mapped_leaves_no_descriptor(tmp_path: Path) -> None:
    with pytest.raises((OSError, ValueError)):
        MappedFile(tmp_path / "empty", 0)
    assert not descriptors_within(tmp_path)


def test_a_file_that_was_closed_meanwhile_needs_no_sync(tmp_path: Path) -> None:
    # A rollover may close what another thread is about to sync.
    file = MappedFile(tmp_path / "file", 100)
    file.close()
    file.flush()


def of_mapping(path: Path, what: str, holds: str = "") -> int:
    """The sum of what the kernel says of a mapped file's parts, in bytes: of those with a flag, if one is named."""
    total = found = 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split()
        if "-" in head[0] and not head[0].endswith(":"):
            found, is_its = 0, line.endswith(str(path))
        elif is_its and head[0] == f"{what}:":
            found = int(head[1]) << 10
        elif is_its and head[0] == "VmFlags:" and (not holds or holds in head):
            total += found
    return total


def advised_bytes(path: Path) -> int:
    """Return the size of a mapped file's part without read-ahead by the kernel."""
    return of_mapping(path, "Size", "rr")


@pytest.mark.skipif(HOST.name != "Linux", reason="only Linux is told what will be written")
def test_nothing_is_read_ahead_where_a_file_is_about_to_be_written(tmp_path: Path) -> None:
    path = tmp_path / "store"
    file = MappedFile(path, 4 * CHUNK_BYTES)
    assert advised_bytes(path) == 0
    assert file.reserve(1)
    assert advised_bytes(path) == 4 * CHUNK_BYTES
    file.close()
    # Files of an earlier process may have to be read.
    file = MappedFile(path, 4 * CHUNK_BYTES)
    assert file.reserve(3 * AHEAD_BYTES - 1)
    assert advised_bytes(path) == 4 * CHUNK_BYTES - 2 * AHEAD_BYTES + mmap.PAGESIZE
    file.close()


def test_a_mapping_is_advised_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each time the kernel divides it, and waits for as long as it writes the file's pages to the disk.
    advised: list[int] = []
    monkeypatch.setattr(HOST, "read_nothing_ahead", lambda mapped, start, size: advised.append(start))
    file = MappedFile(tmp_path / "store", 2 * CHUNK_BYTES)
    for end in range(1, 2 * CHUNK_BYTES, AHEAD_BYTES):
        assert file.reserve(end)
    assert advised == [0]
    file.close()


class Threads:
    """Notes in which thread each of some calls is made."""

    def __init__(self) -> None:
        self.of: dict[str, list[threading.Thread]] = {}

    def note(self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
        call = getattr(owner, name)

        def noted(*arguments: object, **options: object) -> object:
            self.of.setdefault(name, []).append(threading.current_thread())
            return call(*arguments, **options)

        monkeypatch.setattr(owner, name, noted)


@pytest.mark.parametrize("writes", [False, True])
def test_only_the_first_chunk_is_allocated_while_the_caller_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: bool
) -> None:
    threads = Threads()
    threads.note(monkeypatch, HOST, "allocate")
    file = MappedFile(tmp_path / "store", 4 * CHUNK_BYTES)
    step = AHEAD_BYTES // 2
    for start in range(0, 4 * CHUNK_BYTES, step):
        assert file.write(start, bytes(step)) if writes else file.reserve(start + step)
    assert file.granted == 4 * CHUNK_BYTES
    first, *others = threads.of["allocate"]
    assert first is threading.main_thread()
    assert len(others) >= 3
    assert threading.main_thread() not in others
    file.close()


def test_a_disk_that_is_full_ahead_is_an_answer_when_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocate = HOST.allocate

    def refuse_ahead(fd: int, start: int, size: int) -> None:
        if start >= CHUNK_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(fd, start, size)

    monkeypatch.setattr(HOST, "allocate", refuse_ahead)
    file = MappedFile(tmp_path / "store", 2 * CHUNK_BYTES)
    assert file.reserve(CHUNK_BYTES)
    assert file.reserve(CHUNK_BYTES)
    assert not file.reserve(CHUNK_BYTES + 1)
    monkeypatch.setattr(HOST, "allocate", allocate)
    assert file.reserve(CHUNK_BYTES + 1)
    file.close()


def test_files_are_put_away_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, threads, failures = folder(tmp_path), Threads(), list[Exception]()
    names = [f"bmq_0.20261121_05110{n}.bmq_data" for n in range(2)]
    files = [directory.open(name, UNMAPPED_BYTES + 100) for name in names]
    for file in files:
        assert file.reserve(10)
    threads.note(monkeypatch, os, "truncate")
    threads.note(monkeypatch, Path, "unlink")
    threads.note(monkeypatch, HOST, "unmap")
    directory.put_away([(file, 10) for file in files], failures.append)
    directory.close()
    assert not failures
    assert not set(names) & set(folder_names(tmp_path / "store"))
    assert {name: len(of) for name, of in threads.of.items()} == {"truncate": 2, "unlink": 2, "unmap": 4}
    assert threading.main_thread() not in {thread for of in threads.of.values() for thread in of}


def folder_names(path: Path) -> list[str]:
    return [entry.name for entry in path.iterdir()]


def test_files_that_cannot_be_put_away_are_told_of(tmp_path: Path) -> None:
    directory, failures = folder(tmp_path), list[Exception]()
    name = "bmq_0.20261121_051104.bmq_data"
    file = directory.open(name, 100)
    (tmp_path / "store" / name).unlink()
    directory.put_away([(file, 10)], failures.append)
    directory.close()
    assert [type(failure) for failure in failures] == [FileNotFoundError]


@pytest.mark.skipif(HOST.name != "Linux", reason="only Linux is told what will be written")
def test_reserved_part_of_a_file_is_mapped_at_once(tmp_path: Path) -> None:
    path = tmp_path / "store"
    file = MappedFile(path, 4 * CHUNK_BYTES)
    assert of_mapping(path, "Rss") == 0
    assert file.reserve(1)
    assert of_mapping(path, "Rss") == CHUNK_BYTES_MIN
    # Far ahead of it nothing is.
    assert file.reserve(2 * CHUNK_BYTES)
    assert of_mapping(path, "Rss") == CHUNK_BYTES_MIN + AHEAD_BYTES
    assert file.granted == 2 * CHUNK_BYTES
    file.close()


def test_folder_below_more_missing_ones_than_calls_can_be_nested(tmp_path: Path) -> None:
    folder = tmp_path / "/".join("a" * 1200)
    try:
        make_folder(folder)
        assert folder.is_dir()
    finally:
        # The function that removes the test's folder is nested, too.
        while folder != tmp_path:
            folder.rmdir()
            folder = folder.parent


def test_folder_in_a_removed_working_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError):
        make_folder(Path("data"))
