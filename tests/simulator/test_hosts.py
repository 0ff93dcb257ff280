"""The machines of simulated worlds, and what their kernels do for processes that are not there."""

from __future__ import annotations

from tests.simulator.machines.hosts import Death
from tests.simulator.play import quiet
from tests.simulator.worlds.cluster import ClusterWorld

PAUSE_US = 1_000_000


def test_a_connection_to_a_process_that_has_died_since_is_reset() -> None:
    """The dialing process gets no time until the other one has restarted; then it learns that, and dials again."""
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


def test_bytes_for_an_ended_session_are_dropped() -> None:
    """A consumer's confirm may wait at a node that gets no time, and that ends the session before it reads."""
    with quiet(None):
        world = ClusterWorld(1, nodes=2, features=frozenset())
        for host in world.hosts:
            host.start()
        world.run_until(PAUSE_US)
        (host, _) = world.hosts
        session, end = next(iter(host.ends.items()))
        assert host.node is not None
        taken: list[str] = []
        end.arrived(b"", lambda: taken.append("before"))
        host.node.disconnect(session, "no answer")
        end.arrived(b"", lambda: taken.append("after"))
    assert taken == ["before"]
