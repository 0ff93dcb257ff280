"""Rounds read the links whose input can wait only now and then, and miss nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest

from broker.common.clock import Now
from broker.common.faults import Faults
from broker.common.standing import Standing
from broker.shell.connections.link import Link
from broker.shell.host.calls import HOST
from broker.shell.loop.rounds import FRESH_BYTES_MAX, Rounds

READ_BYTES_MAX = 16


class Machine:
    """A session whose input can wait if it is in lower case, and that fails at "!"."""

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self.description = f"peer {session_id}"
        self.taken = b""
        self.input_can_wait = False
        self.finished = self.paused = False
        self.event_bytes_max = self.backlog_bytes_max = 1 << 20
        self.standing = Standing.CLIENT
        self.keeps_more = False
        self.output_bytes = 0

    def receive(self, data: memoryview) -> int:
        taken = bytes(data)
        if b"!" in taken:
            raise RuntimeError("a fault")
        self.taken += taken
        self.input_can_wait = taken.islower()
        return len(data)

    def take_output(self) -> bytearray:
        return bytearray()

    def output_size(self) -> int:
        return self.output_bytes

    def memory_size(self) -> int:
        return 0

    def output_sent(self) -> None:
        """Do nothing."""


class System:
    """A system without anything to send."""

    def __init__(self) -> None:
        self.now = Now(0, 0)
        self.faults = Faults(self.now)
        self.failed: list[object] = []
        self.dirty: set[Machine] = set()
        self.sessions: tuple[int, ...] = ()
        self.disconnected: list[Machine] = []

    def before_sending(self) -> None:
        """Do nothing."""

    def end_failed(self) -> None:
        while (session := self.faults.next_failed()) is not None:
            self.failed.append(session)

    def end_step(self) -> tuple[bool, bool]:
        return False, False

    def rest(self) -> bool:
        return False

    def disconnect(self, session: Machine, reason: str) -> None:
        self.disconnected.append(session)


class Loop:
    """Rounds of two links on real sockets, `one` and `other`, at times that the test sets."""

    def __init__(self) -> None:
        self.system = System()
        self.poller = HOST.poller()
        self.rounds = Rounds(cast(Any, self.system), self.poller, self._on_other, self._wake, self._set_clock)
        self._scratch = memoryview(bytearray(READ_BYTES_MAX))
        self._peers: list[socket.socket] = []
        self._ms = 1000
        self.others: list[int] = []
        self.one, self.other = self._add(1), self._add(2)

    def _on_other(self, fd: int) -> None:
        self.others.append(fd)

    def _wake(self) -> None:
        raise AssertionError("nothing is unfinished")

    def _add(self, session_id: int) -> Machine:
        ours, theirs = _connected()
        machine = Machine(session_id)
        self.rounds.add(Link(ours, cast(Any, machine), self._scratch))
        self._peers.append(theirs)
        return machine

    def send(self, machine: Machine, data: bytes) -> None:
        self._peers[machine.session_id - 1].sendall(data)

    def leave(self, machine: Machine) -> None:
        self._peers[machine.session_id - 1].close()

    def take(self, ms: int) -> bool:
        """Take a round at a time; return False if nothing was ready."""
        self._ms = ms
        return self.rounds.take(0)

    def _set_clock(self, now: Now) -> None:
        now.ms = self._ms

    def make_patient(self) -> None:
        """Have `one` be patient: it is read twice in the millisecond 1000."""
        for data in (b"a", b"b"):
            self.send(self.one, data)
            assert self.take(1000)
        assert self.one.taken == b"ab"

    def close(self) -> None:
        self.rounds.end_all("the test is over")
        self.poller.close()
        for peer in self._peers:
            peer.close()


def _connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ours, theirs


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


def test_input_that_can_wait_is_read_by_the_rounds_of_others(loop: Loop) -> None:
    loop.make_patient()
    loop.send(loop.one, b"c")
    assert not loop.take(1000)
    loop.send(loop.other, b"X")
    assert loop.take(1000)
    assert loop.one.taken == b"ab", "it was read in this millisecond"
    loop.send(loop.other, b"X")
    assert loop.take(1001)
    assert loop.one.taken == b"abc"
    loop.send(loop.one, b"d")
    assert not loop.take(1001), "it is still patient"
    loop.send(loop.other, b"X")
    assert loop.take(1002)
    assert loop.one.taken == b"abcd"


def test_rare_bytes_are_read_at_once(loop: Loop) -> None:
    for number in range(4):
        loop.send(loop.one, b"a")
        assert loop.take(1000 + number)
    assert loop.one.taken == b"aaaa"


def test_input_that_cannot_wait_is_read_at_once(loop: Loop) -> None:
    for _ in range(3):
        loop.send(loop.one, b"A")
        assert loop.take(1000)
    assert loop.one.taken == b"AAA"


def test_a_link_with_nothing_to_read_is_watched_again(loop: Loop) -> None:
    loop.make_patient()
    loop.send(loop.other, b"X")
    assert loop.take(1001)
    loop.send(loop.one, b"c")
    assert loop.take(1001)
    assert loop.one.taken == b"abc"


def test_a_link_with_other_input_is_watched_again(loop: Loop) -> None:
    loop.make_patient()
    loop.send(loop.one, b"C")
    loop.send(loop.other, b"X")
    assert loop.take(1001)
    loop.send(loop.one, b"d")
    assert loop.take(1001)
    assert loop.one.taken == b"abCd"


def test_before_the_loop_waits_all_links_are_watched_again(loop: Loop) -> None:
    loop.make_patient()
    loop.send(loop.one, b"c")
    assert not loop.take(1002)
    loop.rounds.rest()
    assert loop.take(1002)
    assert loop.one.taken == b"abc"


def test_the_last_rounds_read_patient_links(loop: Loop) -> None:
    loop.make_patient()
    loop.send(loop.one, b"c")
    loop.rounds.take_last(4)
    assert loop.one.taken == b"abc"


def test_the_last_rounds_leave_nothing_to_later_ones(loop: Loop) -> None:
    data = b"a" * (4 * READ_BYTES_MAX)
    loop.send(loop.one, data)
    loop.rounds.take_last(5)
    assert loop.one.taken == data


def test_a_patient_link_that_is_closed_ends(loop: Loop) -> None:
    loop.make_patient()
    loop.send(loop.one, b"c")
    loop.leave(loop.one)
    loop.send(loop.other, b"X")
    assert loop.take(1001)
    assert loop.one.taken == b"abc"
    loop.rounds.rest()
    assert loop.take(1002)
    assert loop.system.disconnected == [loop.one]
    loop.send(loop.other, b"X")
    assert loop.take(1003)
    assert loop.other.taken == b"XX"


def test_a_fault_in_a_patient_link_ends_that_one(loop: Loop) -> None:
    loop.make_patient()
    loop.send(loop.one, b"!")
    loop.send(loop.other, b"X")
    assert loop.take(1001)
    assert loop.system.failed == loop.system.disconnected == [loop.one]
    loop.send(loop.other, b"y")
    assert loop.take(1002)
    assert loop.other.taken == b"Xy"


def test_links_wait_for_the_next_round_after_much_output(loop: Loop) -> None:
    machines = {loop.one, loop.other}
    for machine in machines:
        machine.output_bytes = FRESH_BYTES_MAX + 1
        machine.backlog_bytes_max = FRESH_BYTES_MAX * 2
    for _ in range(2):
        for machine in machines:
            loop.send(machine, b"A")
        assert loop.take(1000)
        (first,) = (machine for machine in machines if machine.taken)
        (second,) = machines - {first}
        # More input of the first one does not come before the other's.
        loop.send(first, b"B")
        assert loop.take(1000)
        assert (first.taken, second.taken) == (b"A", b"A")
        assert loop.take(1000)
        assert not loop.take(1000)
        assert (first.taken, second.taken) == (b"AB", b"A")
        first.taken = second.taken = b""


def test_a_descriptor_that_is_no_longer_a_links_is_not_left_to_the_next_round(loop: Loop) -> None:
    for machine in (loop.one, loop.other):
        machine.output_bytes = FRESH_BYTES_MAX + 1
        machine.backlog_bytes_max = FRESH_BYTES_MAX * 2
        loop.send(machine, b"A")
    assert loop.take(1000)
    (left,) = (link for link in loop.rounds.links.values() if not cast(Machine, link.machine).taken)
    loop.rounds.close(left, "to make room")
    assert not loop.take(1000)
    assert loop.others == []


def test_output_that_waits_already_does_not_end_a_round(loop: Loop) -> None:
    for machine in (loop.one, loop.other):
        machine.backlog_bytes_max = FRESH_BYTES_MAX * 4
        machine.output_bytes = FRESH_BYTES_MAX + 1
        loop.send(machine, b"A")
    for link in loop.rounds.links.values():
        # The peer reads nothing: this has been there before.
        link._unsent = memoryview(bytes(1))
    assert loop.take(1000)
    assert (loop.one.taken, loop.other.taken) == (b"A", b"A")
