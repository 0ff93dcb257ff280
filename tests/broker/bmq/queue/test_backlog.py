"""`broker.bmq.queue.backlog` beside a dictionary, while its parts are packed and unpacked."""

from __future__ import annotations

import random
from collections import Counter
from itertools import chain

import pytest

from broker.bmq.core.messages import Message
from broker.bmq.core.packed import producers_to_pack
from broker.bmq.queue import backlog as backlogs
from broker.bmq.queue.backlog import Backlog, Part

SMALL = 8


def guid_of(number: int, producer: int = 0) -> bytes:
    return bytes(3) + number.to_bytes(7, "big") + producer.to_bytes(6, "big")


def message_of(number: int, producer: int = 0) -> Message:
    message = Message(guid_of(number, producer), number, 0, 0, False, 0, 1 + number % 3, number)
    message.offset = number
    return message


def pack_first(backlog: Backlog, before: int, count: int) -> Part | None:
    """Cut some of the newest messages off, and pack them."""
    messages = list(backlog.newest.values())
    if len(messages) < before + count:
        return None
    part = backlog.cut(None, messages[:before], messages[before : before + count])
    pack(backlog, part)
    return part


def pack(backlog: Backlog, part: Part) -> None:
    messages = list(part.entries.values())
    producers = producers_to_pack(messages)
    assert producers is not None
    backlog.pack(part, messages, producers)
    part.waits = 1


def check(ours: Backlog, theirs: dict[bytes, int], draw: random.Random) -> None:
    assert len(ours) == len(theirs)
    assert bool(ours) is bool(theirs)
    assert list(ours) == list(theirs)
    assert all(part.size for part in ours.older)
    assert sorted(map(id, ours.loose)) == sorted(id(part) for part in ours.older if not part.producers)
    unpacked = [part for part in ours.older if part.producers and part.packed is None]
    assert sorted(map(id, ours.unpacked)) == sorted(map(id, unpacked))
    for bits in (-1, 1, 2):
        wanted = [size for size in theirs.values() if (1 + size % 3) & bits]
        offset = draw.randrange(len(wanted) + 2)
        assert [each.size for each in ours.peek(bits, offset)] == wanted[offset:]
    assert ours.first_arrived_ms == next(iter(theirs.values()), None)
    parts = [part.producers for part in ours.older]
    assert {each: count for each, (_, count) in ours.producers.items()} == Counter(chain.from_iterable(parts))


@pytest.mark.interpreted
@pytest.mark.parametrize("seed", range(20))
def test_it_has_what_a_dictionary_has_in_the_same_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlogs, "FULL", SMALL)
    draw = random.Random(seed)
    ours = Backlog()
    theirs: dict[bytes, int] = {}
    number = 0
    for step in range(600):
        known = list(theirs)
        some = draw.choice(known) if known else guid_of(0)
        match draw.randrange(10 if step % 200 < 150 else 14):
            case 0 | 1 | 2 | 3 | 4:
                number += 1
                message = message_of(number, number % 2)
                ours.add(message.guid, message)
                theirs[message.guid] = number
            case 5:
                pack_first(ours, draw.randrange(3), draw.randrange(4, 6))
            case 6 if ours.unpacked:
                part = draw.choice(ours.unpacked)
                if draw.randrange(2):
                    pack(ours, part)
                else:
                    part.let_go()
            case 7:
                found = ours.get(some)
                assert (found is None) is (some not in theirs)
                assert found is None or found is ours[some]
            case 8:
                assert [each.size for each in ours.values()] == list(theirs.values())
                assert not [part for part in ours.older if part.packed is not None]
            case 9:
                absent = [guid_of(number + 1), guid_of(draw.randrange(number + 1), 2)]
                assert ours.none_of(absent)
                assert ours.none_of([*absent, some]) is (some not in theirs)
                assert (some in ours, absent[0] in ours) == (some in theirs, False)
            case 10 | 11 | 12 if known:
                del ours[some], theirs[some]
            case 13 if known:
                taken = ours.take_newest(draw.randrange(1, 4))
                assert taken == known[-len(taken) :][::-1] or sorted(taken) == sorted(known[-len(taken) :])
                for each in taken:
                    del theirs[each]
            case _:
                ours.turn()
        check(ours, theirs, draw)
    with pytest.raises(KeyError):
        del ours[guid_of(number + 1)]
    with pytest.raises(KeyError):
        ours[guid_of(number + 1)]


def test_everybody_gets_the_same_object_of_an_unpacked_message() -> None:
    backlog = Backlog()
    for number in range(8):
        backlog.add(guid_of(number), message_of(number))
    part = pack_first(backlog, 0, 8)
    assert part is not None
    assert (len(part.entries), backlog.unpacked) == (0, [])
    first = backlog[guid_of(3)]
    assert (len(part.entries), backlog.unpacked) == (8, [part])
    assert part.unpack()[guid_of(3)] is first
    assert next(each for each in backlog.values() if each.size == 3) is first


def test_a_post_is_looked_for_among_packed_messages_only_if_it_may_be_there() -> None:
    """A later one of its producer is in none of them, and neither is one of another producer."""
    backlog = Backlog()
    for number in range(8):
        backlog.add(guid_of(number), message_of(number))
    pack_first(backlog, 0, 8)
    assert backlog.producers == {bytes(6): (guid_of(7)[3:10], 1)}
    assert guid_of(8) not in backlog
    assert guid_of(3, 1) not in backlog
    assert guid_of(3) in backlog


def test_removing_all_lets_go_of_packed_messages_at_once() -> None:
    backlog = Backlog()
    for number in range(12):
        backlog.add(guid_of(number), message_of(number))
    pack_first(backlog, 1, 8)
    chunks = backlog.clear()
    assert [len(each) for each in chunks] == [1, 3]
    assert (len(backlog), backlog.producers, backlog.older) == (0, {}, [])
