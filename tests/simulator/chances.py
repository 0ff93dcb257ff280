"""The chances at which a world injects faults, so that a world can be played again with a part of its faults.

A chance has a number among those of its site. `Recording` keeps the state of the generators at each; `Kept` restores
that, so that a fault that is kept comes at its time and does as before, whichever others are left out.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import NamedTuple

__all__ = ["Chance", "Chances", "Kept", "Recording"]

_State = tuple[int, bytes, float | None]


class Chance(NamedTuple):
    """A chance: its site, and its number there."""

    site: str
    number: int

    def __str__(self) -> str:
        return f"{self.site}:{self.number}"

    @classmethod
    def parse(cls, text: str) -> Chance:
        """Read what `str` makes."""
        site, _, number = text.rpartition(":")
        return cls(site, int(number))


class Chances:
    """All chances are taken, and nothing is kept of them."""

    @contextmanager
    def at(self, site: str, *randoms: Random) -> Iterator[bool]:
        """Come to a chance; whether faults may be injected. `randoms` are the generators that decide on them."""
        yield True

    def note(self, ms: int, text: str) -> None:
        """Note an event of the world."""


class Recording(Chances):
    """All chances are taken; `taken` has the events of those at which something happened."""

    def __init__(self) -> None:
        self.taken: dict[Chance, list[str]] = {}
        self.states: dict[Chance, tuple[list[_State], list[_State]]] = {}
        self._counts: Counter[str] = Counter()
        self._now: Chance | None = None

    @contextmanager
    def at(self, site: str, *randoms: Random) -> Iterator[bool]:
        self._now = chance = self._next(site)
        before = [_state(random) for random in randoms]
        try:
            yield True
        finally:
            self._now = None
            self.states[chance] = before, [_state(random) for random in randoms]

    def _next(self, site: str) -> Chance:
        self._counts[site] += 1
        return Chance(site, self._counts[site])

    def note(self, ms: int, text: str) -> None:
        if self._now is not None:
            self.taken.setdefault(self._now, []).append(f"{ms:9} {text}")


class Kept(Recording):
    """Takes the chances in `kept` as another world took them, and no others."""

    def __init__(self, base: Recording, kept: frozenset[Chance]) -> None:
        super().__init__()
        self._base = base
        self._kept = kept

    @contextmanager
    def at(self, site: str, *randoms: Random) -> Iterator[bool]:
        chance = self._next(site)
        before, after = self._base.states.get(chance, ((), ()))
        _restore(randoms, before)
        if chance in self._kept:
            self._now = chance
            try:
                yield True
            finally:
                self._now = None
        else:
            yield False
            _restore(randoms, after)


def _state(random: Random) -> _State:
    version, numbers, gauss = random.getstate()
    return version, array("I", numbers).tobytes(), gauss


def _restore(randoms: tuple[Random, ...], states: list[_State] | tuple[()]) -> None:
    for random, (version, numbers, gauss) in zip(randoms, states, strict=False):
        random.setstate((version, tuple(array("I", numbers)), gauss))
