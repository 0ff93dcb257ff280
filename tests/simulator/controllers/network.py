"""Connections between those of a world: late, in pieces, held back one way or both, half open, and broken."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

__all__ = ["End", "Network", "Wire"]

DELAYS_MS = (0, 0, 1, 5, 20, 50, 300)
# The bytes that a connection carries in a millisecond, in different worlds.
SPEEDS = (10, 100, 1_000)
PACKET_BYTES = 4_096

# Given what one end of a connection says, when it says it.
Watch = Callable[[bytes], None]


class End(Protocol):
    """One end of a connection. Its maker calls `Network.wake` when it has something to say, or is over."""

    @property
    def finished(self) -> bool: ...

    def receive(self, data: memoryview) -> int:
        """Take what is whole; the number of its bytes."""
        ...

    def take_output(self) -> bytearray: ...

    def output_sent(self) -> None:
        """Note that the output is on its way."""
        ...

    def end(self) -> None:
        """Note that the connection is closed."""
        ...


@dataclass(slots=True, eq=False)
class _Way:
    """One direction: bytes under way with their times of arrival, and received bytes of an incomplete frame."""

    wire: Wire
    number: int
    flying: deque[tuple[int, bytes]] = field(default_factory=deque)
    waiting: bytes = b""
    last_ms: int = 0


@dataclass(slots=True, eq=False)
class Wire:
    """A connection: the names of who is at its ends, the dialing one first. `watch` hears what the other one says."""

    names: tuple[str, str]
    ends: tuple[End, End]
    watch: Watch | None = None
    is_open: bool = True
    ways: tuple[_Way, _Way] = field(init=False)

    def __post_init__(self) -> None:
        self.ways = (_Way(self, 0), _Way(self, 1))


@dataclass(slots=True, eq=False)
class _Ending:
    """A connection that is over at one end, the teller's: the other one hears of it, perhaps late."""

    teller: str
    hearer: str
    end: End
    late_ms: int
    due_ms: int | None = None


class Network:
    """All connections.

    `is_awake` tells whether somebody of a name takes bytes now, `is_there` whether the machine of that name has power,
    `receive` has an end of somebody's take bytes, and `close` tells it that its connection is over.
    """

    def __init__(
        self,
        random: Random,
        is_awake: Callable[[str], bool],
        is_there: Callable[[str], bool],
        receive: Callable[[str, End, memoryview], int],
        close: Callable[[str, End], None],
    ) -> None:
        self._random = random
        self._speed = random.choice(SPEEDS)
        self._is_awake = is_awake
        self._is_there = is_there
        self._receive = receive
        self._close = close
        self.wires: list[Wire] = []
        self.cut: set[tuple[str, str]] = set()
        self._places: dict[End, tuple[Wire, int]] = {}
        self._woken: dict[End, None] = {}
        self._busy: dict[_Way, None] = {}
        self._ending: list[_Ending] = []

    def is_passable(self, one: str, other: str) -> bool:
        """Return whether a connection between two can be made."""
        return (one, other) not in self.cut and (other, one) not in self.cut

    def join(self, names: tuple[str, str], ends: tuple[End, End], watch: Watch | None = None) -> Wire:
        """Connect two."""
        wire = Wire(names, ends, watch)
        self.wires.append(wire)
        for number, end in enumerate(ends):
            self._places[end] = wire, number
            self._woken[end] = None
        return wire

    def wake(self, end: End) -> None:
        """Have what an end has to say taken."""
        if end in self._places:
            self._woken[end] = None

    # -- ends

    def drop(self, wire: Wire, *, dead: str = "", late_ms: int = 0) -> None:
        """Break a connection at both ends. One that is `dead` does not hear of it, and the other one when it can.

        That is `late_ms` after the machine of the dead one has power again.
        """
        if not wire.is_open:
            return
        wire.is_open = False
        self.wires.remove(wire)
        for way in wire.ways:
            self._busy.pop(way, None)
        for number, end in enumerate(wire.ends):
            del self._places[end]
            self._woken.pop(end, None)
            if wire.names[number] == dead:
                continue
            if dead:
                self._ending.append(_Ending(dead, wire.names[number], end, late_ms))
            else:
                self._close(wire.names[number], end)

    def drop_all(self, name: str, late_ms: int = 0) -> None:
        """Break all connections of somebody whose process is no more: it hears nothing of it."""
        self._ending = [each for each in self._ending if each.hearer != name]
        for wire in [wire for wire in self.wires if name in wire.names]:
            self.drop(wire, dead=name, late_ms=late_ms)

    def _give_up(self, wire: Wire, number: int) -> None:
        """Close a connection that one end has given up."""
        self.drop(wire, dead=wire.names[number])
        self._close(wire.names[number], wire.ends[number])

    def _tell_ends(self, now_ms: int) -> None:
        ending, self._ending = self._ending, []
        for each in ending:
            if each.due_ms is None and self._is_there(each.teller):
                each.due_ms = now_ms + each.late_ms
            is_cut = (each.teller, each.hearer) in self.cut
            if each.due_ms is None or each.due_ms > now_ms or is_cut or not self._is_awake(each.hearer):
                self._ending.append(each)
            else:
                self._close(each.hearer, each.end)

    # -- bytes

    def take(self, now_ms: int) -> None:
        """Take what the ends have to say, which are awake."""
        woken, self._woken = self._woken, {}
        for end in woken:
            place = self._places.get(end)
            if place is None:
                continue
            wire, number = place
            if self._is_awake(wire.names[number]):
                self._take(wire, number, now_ms)
            else:
                self._woken[end] = None

    def _take(self, wire: Wire, number: int, now_ms: int) -> None:
        end, way = wire.ends[number], wire.ways[number]
        data = bytes(end.take_output())
        if end.finished:
            self._give_up(wire, number)
        elif data:
            if number and wire.watch is not None:
                wire.watch(data)
            way.last_ms = max(way.last_ms, now_ms + self._random.choice(DELAYS_MS))
            for at in range(0, len(data), PACKET_BYTES):
                packet = data[at : at + PACKET_BYTES]
                way.last_ms += len(packet) // self._speed
                way.flying.append((way.last_ms, packet))
            self._busy[way] = None
            end.output_sent()

    def carry(self, now_ms: int) -> None:
        """Deliver what has come."""
        self._tell_ends(now_ms)
        for way in self._random.sample(list(self._busy), len(self._busy)):
            if way.wire.is_open:
                self._deliver(way, now_ms)

    def _deliver(self, way: _Way, now_ms: int) -> None:
        wire, number = way.wire, way.number
        sender, receiver = wire.names[number], wire.names[1 - number]
        if way.flying[0][0] > now_ms or (sender, receiver) in self.cut or not self._is_awake(receiver):
            return
        came = b""
        while way.flying and way.flying[0][0] <= now_ms:
            came += way.flying.popleft()[1]
        data = way.waiting + came
        if len(data) > 1 and self._random.random() < 0.05:
            size = self._random.randrange(1, len(data))
            way.flying.appendleft((now_ms, data[size:]))
            data = data[:size]
        if not way.flying:
            del self._busy[way]
        end = wire.ends[1 - number]
        way.waiting = data[self._receive(receiver, end, memoryview(data)) :]
        if end.finished and wire.is_open:
            self._give_up(wire, 1 - number)
