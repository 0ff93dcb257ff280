"""The judge of votes among controllers, by what their disks have had.

In each term a disk has at most one vote, and a controller leads a term only with the votes of a majority of the disks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from formats.errors import FormatError
from formats.rocketmq.remoting.raft import read_block
from tests.broker.rocketmq.raft.files import MemoryFile
from tests.simulator.judges.invariants import Violation

__all__ = ["VotedFile", "Votes"]


@dataclass
class VotedFile(MemoryFile):
    """A journal's file that reports each vote that it stores, and each that a start finds in it."""

    voted: Callable[[int, str], None] = lambda term, vote: None

    def read(self) -> bytes:
        data = super().read()
        self._report(data)
        return data

    def append(self, data: bytes) -> None:
        super().append(data)
        self._report(data)

    def replace(self, data: bytes) -> None:
        super().replace(data)
        self._report(data)

    def _report(self, data: bytes) -> None:
        at = 0
        try:
            while (block := read_block(data, at)) is not None:
                for record in block.records:
                    if record.kind == "vote" and record.text:
                        self.voted(record.term, record.text)
                at = block.end
        except FormatError:
            return


@dataclass
class Votes:
    """The votes of all controllers, by term, and the leaders that were seen."""

    controllers: int
    _given: dict[int, dict[str, str]] = field(default_factory=dict)
    _leaders: dict[int, str] = field(default_factory=dict)

    def voted(self, voter: str, term: int, candidate: str) -> None:
        """Note a vote on the disk of `voter`. Raises `Violation` for a second one in its term."""
        known = self._given.setdefault(term, {}).setdefault(voter, candidate)
        if known != candidate:
            raise Violation(f"the disk of {voter} has votes for {known} and for {candidate} in term {term}")

    def leads(self, leader: str, term: int) -> None:
        """Judge a leader. Raises `Violation` if it lacks votes, or another one has led the term."""
        known = self._leaders.get(term)
        if known == leader:
            return
        if known is not None:
            raise Violation(f"{known} and {leader} lead term {term}")
        self._leaders[term] = leader
        voters = sorted(voter for voter, candidate in self._given.get(term, {}).items() if candidate == leader)
        if len(voters) * 2 <= self.controllers:
            raise Violation(f"{leader} leads term {term} with the votes of {voters} of {self.controllers} disks")
