"""The queues of each member of a group, and the progress in a queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmqctl.client.address import BadAddress
from bmqctl.client.rocketmq.address import parse_nameservers
from bmqctl.client.rocketmq.assigning import Progress, share_of


# As the original's AllocateMessageQueueAveragely shares them.
@pytest.mark.parametrize(
    ("queues", "members", "shares"),
    [
        (4, 2, [[0, 1], [2, 3]]),
        (5, 2, [[0, 1, 2], [3, 4]]),
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (2, 3, [[0], [1], []]),
        (3, 3, [[0], [1], [2]]),
    ],
)
def test_members_share_queues_as_the_original_does(queues: int, members: int, shares: list[list[int]]) -> None:
    names = [f"client {number}" for number in range(members)]
    assert [share_of(name, names[::-1], range(queues)) for name in names] == shares


@given(st.integers(0, 50), st.sets(st.text(), min_size=1, max_size=20))
def test_each_queue_has_one_member(queues: int, members: set[str]) -> None:
    found = [queue for member in sorted(members) for queue in share_of(member, sorted(members), range(queues))]
    assert found == list(range(queues))


def test_a_stranger_gets_nothing() -> None:
    assert share_of("x", ["a", "b"], [1, 2]) == []


def test_an_offset_is_committed_when_all_before_it_is_settled() -> None:
    progress = Progress(7)
    assert progress.settled_offset == 7
    progress.took([7, 9, 10], 12)
    progress.settle(9)
    assert progress.settled_offset == 7
    progress.settle(7)
    assert progress.settled_offset == 10
    progress.settle(10)
    progress.settle(10)
    assert progress.settled_offset == progress.offset == 12


def test_nameservers_are_parsed() -> None:
    assert parse_nameservers("rocketmq://a:9876,b:9877/") == ["a:9876", "b:9877"]
    assert parse_nameservers("rocketmq://a:9876;b:9877") == ["a:9876", "b:9877"]


@pytest.mark.parametrize(
    "uri", ["rocketmq://", "rocketmq://a", "rocketmq://a:1,,b:2", "tcp://a:1", "rocketmq://a:99999"]
)
def test_what_is_no_nameserver_is_refused(uri: str) -> None:
    with pytest.raises(BadAddress, match="expected rocketmq://HOST:PORT"):
        parse_nameservers(uri)
