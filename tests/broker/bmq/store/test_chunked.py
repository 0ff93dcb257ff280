"""`broker.bmq.store.chunked` beside a dictionary, and how large each of its own gets."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from broker.bmq.store import chunked
from broker.bmq.store.chunked import FULL, Chunked

SMALL = 8


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "FULL", SMALL)


def key_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


def keys(*numbers: int) -> Iterator[bytes]:
    return map(key_of, numbers)


def filled(count: int) -> Chunked[int]:
    values: Chunked[int] = Chunked()
    for number in range(count):
        values.add(key_of(number), number)
    return values


@pytest.mark.parametrize("seed", range(20))
def test_it_has_what_a_dictionary_has_in_the_same_order(seed: int) -> None:
    draw = random.Random(seed)
    ours: Chunked[int] = Chunked()
    theirs: dict[bytes, int] = {}
    for step in range(2000):
        key = key_of(draw.randrange(60))
        match draw.randrange(8 if step % 200 < 150 else 12):
            case 0 | 1 | 2:
                ours[key] = theirs[key] = step
            case 3 if key not in theirs:
                ours.add(key, step)
                theirs[key] = step
            case 4 if theirs:
                assert ours.popitem() == theirs.popitem()
            case 5:
                moved = {key: step, key_of(draw.randrange(60)): step + 1}
                last = {each for chunk in ours.older for each in chunk}
                ours.put(moved.keys(), moved.values())
                for each, value in moved.items():
                    if each in last:
                        del theirs[each]
                    theirs[each] = value
            case 6 if key in theirs:
                del ours[key], theirs[key]
            case _:
                assert ours.take(key) == theirs.pop(key, None)
        assert list(ours.items()) == list(theirs.items())
        assert list(ours) == list(theirs)
        assert list(ours.values()) == list(theirs.values())
        assert (len(ours), bool(ours)) == (len(theirs), bool(theirs))
        assert ours.get(key) == theirs.get(key)
        assert ours.get(key, -1) == theirs.get(key, -1)
        assert (key in ours) == (key in theirs)
        assert all(ours.older)
    with pytest.raises(KeyError):
        ours[key_of(61)]
    with pytest.raises(KeyError):
        del ours[key_of(61)]
    ours.clear()
    assert not ours
    assert list(ours) == []


def test_no_dictionary_gets_larger_than_it_may() -> None:
    values = filled(1000)
    assert max(map(len, values.chunks)) <= SMALL
    assert len(values.chunks) == 1000 // SMALL + 1
    assert list(values.values()) == list(range(1000))


def test_a_chunk_that_is_empty_goes() -> None:
    values = filled(3 * SMALL)
    for key in keys(*range(SMALL)):
        assert values.take(key) is not None
    assert [len(each) for each in values.older] == [SMALL, SMALL]


def test_chunks_that_have_few_left_become_one() -> None:
    """A consumer that keeps one message of many for ever does not make all look-ups slow."""
    values: Chunked[int] = Chunked()
    for number in range(100 * SMALL):
        values.add(key_of(number), number)
        if number % SMALL == 0:
            continue
        # All but one of each chunk go once the next has begun.
        for key in keys(*range(max(0, number - SMALL), number - number % SMALL)):
            if int.from_bytes(key, "big") % SMALL:
                values.take(key)
    left = [number for number in values.values() if number < 99 * SMALL]
    assert left == [number * SMALL for number in range(99)]
    assert len(values.chunks) <= 4 * len(values) // SMALL + 1
    assert max(map(len, values.chunks)) <= SMALL


def test_a_key_is_put_in_one_chunk_only() -> None:
    """A message that is written once more, and then removed, is gone."""
    values = filled(3 * SMALL)
    values.put(list(keys(0, 100)), (7, 8))
    assert values.take(key_of(0)) == 7
    assert values.take(key_of(0)) is None


def test_a_full_one_grows_with_one_entry_more() -> None:
    """A smaller bound would be for nothing, a larger one would let a table grow once more."""
    values = dict.fromkeys(range(1))
    for number in range(FULL):
        values[number] = None
    size = values.__sizeof__()
    del values[FULL - 1]
    assert values.__sizeof__() == size
    values = dict.fromkeys(range(FULL + 1))
    assert values.__sizeof__() > size
