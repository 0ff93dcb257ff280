"""Tables whose files are written beside the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from broker.common.kept import Keeper, KeptTable

EIO = OSError(5, "Input/output error")


class Beside:
    """Work that ends when the test says so."""

    def __init__(self) -> None:
        self.works: list[tuple[Callable[[], None], Callable[[Exception | None], None]]] = []

    def begin(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        assert not self.works, "one at a time"
        self.works.append((work, done))

    def wait(self, timeout_s: float) -> bool:
        if not self.works:
            return False
        self.finish()
        return True

    def finish(self, error: Exception | None = None) -> None:
        ((work, done),) = self.works
        self.works.clear()
        if error is None:
            work()
        done(error)


def compose(texts: Iterable[str], version: int) -> bytes:
    return f"{version}:{','.join(texts)}".encode()


class World:
    def __init__(self) -> None:
        self.beside = Beside()
        self.keeper = Keeper(self.beside)
        self.written: list[bytes] = []
        self.error: OSError | None = None
        self.encoded: list[str] = []
        self.answers: dict[str, OSError | None] = {}
        self.table = self.make({"a": 1})
        self.keeper.adopt(self.table.file)

    def make(self, table: dict[str, int]) -> KeptTable[str, int, str, int]:
        return KeptTable(self._keep, table, 0, self._encode, compose, weigh=lambda key, value: value)

    def _encode(self, key: str, value: int) -> str:
        self.encoded.append(key)
        return f"{key}{value}"

    def _keep(self, data: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.written.append(data)

    def change(self, name: str, changes: dict[str, int | None]) -> None:
        """Carry out a request of that name."""
        self.table.change(changes, self.table.next_version + 1)
        self.answer(name)

    def answer(self, name: str) -> None:
        touched = self.keeper.take_touched()
        if touched:
            self.keeper.when_stored(touched, lambda error: self.answers.update({name: error}))
        else:
            self.answers[name] = None


def test_changes_of_a_step_are_one_write_and_those_during_it_are_the_next() -> None:
    world = World()
    world.change("one", {"b": 2})
    world.change("two", {"c": 3, "a": None})
    assert world.table.table == {"b": 2, "c": 3}
    assert (world.written, world.table.version, world.answers) == ([], 0, {})
    world.keeper.end_step()
    world.change("three", {"d": 4})
    world.keeper.end_step()
    world.beside.finish()
    assert (world.written, world.table.version) == ([b"2:b2,c3"], 2)
    assert world.answers == {"one": None, "two": None}
    world.keeper.end_step()
    world.beside.finish()
    assert world.written[1:] == [b"3:b2,c3,d4"]
    assert world.answers == {"one": None, "two": None, "three": None}
    # Each entry was encoded once, and nothing is written without a change.
    assert world.encoded == ["a", "b", "c", "d"]
    world.keeper.end_step()
    assert not world.beside.works
    assert world.table.weight == 9


def test_caller_that_relies_on_a_change_waits_for_it() -> None:
    world = World()
    world.change("one", {"b": 2})
    world.table.rely_on("b")
    world.answer("two")
    world.table.rely_on("a")
    world.answer("three")
    assert world.answers == {"three": None}
    world.keeper.end_step()
    world.beside.finish()
    world.keeper.end_step()
    while world.beside.works:
        world.beside.finish()
        world.keeper.end_step()
    assert world.answers == {"one": None, "two": None, "three": None}
    world.table.rely_on("b")
    world.answer("four")
    assert world.answers["four"] is None


def test_a_request_for_what_is_there_already_waits_until_it_is_on_the_disk() -> None:
    world = World()
    world.change("makes it", {"b": 2})
    world.keeper.end_step()
    world.table.put({"b": 2}, 2)
    world.answer("makes it again")
    world.table.put({"a": 1}, 2)
    world.answer("needs nothing")
    assert world.answers == {"needs nothing": None}
    world.beside.finish()
    world.keeper.end_step()
    world.beside.finish()
    assert world.answers.keys() == {"needs nothing", "makes it", "makes it again"}
    assert world.table.version == 1


def test_a_write_that_fails_undoes_what_came_after_it_too(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    edition = world.table.edition
    world.error = EIO
    world.change("one", {"b": 2, "a": 7})
    world.keeper.end_step()
    world.change("two", {"b": 3, "c": 4})
    world.beside.finish()
    assert world.answers == {"one": EIO, "two": EIO}
    assert (world.table.table, world.table.next_version, world.table.weight) == ({"a": 1}, 0, 1)
    assert world.table.edition is not edition
    world.change("three", {"b": 5})
    world.keeper.end_step()
    world.beside.finish()
    assert world.answers["three"] is EIO
    assert caplog.text.count("cannot be stored") == 1
    world.error = None
    world.change("four", {"b": 6})
    world.keeper.end_step()
    world.beside.finish()
    assert world.answers["four"] is None
    assert world.written == [b"1:a1,b6"]


def test_an_unknown_error_of_the_thread_is_a_write_that_failed() -> None:
    world = World()
    world.change("one", {"b": 2})
    world.keeper.end_step()
    world.beside.finish(RuntimeError("no thread"))
    assert isinstance(world.answers["one"], OSError)
    assert world.table.table == {"a": 1}


def test_an_answer_about_two_tables_waits_for_both() -> None:
    world = World()
    other = world.make({})
    world.keeper.adopt(other.file)
    other.change({"x": 1}, 1)
    world.change("both", {"b": 2})
    world.keeper.end_step()
    world.beside.finish()
    assert world.answers == {"both": None}
    assert world.written == [b"1:x1", b"1:a1,b2"]


def test_everything_is_written_in_the_end() -> None:
    world = World()
    world.change("one", {"b": 2})
    world.keeper.end_step()
    world.change("two", {"c": 3})
    world.keeper.finish()
    assert world.written == [b"1:a1,b2", b"2:a1,b2,c3"]
    assert world.answers == {"one": None, "two": None}
    world.table.change({"d": 4}, 3)
    world.table.file.store_now()
    assert world.written[-1] == b"3:a1,b2,c3,d4"
    world.error = EIO
    world.table.change({"e": 5}, 4)
    with pytest.raises(OSError, match="Input/output"):
        world.table.file.store_now()


def test_a_disk_that_is_silent_at_the_end_is_no_success() -> None:
    world = World()
    world.change("one", {"b": 2})
    world.keeper.end_step()
    world.beside.works.clear()
    with pytest.raises(OSError, match="does not complete"):
        world.keeper.finish()


def test_a_table_without_a_keeper_is_written_at_once() -> None:
    world = World()
    table = world.make({})
    table.change({"x": 1}, 1)
    assert (world.written, table.version) == ([b"1:x1"], 1)
    world.error = EIO
    with pytest.raises(OSError, match="Input/output"):
        table.change({"x": None, "y": 2}, 2)
    assert (table.table, table.version) == ({"x": 1}, 1)
