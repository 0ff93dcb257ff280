"""The commit log after a loss of power that has taken pages of it, and left later ones."""

from __future__ import annotations

import logging

import pytest

from broker.rocketmq.store.errors import StoreFileDamaged
from broker.rocketmq.store.files.flush_mark import MARK_NAME
from broker.rocketmq.store.message_store import MessageStore
from broker.rocketmq.store.writing import Writer
from tests.broker.rocketmq.folders import MemoryFolder
from tests.broker.rocketmq.store.message_store_rig import bodies, copy_zero_ended, make_message, open_small

NAME = "00000000000000000000"


class Rig:
    """A store with messages 0 and 1, which are on the disk, and 2 to 4, of which the disk may have anything."""

    def __init__(self) -> None:
        self.root = MemoryFolder()
        self.store = open_small(self.root)
        self.places = [self.put(number) for number in range(2)]
        self.store.flush()
        # The file that reports this has to get there as well.
        self.store.flush()
        self.places += [self.put(number) for number in range(2, 5)]

    def put(self, number: int) -> tuple[int, int]:
        stored = Writer(self.store).put(make_message(number, size=100), 1_000_000 + 10_000 * number)
        return stored.offset, stored.size

    def crashed(self, *, without: int) -> MemoryFolder:
        """The folder as the next process finds it, with the zeros of a page that was never written for a message."""
        found = self.root.after_crash()
        at, size = self.places[without]
        found.folder("commitlog").files[NAME].data[at : at + size] = bytes(size)
        return found


def put_again(store: MessageStore, number: int) -> tuple[int, int]:
    stored = Writer(store).put(make_message(number, size=100), 2_000_000)
    return stored.offset, stored.size


@pytest.mark.parametrize("has_mark", [True, False])
def test_hole_behind_the_last_flush_is_the_end_of_the_log(has_mark: bool, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    crashed = rig.crashed(without=2)
    if not has_mark:
        del crashed.files[MARK_NAME]
    with caplog.at_level(logging.WARNING):
        again = open_small(crashed)
    assert bodies(again) == [0, 1]
    (at, _), (behind, _) = rig.places[2:4]
    assert f"the log ends at {at}: nothing is written here; a sound record at {behind}" in caplog.text
    put_again(again, 5)
    assert bodies(again) == bodies(open_small(crashed.after_crash())) == [0, 1, 5]


def test_hole_before_what_was_flushed_is_refused() -> None:
    crashed = Rig().crashed(without=0)
    # Otherwise nothing before the mark is looked at.
    crashed.folder("consumequeue").inside.clear()
    crashed.folder("index").files.clear()
    with pytest.raises(
        StoreFileDamaged, match=f"{NAME} at offset 0: nothing is written here, but .* bring the file back"
    ):
        open_small(crashed)


def test_hole_before_a_message_that_is_older_than_the_checkpoint_is_refused() -> None:
    rig = Rig()
    rig.store.flush()
    crashed = rig.crashed(without=1)
    del crashed.files[MARK_NAME]
    with pytest.raises(StoreFileDamaged, match=f"but a sound record is at {rig.places[2][0]};"):
        open_small(crashed)


def test_message_that_was_flushed_last_is_missed() -> None:
    rig = Rig()
    for at, size in rig.places[2:]:
        file, place = rig.store.log.files.place(at)
        file.buffer[place : place + size] = bytes(size)
    with pytest.raises(StoreFileDamaged, match=f"but everything before {rig.places[2][0]} had been flushed"):
        open_small(rig.crashed(without=1))


def test_messages_cut_off_do_not_come_back_after_the_next_one() -> None:
    rig = Rig()
    crashed = rig.crashed(without=2)
    # All of it is on the disk as it was found.
    crashed.settle()
    again = open_small(crashed)
    at, size = put_again(again, 6)
    assert (at, size) == rig.places[2]
    file, place = again.log.files.place(at)
    written = bytes(file.buffer[place : place + size])
    # Of what was written since, power leaves the new message only, which is as long as that in the hole was.
    dark = crashed.without_power()
    dark.folder("commitlog").files[NAME].data[at : at + size] = written
    assert bodies(open_small(dark)) == [0, 1, 6]


def test_zeros_of_the_original_that_were_flushed_are_whole() -> None:
    root = MemoryFolder()
    store = open_small(root)
    copy_zero_ended(store)
    store.flush()
    assert bodies(open_small(root.after_crash())) == [2]
