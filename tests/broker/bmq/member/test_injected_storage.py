"""Exceptions at every call with which a replica takes in its primary's records: all is written in the end, or healed.

A fault that ends the link leaves the records as if the event had not come; the link's next life brings them. One that
ends the process leaves its files as after a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from broker.bmq.replication.partition_table import State
from broker.bmq.store.partition_files import PartitionLimits
from broker.common.faults import Inconsistent
from tests.broker.bmq.injecting import Injected, Injector, one_of_a_kind
from tests.broker.bmq.replication.partition_bus import Bus

REPLICA = 1
SMALL = PartitionLimits(journal=4 << 10, data=16 << 10, qlist=4 << 10)


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def begun(limits: PartitionLimits | None = None) -> Bus:
    bus = Bus(2) if limits is None else Bus(2, limits)
    bus.assign(0)
    bus.settle()
    bus.nodes[0].post(*range(1, 6))
    bus.settle()
    return bus


def message() -> Bus:
    bus = begun()
    bus.nodes[0].post(10)
    return bus


def messages() -> Bus:
    """Post as many messages as are written as one batch."""
    bus = begun()
    bus.nodes[0].post(*range(10, 60))
    return bus


def deletions() -> Bus:
    bus = begun()
    bus.nodes[0].remove(1, 2)
    return bus


def rollover() -> Bus:
    """The primary goes on in new files; the first record there ends the replica's rollover."""
    bus = begun(SMALL)
    bus.nodes[0].remove(1, 3)
    bus.nodes[0].stored.roll_over()
    return bus


def recovery() -> Bus:
    """A bus on which a replica is back, and the records that it lacks are about to come."""
    bus = begun()
    bus.kill(REPLICA)
    bus.nodes[0].post(10, 11)
    bus.restart(REPLICA)
    while not bus.links[0, REPLICA]:
        bus.step()
    # The question how far it is, its answer, and then the records.
    for _ in range(20):
        if any(event[4] & 0x3F != 1 for event in bus.links[0, REPLICA]):
            return bus
        bus.step()
    raise AssertionError("no records come")


@pytest.mark.slow
@pytest.mark.interpreted
@pytest.mark.parametrize("make", [message, messages, deletions, rollover, recovery])
def test_every_call_of_a_replica(make: Callable[[], Bus], calls: slice) -> None:
    bus = make()
    bus.nodes[0].flush()
    replica = bus.nodes[REPLICA]
    before = replica.partition.position
    probe = Injector()
    with probe.active():
        _take(bus)
    assert replica.partition.position > before
    bus = make()
    bus.nodes[0].flush()
    # Called after each event, the last time when all is written.
    states = [bus.nodes[REPLICA].files()]
    _take(bus, lambda: states.append(bus.nodes[REPLICA].files()))
    kinds = {"on purpose": 0, "the link": 0}
    for at in one_of_a_kind(probe.sites, calls):
        bus = make()
        bus.nodes[0].flush()
        injector = Injector(at)
        try:
            with injector.active():
                _take(bus)
        except Inconsistent:
            kinds["on purpose"] += 1
            bus.kill(REPLICA)
            bus.restart(REPLICA)
        except Injected:
            kinds["the link"] += 1
            assert bus.nodes[REPLICA].files() in states, injector.where
            bus.part(REPLICA)
            bus.join()
        bus.settle(1200)
        assert bus.nodes[REPLICA].partition.state is State.REPLICA_HEALED, injector.where
        bus.check_equal()
        assert set(bus.nodes[0].acked) == set(bus.nodes[0].posted), injector.where
    assert kinds["on purpose"]
    assert kinds["the link"]


def _take(bus: Bus, taken: Callable[[], None] = lambda: None) -> None:
    """Let the replica take in all that has come."""
    events = bus.links[0, REPLICA]
    while events:
        bus.nodes[REPLICA].receive(0, events.popleft())
        taken()
