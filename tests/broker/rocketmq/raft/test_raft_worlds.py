"""Controllers that agree, in worlds made from a seed.

They are killed, started again, cut off one way or both, paused, and their disks fill up; messages are late, lost and
delivered in another order. At no time do two have different entries at an index that both have applied, and what was
acknowledged to a proposer stays. A leader that is sure is the only one that is.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from itertools import count

import pytest

from broker.rocketmq.raft import raft as raft_module
from broker.rocketmq.raft.journal import Journal
from broker.rocketmq.raft.raft import NotLeading, Raft, Times
from formats.rocketmq.remoting.raft import Message, encode_message, read_message
from tests.broker.rocketmq.raft.files import MemoryFile
from tests.broker.rocketmq.raft.raft_worlds_rig import Words
from tests.families import sweep

SEEDS = 120
STEPS = 1500
STEP_MS = 50


@dataclass
class Member:
    """A controller and its disk, with a clock of its own rate."""

    name: str
    rate: float
    file: MemoryFile = field(default_factory=MemoryFile)
    raft: Raft | None = None
    machine: Words = field(default_factory=Words)
    paused: bool = False


@dataclass(order=True)
class Flying:
    """A message under way."""

    due_ms: int
    number: int
    sender: str = field(compare=False)
    receiver: str = field(compare=False)
    kind: str = field(compare=False)
    body: bytes = field(compare=False)


class World:
    """Some controllers and their network."""

    def __init__(self, seed: int, size: int) -> None:
        self.draw = random.Random(seed)
        self.now_ms = 0
        self.members = {f"n{number}": Member(f"n{number}", self.draw.choice((0.9, 1.0, 1.1))) for number in range(size)}
        self.flying: list[Flying] = []
        self.numbers = count()
        self.cut: set[tuple[str, str]] = set()
        self.loss = self.draw.choice((0.0, 0.05, 0.3))
        self.words = count(1)
        # By proposal: the accepting node, the index and term. Acknowledged proposals, in order.
        self.open: list[tuple[Raft, int, int, str]] = []
        self.acknowledged: list[str] = []
        self.agreed: list[str] = []
        self.terms_led: dict[int, str] = {}

    def clock(self, member: Member) -> int:
        return int(self.now_ms * member.rate)

    def start(self, member: Member) -> None:
        member.machine = Words()
        journal = Journal.open(member.file, member.machine.check, member.machine.check_state)
        others = [name for name in self.members if name != member.name]

        def send(receiver: str, message: Message) -> None:
            if (member.name, receiver) not in self.cut and self.draw.random() >= self.loss:
                due_ms = self.now_ms + self.draw.choice((1, 5, 40, 40, 400))
                flying = Flying(due_ms, next(self.numbers), member.name, receiver, *encode_message(message))
                heapq.heappush(self.flying, flying)

        member.raft = Raft(
            member.name, others, journal, member.machine, send, self.draw.randrange, self.clock(member), Times()
        )

    def up(self) -> list[tuple[Member, Raft]]:
        return [(each, each.raft) for each in self.members.values() if each.raft is not None and not each.paused]

    def step(self) -> None:
        self.now_ms += STEP_MS
        while self.flying and self.flying[0].due_ms <= self.now_ms:
            flying = heapq.heappop(self.flying)
            member = self.members[flying.receiver]
            if member.raft is not None and not member.paused:
                message = read_message(flying.kind, flying.body)
                member.raft.receive(flying.sender, message, self.clock(member))
        for member, raft in self.up():
            raft.tick(self.clock(member))
        self.check()

    def propose(self, chance: float) -> None:
        for member, raft in self.up():
            if raft.is_leader and self.draw.random() < chance:
                word = f"w{next(self.words)}"
                try:
                    index = raft.propose(word, self.clock(member))
                except (NotLeading, OSError):
                    continue
                self.open.append((raft, index, raft.term, word))
        self.acknowledge()

    def acknowledge(self) -> None:
        still: list[tuple[Raft, int, int, str]] = []
        for raft, index, term, word in self.open:
            if not raft.is_leader or raft.term != term:
                continue
            if raft.applied >= index:
                self.acknowledged.append(word)
            else:
                still.append((raft, index, term, word))
        self.open = still

    def check(self) -> None:
        self.acknowledge()
        sure = [raft for member, raft in self.up() if raft.is_sure(self.clock(member))]
        assert len(sure) <= 1
        for _, raft in self.up():
            if raft.is_leader:
                assert self.terms_led.setdefault(raft.term, raft.own_id) == raft.own_id
        longest = max((member.machine.words for member, _ in self.up()), key=len, default=[])
        if len(longest) > len(self.agreed):
            assert longest[: len(self.agreed)] == self.agreed
            self.agreed = list(longest)
        for member, _ in self.up():
            assert member.machine.words == self.agreed[: len(member.machine.words)]
        if sure:
            # It answers from its own state: everything that was acknowledged is there.
            words = set(self.members[sure[0].own_id].machine.words)
            assert words.issuperset(self.acknowledged)

    def disturb(self) -> None:
        member = self.draw.choice(list(self.members.values()))
        kind = self.draw.randrange(9)
        if kind == 0:
            if member.raft is not None and self.draw.random() < 0.5:
                member.file.tear(b"bmqraft\x01" + bytes(30), self.draw)
            member.raft, member.paused = None, False
        elif kind in (1, 2):
            if member.raft is None:
                member.file.is_full = member.file.fails_to_flush = False
                self.start(member)
        elif kind == 3:
            other = self.draw.choice(list(self.members))
            self.cut |= (
                {(member.name, other)} if self.draw.random() < 0.5 else {(member.name, other), (other, member.name)}
            )
        elif kind in (4, 5):
            self.cut.clear()
        elif kind == 6:
            member.paused = not member.paused
        elif kind == 7:
            member.file.is_full = not member.file.is_full
        else:
            member.file.fails_to_flush = not member.file.fails_to_flush

    def heal(self) -> None:
        self.cut.clear()
        self.loss = 0.0
        for member in self.members.values():
            member.paused = member.file.is_full = member.file.fails_to_flush = False
            if member.raft is None:
                self.start(member)


@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("seed", sweep(range(SEEDS // 3), 6))
def test_agreement(seed: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raft_module, "KEPT_MAX", 20)
    world = World(seed * 7 + size, size)
    for member in world.members.values():
        world.start(member)
    for _ in range(STEPS):
        world.step()
        world.propose(0.5)
        if world.draw.random() < 0.04:
            world.disturb()
    world.heal()
    for _ in range(200):
        world.step()
    before = len(world.acknowledged)
    world.propose(1.0)
    for _ in range(40):
        world.step()
    assert len(world.acknowledged) > before
    assert set(world.acknowledged) <= set(world.agreed)
    for member in world.members.values():
        assert member.machine.words == world.agreed
