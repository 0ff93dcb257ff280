"""Output that steps leave to go with later output, and that is sent before the loop waits."""

from __future__ import annotations

import socket

import pytest
import trio

from broker.shell.loop.server import Server
from formats.bmq.codes import EventType
from tests.broker.bmq.member.member_bus import Members, members
from tests.broker.bmq.rig import ACK, WRITE, guid, start
from tests.waiting import WAIT_S

QUEUE = "bmq://priority/q"


def records_to(cluster: Members, node_id: int) -> int:
    """Count the STORAGE events on the way from the leader to a node."""
    events = cluster.wires[cluster.leader.node_id, node_id].events
    return sum(event[4] & 0x3F == EventType.STORAGE for event in events)


def test_confirms_are_replicated_before_a_node_rests() -> None:
    cluster = members()
    leader = cluster.leader
    client = cluster.connect(leader.node_id)
    client.open(1, QUEUE, WRITE | ACK)
    client.read(2, QUEUE)
    client.put(1, guid(1), b"1")
    cluster.run()
    client.confirm(2, guid(1))
    leader.node.end_step()
    others = [node_id for node_id in cluster.ids if node_id != leader.node_id]
    assert [records_to(cluster, each) for each in others] == [0, 0]
    assert leader.node.rest()
    assert [records_to(cluster, each) for each in others] == [1, 1]
    assert not leader.node.rest()


def test_the_loop_lets_a_node_rest_before_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = start()
    server = Server(rig.node, [])
    calls: list[str] = []

    def settle() -> bool:
        calls.append("settle")
        return False

    def rest() -> bool:
        calls.append("rest")
        server.stop()
        return False

    async def main() -> None:
        with trio.fail_after(WAIT_S):
            await server.run(lambda: None)

    ours, theirs = socket.socketpair()
    monkeypatch.setattr(rig.node.role, "settle", settle)
    monkeypatch.setattr(rig.node.role, "rest", rest)
    with ours, theirs:
        ours.send(b"x")
        server.watch(Source(theirs))
        trio.run(main)
    # Without it, the tick of the clock would settle once more.
    assert calls[:2] == ["settle", "rest"]


class Source:
    """Input that leads to nothing."""

    work = "nothing"

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def fileno(self) -> int:
        return self._sock.fileno()

    def on_readable(self) -> None:
        self._sock.recv(1)
