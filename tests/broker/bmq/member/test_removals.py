"""The requests for removals of a primary, whose answers may be late, lost, or not what happens."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.bmq.core.cluster_errors import ClusterError
from broker.bmq.member.removals import ASK_AGAIN_MS, OPENINGS_MAX, QueueRemovals, Removal
from broker.bmq.queue.handles import Refusal
from broker.common.clock import Now
from broker.common.timers import Timers
from formats.bmq.control.messages import QueueInfo, StatusCategory

QUEUE = "bmq://priority/q"
INFO = QueueInfo(uri=QUEUE, key=b"\1" * 5, partition_id=2)

LOST = Refusal(StatusCategory.CANCELED, "the link was lost", ClusterError.NODE_DOWN)
SLOW = Refusal(StatusCategory.TIMEOUT, "no answer", 0)
NOT_LEADER = Refusal(StatusCategory.REFUSED, "Not an active leader", ClusterError.NOT_LEADER)
FULL = Refusal(StatusCategory.REFUSED, "CSL failure", ClusterError.CSL_FAILURE)


class Primary:
    """A primary of partition 2 with one queue. `asked` are the requests, and `placed` the opens that went through."""

    def __init__(self) -> None:
        self.now, self.timers = Now(1, 1_000), Timers()
        self.leaving: dict[str, Removal] = {}
        self.asked: list[Callable[[Refusal | None], None]] = []
        self.placed: list[str] = []
        self.served = {2}
        self.state = SimpleNamespace(queues={QUEUE: INFO})
        metadata = SimpleNamespace(state=self.state, unassign=lambda info, done: self.asked.append(done))
        self.removals = QueueRemovals(cast(Any, self), cast(Any, metadata), cast(Any, self), self.leaving)
        self.queue = cast(Any, SimpleNamespace(uri=QUEUE))

    # -- see `ClusterQueues`

    def serves(self, uri: str) -> bool:
        return uri not in self.leaving

    def serves_partition(self, partition_id: int) -> bool:
        return partition_id in self.served

    def place(self, name: str, domain: object, parameters: object, opened: object) -> None:
        self.placed.append(name)

    def open(self) -> None:
        self.removals.place(QUEUE, cast(Any, None), cast(Any, None), lambda outcome: None)

    def pass_time(self, ms: int) -> None:
        self.now.ms += ms
        self.timers.run(self.now.ms)

    def take_away(self) -> None:
        self.removals.take_away(self.queue)


@pytest.fixture
def primary() -> Primary:
    """A primary that has requested the removal of its queue, which a client opens then."""
    primary = Primary()
    primary.take_away()
    primary.open()
    assert (len(primary.asked), primary.placed) == (1, [])
    return primary


@pytest.mark.parametrize("refusal", [NOT_LEADER, FULL])
def test_a_refusal_of_the_first_request_opens_the_queue(primary: Primary, refusal: Refusal) -> None:
    primary.asked[0](refusal)
    assert (primary.placed, set(primary.leaving)) == ([QUEUE], set())


@pytest.mark.parametrize("unknown", [LOST, SLOW, None])
@pytest.mark.parametrize("refusal", [NOT_LEADER, FULL])
def test_a_removal_that_may_be_recorded_is_asked_for_again(
    primary: Primary, unknown: Refusal | None, refusal: Refusal
) -> None:
    primary.asked[0](unknown)
    primary.pass_time(ASK_AGAIN_MS - 1)
    assert len(primary.asked) == 1
    primary.pass_time(1)
    assert (len(primary.asked), primary.placed) == (2, [])
    # A node that does not lead says nothing of the leader that may have recorded it.
    primary.asked[1](refusal)
    assert bool(primary.placed) == (refusal is FULL)
    primary.removals.healed()
    assert (primary.placed, set(primary.leaving)) == ([QUEUE], set())


def test_the_commit_decides(primary: Primary) -> None:
    primary.asked[0](LOST)
    del primary.state.queues[QUEUE]
    primary.removals.committed(INFO)
    assert (primary.placed, set(primary.leaving)) == ([QUEUE], set())
    primary.pass_time(ASK_AGAIN_MS)
    assert len(primary.asked) == 1


def test_a_late_answer_decides_nothing_of_the_next_removal(primary: Primary) -> None:
    primary.asked[0](LOST)
    primary.pass_time(ASK_AGAIN_MS)
    primary.removals.healed()
    primary.take_away()
    primary.open()
    assert (len(primary.asked), primary.placed) == (3, [QUEUE])
    primary.asked[1](NOT_LEADER)
    assert (primary.placed, set(primary.leaving)) == ([QUEUE], {QUEUE})
    primary.asked[2](NOT_LEADER)
    assert (primary.placed, set(primary.leaving)) == ([QUEUE, QUEUE], set())


def test_one_request_is_on_its_way_however_often_the_leader_changes(primary: Primary) -> None:
    for number in range(5):
        primary.asked[number](LOST)
        primary.removals.healed()
        primary.take_away()
    primary.asked[5](LOST)
    primary.pass_time(ASK_AGAIN_MS)
    assert len(primary.asked) == 7


def test_a_node_that_serves_the_partition_no_longer_does_not_ask_again(primary: Primary) -> None:
    primary.asked[0](LOST)
    primary.served.clear()
    primary.pass_time(ASK_AGAIN_MS)
    assert len(primary.asked) == 1
    assert (primary.placed, set(primary.leaving)) == ([QUEUE], set())


def test_waiting_opens_have_a_bound(primary: Primary) -> None:
    for _ in range(OPENINGS_MAX - 1):
        primary.open()
    with pytest.raises(Refusal, match="requests wait until the removal") as caught:
        primary.open()
    assert caught.value.status.category is StatusCategory.NOT_READY
