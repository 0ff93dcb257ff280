"""Connections between controllers and brokers of a world: late, in pieces, held back one way or both, and broken."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

__all__ = ["End", "Network", "Wire"]

DELAYS_MS = (0, 0, 1, 5, 20, 50, 300)


class End(Protocol):
    """One end of a connection."""

    @property
    def finished(self) -> bool: ...

    def receive(self, data: memoryview) -> int:
        """Take what is whole; the number of its bytes."""
        ...

    def take_output(self) -> bytearray: ...

    def end(self) -> None:
        """Note that the connection is closed."""
        ...


@dataclass(slots=True)
class _Way:
    """One direction: bytes under way, with when they come, and those that have come and are not whole."""

    flying: deque[tuple[int, bytes]] = field(default_factory=deque)
    waiting: bytes = b""
    last_ms: int = 0


@dataclass(slots=True, eq=False)
class Wire:
    """A connection: the names of who is at its ends, the dialing one first."""

    names: tuple[str, str]
    ends: tuple[End, End]
    ways: tuple[_Way, _Way] = field(default_factory=lambda: (_Way(), _Way()))
    is_open: bool = True


class Network:
    """All connections. `is_awake` tells whether somebody of a name takes bytes now."""

    def __init__(self, random: Random, is_awake: Callable[[str], bool]) -> None:
        self._random = random
        self._is_awake = is_awake
        self.wires: list[Wire] = []
        self.cut: set[tuple[str, str]] = set()

    def is_passable(self, one: str, other: str) -> bool:
        """Return whether a connection between two can be made."""
        return (one, other) not in self.cut and (other, one) not in self.cut

    def join(self, names: tuple[str, str], ends: tuple[End, End]) -> Wire:
        """Connect two."""
        wire = Wire(names, ends)
        self.wires.append(wire)
        return wire

    def drop(self, wire: Wire, *, dead: str = "") -> None:
        """Break a connection: both ends note it, but not one that is `dead`."""
        if not wire.is_open:
            return
        wire.is_open = False
        self.wires.remove(wire)
        for name, end in zip(wire.names, wire.ends, strict=True):
            if name != dead:
                end.end()

    def drop_all(self, name: str, *, is_dead: bool) -> None:
        """Break all connections of somebody."""
        for wire in [wire for wire in self.wires if name in wire.names]:
            self.drop(wire, dead=name if is_dead else "")

    def carry(self, now_ms: int) -> None:
        """Take what the ends have to say, and deliver what has come."""
        for wire in list(self.wires):
            for number in (0, 1):
                if wire.is_open and self._is_awake(wire.names[number]):
                    self._take(wire, number, now_ms)
        for wire in self._random.sample(self.wires, len(self.wires)):
            for number in (0, 1):
                if wire.is_open:
                    self._deliver(wire, number, now_ms)

    def _take(self, wire: Wire, number: int, now_ms: int) -> None:
        """Send what an end has to say; a connection that it has given up is broken."""
        end, way = wire.ends[number], wire.ways[number]
        data = bytes(end.take_output())
        if end.finished:
            self.drop(wire)
        elif data:
            way.last_ms = max(way.last_ms, now_ms + self._random.choice(DELAYS_MS))
            way.flying.append((way.last_ms, data))

    def _deliver(self, wire: Wire, number: int, now_ms: int) -> None:
        way, sender, receiver = wire.ways[number], wire.names[number], wire.names[1 - number]
        if (sender, receiver) in self.cut or not self._is_awake(receiver):
            return
        came = b""
        while way.flying and way.flying[0][0] <= now_ms:
            came += way.flying.popleft()[1]
        if not came:
            return
        data = way.waiting + came
        if len(data) > 1 and self._random.random() < 0.05:
            size = self._random.randrange(1, len(data))
            way.flying.appendleft((now_ms, data[size:]))
            data = data[:size]
        end = wire.ends[1 - number]
        way.waiting = data[end.receive(memoryview(data)) :]
        if end.finished:
            self.drop(wire)
