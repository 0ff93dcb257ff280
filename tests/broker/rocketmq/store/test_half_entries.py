"""Queues and index after a loss of power that left half of an entry: sectors do not end where entries do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.rocketmq.store.writing import Writer
from tests.broker.rocketmq.folders import MemoryFolder
from tests.broker.rocketmq.store.message_store_rig import make_message, open_small

# The sizes of sectors and of entries are multiples of it.
STEP = 4
INDEX, QUEUE = "index", "consumequeue/topic/0"


class Rig:
    """A store with `flushed` messages on the disk, and `late` ones of which only the log is certain to be there."""

    def __init__(self, flushed: int, late: int, expired: int = 0) -> None:
        self.root = MemoryFolder()
        self.store = open_small(self.root)
        self.offsets: list[int] = []
        self.put(flushed)
        self.first = next(number for number, offset in enumerate(self.offsets) if offset >= expired)
        self.store.expire(expired)
        self.store.flush()
        self._old = self.root.after_crash().contents()
        self.put(late)

    def put(self, count: int) -> None:
        for number in range(len(self.offsets), len(self.offsets) + count):
            self.offsets.append(Writer(self.store).put(make_message(number), 1_000_000 + number).offset)

    def crashed(self, path: str, *, is_front: bool) -> Iterator[MemoryFolder]:
        """Yield the folder with late bytes of its files up to each place only, or only from there on."""
        for each, new in self.root.contents().items():
            folder, _, name = each.rpartition("/")
            old = self._old.get(each, bytes(len(new)))
            if folder != path or old == new:
                continue
            for at in range(0, len(new), STEP):
                crashed = found = self.root.after_crash()
                for part in path.split("/"):
                    found = found.folder(part)
                found.files[name].data[:] = new[:at] + old[at:] if is_front else old[:at] + new[at:]
                yield crashed

    def check(self, crashed: MemoryFolder) -> None:
        """Check that the next process has every message in the queue, and in the index by each of its keys."""
        again = open_small(crashed)
        assert again.span("topic", 0) == (self.first, len(self.offsets))
        found = [entry.physical_offset for entry in again.get("topic", 0, self.first, len(self.offsets))]
        assert found == self.offsets[self.first :]
        for number, offset in enumerate(self.offsets[self.first :], self.first):
            assert again.index.find("topic", f"id{number}", 0, 1 << 40, 9) == [offset]
            assert offset in again.index.find("topic", f"key{number % 3}", 0, 1 << 40, 99)


@pytest.mark.parametrize("is_front", [True, False])
@pytest.mark.parametrize("path", [INDEX, QUEUE])
@pytest.mark.parametrize("flushed", [1, 4, 6])
def test_half_an_entry_is_none(path: str, flushed: int, is_front: bool) -> None:
    rig = Rig(flushed, late=4)
    for crashed in rig.crashed(path, is_front=is_front):
        rig.check(crashed)


@pytest.mark.parametrize("is_front", [True, False])
@pytest.mark.parametrize("path", [INDEX, QUEUE])
def test_half_an_entry_is_none_when_the_begin_of_the_log_is_gone(path: str, is_front: bool) -> None:
    rig = Rig(12, late=4, expired=1024)
    assert rig.first
    for crashed in rig.crashed(path, is_front=is_front):
        rig.check(crashed)


def test_all_other_messages_in_the_index_may_have_expired() -> None:
    root = MemoryFolder()
    store = open_small(root)
    for number in range(14):
        has_keys = number in (0, 13)
        message = make_message(number) if has_keys else make_message(number, properties=b"")
        offset = Writer(store).put(message, 1_000_000 + number).offset
    assert store.expire(1024) == 1
    store.flush()
    again = open_small(root.after_crash())
    assert again.span("topic", 0)[1] == 14
    assert again.index.find("topic", "id13", 0, 1 << 40, 9) == [offset]
