"""A replica's index of its messages, and the counts of each queue."""

from __future__ import annotations

import random

import pytest

from broker.bmq.replication.copying import places as places_module
from broker.bmq.replication.copying.places import MessagePlaces
from broker.bmq.store import chunked
from formats.bmq.disk.data import DATA_HEADER
from tests.broker.bmq.replication.partition_bus import KEY, Bus
from tests.broker.bmq.rig import guid
from tests.broker.bmq.store.writing import Partition

QUEUES = (b"first", b"other")


def posted(*sizes: int) -> tuple[Partition, dict[int, int]]:
    """Files with messages of given sizes, and their offsets in DATA."""
    files, offsets = Partition().create(), {}
    for number, size in enumerate(sizes):
        offsets[number] = files.files.data_end
        files.post(number, payload=b"x" * size)
    return files, offsets


@pytest.mark.parametrize("seed", range(10))
def test_counts_follow_what_is_added_moved_and_taken(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts hold even for messages that are too large for their size to be kept."""
    monkeypatch.setattr(chunked, "FULL", 20)
    chance = random.Random(seed)
    sizes = [chance.randrange(1, 400) for _ in range(120)]
    monkeypatch.setattr(places_module, "SIZE_KNOWN_MAX", 200)
    partition, offsets = posted(*sizes)
    places = MessagePlaces(partition.files)
    there: dict[tuple[bytes, bytes], int] = {}
    left = list(range(120))
    while left:
        key = chance.choice(QUEUES)
        some, left = left[:10], left[10:]
        for number in some:
            places.add(key, guid(number), offsets[number], 2, sizes[number])
        there |= {(key, guid(number)): number for number in some}
        for gone in chance.sample(sorted(there), min(len(there), 4)):
            del there[gone]
            places.take(*gone)
            places.take(*gone)
        for key in QUEUES:
            numbers = [number for (each, _), number in there.items() if each == key]
            wanted = len(numbers), sum(sizes[number] for number in numbers)
            assert places.stored().get(key, (0, 0)) == wanted
    for (key, each), number in there.items():
        assert places.find(key, each) == (partition.files, offsets[number], 2)


def test_a_message_that_is_named_twice_counts_once() -> None:
    partition, offsets = posted(100, 200)
    places = MessagePlaces(partition.files)
    for number, size in ((0, 100), (1, 200)):
        places.add(KEY, guid(7), offsets[number], 0, size)
    assert places.stored() == {KEY: (1, 200)}
    places.take(KEY, guid(7))
    assert places.stored() == {KEY: (0, 0)}


def test_a_message_is_found_where_it_was_moved_to_unless_it_has_come_again() -> None:
    old, offsets = posted(100, 200, 300)
    new, moved_to = posted(50, 100, 200)
    places = MessagePlaces(old.files)
    for number, size in ((0, 100), (1, 200)):
        places.add(KEY, guid(number), offsets[number], 3, size)
    places.go_on_in(new.files)
    places.take(KEY, guid(1))
    places.add(KEY, guid(1), moved_to[0], 1, 50)
    before = places.before(places.current)
    for number in (0, 1):
        places.move(KEY + guid(number), (before, offsets[number]), (places.current, moved_to[number + 1]))
    places.let_go(before)
    assert places.find(KEY, guid(0)) == (new.files, moved_to[1], 3)
    assert places.find(KEY, guid(1)) == (new.files, moved_to[0], 1)
    assert places.stored() == {KEY: (2, 150)}


def test_files_are_told_apart_however_often_they_change() -> None:
    partition, offsets = posted(10)
    places = MessagePlaces(partition.files)
    for _ in range(10):
        places.go_on_in(partition.files)
        places.let_go(places.before(places.current))
        places.go_on_in(partition.files)
        places.go_back()
    places.add(KEY, guid(1), offsets[0], 0, 10)
    assert places.find(KEY, guid(1)) == (partition.files, offsets[0], 0)


def test_a_damaged_head_of_a_large_message_does_not_stop_its_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places_module, "SIZE_KNOWN_MAX", 50)
    for byte in range(DATA_HEADER.size):
        partition, offsets = posted(100)
        places = MessagePlaces(partition.files)
        places.add(KEY, guid(0), offsets[0], 0, 100)
        partition.files.data.buffer[offsets[0] + byte] ^= 0xFF
        places.take(KEY, guid(0))
        assert places.find(KEY, guid(0)) is None


def test_how_much_a_replica_has_is_told_without_a_look_at_its_messages() -> None:
    bus = Bus()
    bus.assign(0)
    bus.settle()
    bus.nodes[0].post(*range(100))
    bus.nodes[0].remove(*range(0, 100, 3))
    bus.settle()
    replica = bus.nodes[1]
    stored = replica.partition.copy.index.places.stored()
    assert stored == {KEY: (66, sum(message.size for message in bus.nodes[0].store.values()))}
    files = replica.stored.files
    files.data.buffer[: files.data_end] = bytes(files.data_end)
    assert replica.partition.copy.index.places.stored() == stored
