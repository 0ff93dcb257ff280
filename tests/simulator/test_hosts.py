"""The machines of simulated worlds, and what their kernels do for processes that are not there."""

from __future__ import annotations

from tests.simulator.cluster import ClusterWorld
from tests.simulator.hosts import Death
from tests.simulator.logs import quiet

PAUSE_US = 1_000_000


def test_a_connection_to_a_process_that_has_died_since_is_reset() -> None:
    """The dialing process gets no time until the other one has died and started anew; it hears so, and dials again."""
    with quiet(None):
        world = ClusterWorld(1, nodes=2, features=frozenset())
        dialing, dialed = world.hosts
        dialing.start()
        dialed.start()
        dialing.pause(PAUSE_US)
        world.run_until(PAUSE_US // 2)
        dialed.die(Death.KILL)
        dialed.start()
        assert not dialed.ends
        world.run_until(2 * PAUSE_US)
    assert dialing.member is not None
    assert dialed.member is not None
    assert dialing.member.links.is_up(1)
    assert dialed.member.links.is_up(0)
    assert [end.session.host for end in dialed.ends.values()] == [dialed.node]
