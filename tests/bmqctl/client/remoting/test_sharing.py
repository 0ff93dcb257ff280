"""Queues of a topic that consumers of a group share."""

from __future__ import annotations

import pytest

from bmqctl.client.remoting.routes import Place, share_of


def places(count: int) -> list[Place]:
    return [Place("topic", "broker", number) for number in range(count)]


@pytest.mark.parametrize("consumers", range(1, 8))
@pytest.mark.parametrize("queues", range(9))
def test_each_queue_has_one_consumer(queues: int, consumers: int) -> None:
    ids = [f"client-{number}" for number in range(consumers)]
    shares = [share_of(each, reversed(ids), places(queues)[::-1]) for each in ids]
    assert [place for share in shares for place in share or ()] == places(queues)
    sizes = [len(share or ()) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_shares_are_those_of_apaches_clients() -> None:
    """The first consumers have one more, as with AllocateMessageQueueAveragely."""
    shares = [share_of(each, ["a", "b", "c"], places(8)) for each in "abc"]
    assert [[place.queue_id for place in share or ()] for share in shares] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    two = [Place("t", "x", 0), Place("t", "x", 1), Place("t", "w", 0)]
    assert share_of("a", ["b", "a"], two) == [Place("t", "w", 0), Place("t", "x", 0)]


def test_a_consumer_that_is_not_known_has_no_share() -> None:
    assert share_of("a", [], places(4)) is None
    assert share_of("a", ["b"], places(4)) is None
