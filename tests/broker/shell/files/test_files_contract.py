"""The store's assumptions about files, checked for the shell's files and for the fakes of these tests."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.common.files import Directory
from broker.shell.files.mapped_files import CHUNK_BYTES, DataDirectory
from broker.shell.host.calls import HOST
from tests.broker.fakes import MemoryDirectory
from tests.waiting import eventually

SIZE = 1 << 16

Fill = Callable[[int], None]


class Limited:
    """Stands in for `Host.allocate` on a disk with `free` bytes left."""

    def __init__(self) -> None:
        self.free = 1 << 40

    def __call__(self, fd: int, offset: int, size: int) -> None:
        if size > self.free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.free -= size


@pytest.fixture(params=["memory", "disk"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Directory, Fill]]:
    """A folder, and a function that limits the bytes of disk left."""
    if request.param == "memory":
        memory = MemoryDirectory()
        yield memory, lambda free: setattr(memory, "free", free)
        return
    disk = Limited()
    monkeypatch.setattr(HOST, "allocate", disk)
    directory = DataDirectory(tmp_path / "store", tmp_path / "archive", archived_file_sets_max=1)
    yield directory, lambda free: setattr(disk, "free", free)
    directory.close()


@pytest.fixture
def directory(place: tuple[Directory, Fill]) -> Directory:
    return place[0]


def test_behind_the_end_of_the_data_is_nothing(directory: Directory) -> None:
    file = directory.open("a", SIZE)
    assert file.data_end <= SIZE
    assert file.reserve(3 * SIZE // 4)
    file.buffer[SIZE // 2] = 1
    assert SIZE // 2 < file.data_end <= SIZE
    file.close()
    again = directory.open("a", SIZE)
    assert SIZE // 2 < again.data_end <= SIZE
    assert bytes(again.buffer[again.data_end :]).count(0) == SIZE - again.data_end
    again.close()


def test_a_new_file_is_zeros_of_the_size_asked_for(directory: Directory) -> None:
    file = directory.open("a", SIZE)
    assert bytes(file.buffer) == bytes(SIZE)
    assert file.name == "a"
    assert "a" in directory.names()
    file.close()


def test_written_data_is_read_back(directory: Directory) -> None:
    file = directory.open("a", SIZE)
    assert file.reserve(100)
    file.buffer[90:100] = b"0123456789"
    file.flush()
    file.close()
    again = directory.open("a", SIZE)
    assert bytes(again.buffer[90:100]) == b"0123456789"
    again.close()


@pytest.mark.parametrize(("asked", "found"), [(SIZE // 2, SIZE), (2 * SIZE, 2 * SIZE)])
def test_a_file_is_opened_as_long_as_it_is_or_longer(directory: Directory, asked: int, found: int) -> None:
    directory.open("a", SIZE).close()
    file = directory.open("a", asked)
    assert len(file.buffer) == found
    file.close()


def test_nothing_is_granted_before_it_is_reserved(directory: Directory) -> None:
    file = directory.open("a", SIZE)
    assert file.granted == 0
    assert file.reserve(100)
    granted = file.granted
    assert 100 <= granted <= SIZE
    assert file.reserve(50)
    assert file.granted == granted
    file.close()


def test_no_file_is_granted_more_than_its_size(directory: Directory) -> None:
    file = directory.open("a", SIZE)
    assert file.reserve(SIZE)
    assert file.granted == SIZE
    assert not file.reserve(SIZE + 1)
    assert file.granted == SIZE
    file.close()


def test_a_full_disk_is_an_answer(place: tuple[Directory, Fill]) -> None:
    directory, leave = place
    file = directory.open("a", 2 * CHUNK_BYTES)
    assert file.reserve(100)
    granted = file.granted
    assert granted < 2 * CHUNK_BYTES
    leave(0)
    # Allocated space is granted in parts.
    while file.reserve(granted + 1):
        granted = file.granted
    assert granted < 2 * CHUNK_BYTES
    assert file.granted == granted
    file.close()


def test_a_nearly_full_disk_gives_what_is_needed(place: tuple[Directory, Fill]) -> None:
    directory, leave = place
    file = directory.open("a", SIZE)
    leave(1000)
    assert file.reserve(1000)
    assert file.granted == 1000
    assert not file.reserve(1001)
    assert file.granted == 1000
    file.close()


def test_closing_cuts_the_file(directory: Directory) -> None:
    file = directory.open("a", SIZE)
    assert file.reserve(100)
    file.buffer[:100] = b"x" * 100
    file.close(60)
    again = directory.open("a", 0)
    assert bytes(again.buffer) == b"x" * 60
    again.close()
    longer = directory.open("a", 80)
    assert bytes(longer.buffer) == b"x" * 60 + bytes(20)
    longer.close()


def test_a_closed_file_cannot_be_read(directory: Directory) -> None:
    file = directory.open("a", SIZE)
    buffer = file.buffer
    file.close()
    with pytest.raises(ValueError, match="released"):
        buffer[0]


def test_a_file_is_not_closed_under_a_view(directory: Directory) -> None:
    view = directory.open("a", SIZE)
    held = view.buffer[10:20]
    with pytest.raises(BufferError):
        view.close()
    held.release()


def test_removed_and_archived_files_are_out_of_service(directory: Directory) -> None:
    for name in ("a", "b", "c"):
        directory.open(name, SIZE).close()
    directory.remove("a")
    directory.archive("b")
    assert {"a", "b", "c"} & set(directory.names()) == {"c"}
    file = directory.open("b", SIZE)
    assert bytes(file.buffer) == bytes(SIZE)
    file.close()


def test_files_that_are_put_away_are_out_of_service(directory: Directory) -> None:
    failures: list[Exception] = []
    files = [(directory.open(name, SIZE), size) for name, size in (("a", 10), ("b", 20))]
    directory.put_away(files, failures.append)
    eventually(lambda: not {"a", "b"} & set(directory.names()))
    assert not failures


def test_files_that_are_still_read_are_not_put_away(directory: Directory) -> None:
    failures: list[Exception] = []
    file = directory.open("a", SIZE)
    held = file.buffer[10:20]
    directory.put_away([(file, 10)], failures.append)
    assert isinstance(eventually(lambda: failures[0] if failures else None), BufferError)
    assert "a" in directory.names()
    held.release()


def test_flush_of_written_data_can_be_awaited(directory: Directory) -> None:
    file = directory.open("bmq_0.x.bmq_data", SIZE)
    assert file.reserve(8)
    file.buffer[:8] = b"anything"
    file.flush()
    directory.flush()
    file.close()
    assert "bmq_0.x.bmq_data" in directory.names()


def test_file_set_aside_leaves_the_folder_and_is_not_lost(place: tuple[Directory, Fill]) -> None:
    directory, _ = place
    paths = []
    for content in (b"first", b"second"):
        file = directory.open("a", len(content))
        assert file.reserve(len(content))
        file.buffer[:] = content
        file.close()
        paths.append(directory.set_aside("a"))
        assert "a" not in directory.names()
    if isinstance(directory, MemoryDirectory):
        assert [content for _, content in directory.damaged] == [b"first", b"second"]
    else:
        assert [Path(path).read_bytes() for path in paths] == [b"first", b"second"]
        assert [Path(path).name for path in paths] == ["a", "a.2"]


def test_long_data_is_written_beside_short(directory: Directory) -> None:
    file = directory.open("a", SIZE)
    assert file.reserve(10)
    file.buffer[:10] = b"0123456789"
    long = bytes(range(256)) * 100
    assert file.write(10, memoryview(long))
    assert file.granted >= 10 + len(long)
    assert file.reserve(20 + len(long))
    file.buffer[10 + len(long) : 20 + len(long)] = b"abcdefghij"
    assert bytes(file.buffer[: 20 + len(long)]) == b"0123456789" + long + b"abcdefghij"
    assert not file.write(SIZE - 1, b"ab")
    file.close()


def test_nothing_is_written_for_which_there_is_no_disk(place: tuple[Directory, Fill]) -> None:
    directory, fill = place
    file = directory.open("a", SIZE)
    fill(100)
    assert not file.write(0, bytes([1]) * 200)
    assert not any(file.buffer)
    assert file.write(0, bytes([1]) * 100)
    assert bytes(file.buffer[:101]) == bytes([1]) * 100 + b"\0"
    file.close()
