"""A network in memory: bytes on a link arrive in order, late, in pieces, or not until a partition is healed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Protocol

from tests.simulator.machines.clock import Clock

__all__ = ["End", "Link", "Network"]

# The longest time in which an end finds out that the other's machine is gone.
SILENCE_US_MAX = 3_000_000
# The part of sent data that arrives in two pieces.
SPLIT_PART = 0.05

# The next hop's use of the bytes, called once they were handled without a crash.
Taken = Callable[[], None]


class End(Protocol):
    """One end of a link, on a machine."""

    @property
    def machine(self) -> str: ...

    @property
    def asks(self) -> bool:
        """Return whether it asks now and then if the other end is there."""
        ...

    def arrived(self, data: bytes, taken: Taken | None) -> None:
        """Take the next bytes from the other end; none once it has lost the link."""
        ...

    def lost(self, reason: str) -> None:
        """Handle the loss of the other end; called at most once."""
        ...


class Direction:
    """The data in flight to one end."""

    __slots__ = ("is_open", "last_us", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[bytes, Taken | None] | str] = deque()
        self.last_us = 0
        self.is_open = True  # towards that end; False once it knows of the loss, or has closed


class Link:
    """A connection like TCP's; `ends[0]` dialed."""

    def __init__(self, network: Network, dialing: End, listening: End) -> None:
        self.network = network
        self.ends = (dialing, listening)
        self.to = (Direction(), Direction())
        self.is_cut = False

    @property
    def is_held(self) -> bool:
        """Return whether an end holds it, perhaps without knowing that the other is gone."""
        return any(direction.is_open for direction in self.to)

    @property
    def is_whole(self) -> bool:
        """Return whether both ends hold it, and bytes from one arrive at the other."""
        return not self.is_cut and all(direction.is_open for direction in self.to)

    def send(self, source: End, data: bytes, taken: Taken | None = None) -> None:
        """Send bytes from `source`; nothing happens if it has closed the link."""
        side = self.ends.index(source)
        if self.is_cut or not self.to[side].is_open:
            return
        random = self.network.random
        if len(data) > 1 and random.random() < self.network.split_part:
            at = random.randrange(1, len(data))
            self._put(1 - side, (data[:at], None))
            data = data[at:]
        self._put(1 - side, (data, taken))

    def close(self, source: End, reason: str, *, lose: bool = False) -> None:
        """Close the link at `source`, or with its process; with `lose`, some of its bytes do not arrive."""
        side = self.ends.index(source)
        if not self.to[side].is_open:
            return
        self.to[side].is_open = False
        self.to[side].waiting.clear()
        other = self.to[1 - side]
        if lose:
            for _ in range(self.network.random.randint(0, len(other.waiting))):
                other.waiting.pop()
        self._put(1 - side, reason)
        if not other.is_open:
            self.network.links.pop(self, None)

    def abandon(self, source: End) -> None:
        """Lose power at the machine of `source`, which does not notify the other end."""
        side = self.ends.index(source)
        self.to[side].is_open = False
        self.to[side].waiting.clear()
        late_us = self.network.random.randrange(SILENCE_US_MAX)
        self.network.clock.after(late_us, lambda: self._put(1 - side, "no answer from the machine"))

    def cut(self, reason: str) -> None:
        """Cut the link between its ends: bytes in flight are lost, and each end notices in its own time."""
        if self.is_cut:
            return
        self.is_cut = True  # later bytes would come after a gap
        for direction in self.to:
            direction.waiting.clear()
        for side, direction in enumerate(self.to):
            if direction.is_open:
                self._put(side, reason)

    def halve(self) -> None:
        """Let one end find the link broken, and the other nothing: a broker, which asks whether its peer is there."""
        if self.is_cut:
            return
        self.is_cut = True
        sides = [side for side in (0, 1) if self.ends[1 - side].asks]
        deaf = self.network.random.choice(sides)
        for direction in self.to:
            direction.waiting.clear()
        if self.to[deaf].is_open:
            self._put(deaf, "the connection was reset")

    def _put(self, side: int, what: tuple[bytes, Taken | None] | str) -> None:
        direction = self.to[side]
        if not direction.is_open:
            return
        direction.waiting.append(what)
        self.hurry(side)

    def hurry(self, side: int) -> None:
        """Let the next waiting bytes for that end arrive in a while, after all earlier ones."""
        clock = self.network.clock
        direction = self.to[side]
        direction.last_us = at_us = max(direction.last_us, clock.us + self.network.delay_us())
        clock.after(at_us - clock.us, lambda: self._deliver(side))

    def _deliver(self, side: int) -> None:
        direction = self.to[side]
        if not direction.waiting or not direction.is_open:
            return
        end = self.ends[side]
        if (self.ends[1 - side].machine, end.machine) in self.network.blocked:
            return  # until it is healed
        what = direction.waiting.popleft()
        if isinstance(what, str):
            direction.is_open = False
            direction.waiting.clear()
            if not self.to[1 - side].is_open:
                self.network.links.pop(self, None)
            end.lost(what)
        else:
            end.arrived(*what)


class Network:
    """All links, and `blocked`, the pairs of machines (from, to) between which nothing passes."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self.clock = clock
        self.random = random
        self.links: dict[Link, None] = {}
        self.blocked: set[tuple[str, str]] = set()
        self.delay_us_max = 2000
        self.split_part = SPLIT_PART
        self.heals = 0  # the number of calls of `heal`

    def delay_us(self) -> int:
        return int(self.random.random() ** 3 * self.delay_us_max) + 50

    def splits_seldom(self) -> None:
        """Let most data arrive in one piece."""
        self.split_part = SPLIT_PART

    def connect(self, dialing: End, listening: End) -> Link:
        link = Link(self, dialing, listening)
        self.links[link] = None
        return link

    def passes(self, one: str, other: str) -> bool:
        return (one, other) not in self.blocked and (other, one) not in self.blocked

    def heal(self, pairs: set[tuple[str, str]] | None = None) -> None:
        """Let bytes pass again, waiting ones first; between all, unless `pairs` are given."""
        self.heals += 1
        healed = self.blocked if pairs is None else self.blocked & pairs
        self.blocked = self.blocked - healed
        for link in self.links:
            for side in (0, 1):
                if (link.ends[1 - side].machine, link.ends[side].machine) in healed:
                    for _ in link.to[side].waiting:
                        link.hurry(side)
