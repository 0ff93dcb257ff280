"""One controller's part in an agreement, message by message."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from broker.rocketmq.raft.journal import Journal
from broker.rocketmq.raft.raft import NotLeading, Raft, Role, Times
from formats.errors import FormatError
from formats.rocketmq.remoting.raft import Append, Appended, Ballot, Entry, Install, Message, Solicit
from tests.broker.rocketmq.raft.files import MemoryFile
from tests.broker.rocketmq.raft.raft_worlds_rig import Words

TIMES = Times()


@dataclass
class One:
    """The controller n0 of a group, and what it has sent."""

    others: tuple[str, ...] = ("n1", "n2")
    file: MemoryFile = field(default_factory=MemoryFile)
    now_ms: int = 100_000
    sent: list[tuple[str, Message]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.machine = Words()
        journal = Journal.open(self.file, self.machine.check, self.machine.check_state)
        self.raft = Raft("n0", self.others, journal, self.machine, self.send, lambda below: 0, self.now_ms, TIMES)

    def send(self, receiver: str, message: Message) -> None:
        # Messages are based on what the disk has, as a restart would find it.
        kept = Journal.open(MemoryFile(self.file.data), Words().check, Words().check_state)
        assert message.term <= kept.term or (isinstance(message, (Solicit, Ballot)) and message.pre)
        if isinstance(message, Ballot) and message.granted and not message.pre:
            assert (kept.term, kept.vote) == (message.term, receiver)
        if isinstance(message, Appended) and message.ok:
            assert kept.last >= message.position
        if isinstance(message, Append) and message.entries:
            assert kept.last >= message.previous_index + len(message.entries)
        self.sent.append((receiver, message))

    def take(self) -> list[tuple[str, Message]]:
        sent, self.sent = self.sent, []
        return sent

    def hear(self, sender: str, message: Message) -> list[Message]:
        """Deliver a message; what it is answered."""
        self.raft.receive(sender, message, self.now_ms)
        return [message for receiver, message in self.take() if receiver == sender]

    def wait(self, ms: int) -> None:
        for _ in range(ms // 10):
            self.now_ms += 10
            self.raft.tick(self.now_ms)

    def lead(self) -> None:
        """Have it elected by n1."""
        self.wait(1_000)
        term = self.raft.term + 1
        self.raft.receive("n1", Ballot(term, granted=True, pre=True), self.now_ms)
        self.raft.receive("n1", Ballot(term, granted=True), self.now_ms)
        assert self.raft.role is Role.LEADER
        (append,) = [message for receiver, message in self.take() if receiver == "n1" and isinstance(message, Append)]
        self.acknowledge("n1", append)
        self.take()

    def acknowledge(self, sender: str, append: Append) -> None:
        end = append.previous_index + len(append.entries)
        self.raft.receive(sender, Appended(self.raft.term, True, end, append.sent_ms), self.now_ms)


def test_single_controller_leads_at_once_and_agrees_with_itself() -> None:
    one = One(())
    one.raft.tick(one.now_ms)
    assert one.raft.is_sure(one.now_ms)
    one.raft.propose("w1", one.now_ms)
    assert one.machine.words == ["w1"]
    one.start()
    assert one.machine.words == []
    one.raft.tick(one.now_ms)
    assert (one.machine.words, one.raft.term) == (["w1"], 2)


def test_new_term_begins_only_once_a_majority_would_vote() -> None:
    one = One()
    one.wait(1_000)
    assert one.take() == [("n1", Solicit(1, 0, 0, True)), ("n2", Solicit(1, 0, 0, True))]
    assert one.raft.term == 0
    one.hear("n1", Ballot(0, granted=False, pre=True))
    assert one.raft.term == 0
    one.raft.receive("n2", Ballot(1, granted=True, pre=True), one.now_ms)
    assert one.take() == [("n1", Solicit(1, 0, 0)), ("n2", Solicit(1, 0, 0))]
    assert one.raft.term == 1


def test_vote_is_given_once_in_a_term_also_after_a_restart() -> None:
    one = One()
    one.wait(890)
    assert one.hear("n1", Solicit(4, 0, 0)) == []
    one.now_ms += 200
    assert one.hear("n1", Solicit(4, 0, 0)) == [Ballot(4, granted=True)]
    assert one.hear("n2", Solicit(4, 0, 0)) == [Ballot(4, granted=False)]
    one.start()
    assert one.hear("n2", Solicit(4, 0, 0)) == []
    one.now_ms += 1_000
    assert one.hear("n2", Solicit(4, 0, 0)) == [Ballot(4, granted=False)]
    assert one.hear("n1", Solicit(4, 0, 0)) == [Ballot(4, granted=True)]


def test_vote_is_refused_to_nobody_who_has_waited_for_the_leader_but_heard_the_last_of_it_a_little_earlier() -> None:
    one = One()
    one.hear("n1", Append(3, 0, 0, 0, 1))
    # n2 heard it 60 ms earlier, and has waited as long as anybody has to at least.
    one.now_ms += TIMES.election_ms - 60
    assert one.hear("n2", Solicit(4, 0, 0, True)) == [Ballot(4, granted=True, pre=True)]
    one.hear("n1", Append(3, 0, 0, 0, 1))
    # While the leader may still count on the answer, there is none.
    one.now_ms += TIMES.lease_ms
    assert one.hear("n2", Solicit(4, 0, 0, True)) == [Ballot(3, granted=False, pre=True)]
    assert one.hear("n2", Solicit(4, 0, 0)) == []


def test_no_vote_for_who_has_less() -> None:
    one = One()
    one.hear("n1", Append(3, 0, 0, 0, 1, [Entry(2, "w1"), Entry(3, "w2")]))
    one.now_ms += 1_000
    assert one.hear("n2", Solicit(4, 1, 3)) == [Ballot(4, granted=False)]
    assert one.hear("n2", Solicit(4, 9, 2)) == [Ballot(4, granted=False)]
    assert one.hear("n2", Solicit(4, 2, 3)) == [Ballot(4, granted=True)]


def test_leader_is_sure_while_a_majority_answers_and_gives_up_in_the_end() -> None:
    one = One()
    one.lead()
    assert one.raft.is_sure(one.now_ms)
    one.wait(TIMES.lease_ms)
    assert not one.raft.is_sure(one.now_ms)
    assert one.raft.role is Role.LEADER
    # An answer counts from when that was sent which it answers.
    one.acknowledge("n1", Append(one.raft.term, 1, 1, 0, one.now_ms - TIMES.lease_ms + 100))
    assert one.raft.is_sure(one.now_ms)
    one.wait(100)
    assert not one.raft.is_sure(one.now_ms)
    one.wait(2_000)
    with pytest.raises(NotLeading):
        one.raft.propose("w1", one.now_ms)


def test_leader_is_not_sure_before_what_others_had_agreed_to_is_applied() -> None:
    one = One()
    one.hear("n1", Append(1, 0, 0, 0, 1, [Entry(1, "w1")]))
    one.wait(1_000)
    one.raft.receive("n2", Ballot(2, granted=True, pre=True), one.now_ms)
    one.raft.receive("n2", Ballot(2, granted=True), one.now_ms)
    assert one.raft.is_leader
    one.raft.receive("n2", Appended(2, False, 0, one.now_ms), one.now_ms)
    assert not one.raft.is_sure(one.now_ms)
    assert one.raft.known_leader is None
    # The entry of an earlier term alone is not agreed to, though a majority has it.
    one.raft.receive("n2", Appended(2, True, 1, one.now_ms), one.now_ms)
    assert one.machine.words == []
    one.raft.receive("n2", Appended(2, True, 2, one.now_ms), one.now_ms)
    assert one.machine.words == ["w1"]
    assert one.raft.is_sure(one.now_ms)
    assert one.raft.known_leader == "n0"


def test_follower_takes_what_follows_and_says_where_its_log_ends() -> None:
    one = One()
    assert one.hear("n1", Append(1, 5, 1, 0, 7, [Entry(1, "w9")])) == [Appended(1, False, 0, 7)]
    assert one.hear("n1", Append(1, 0, 0, 1, 8, [Entry(1, "w1"), Entry(1, "w2")])) == [Appended(1, True, 2, 8)]
    assert one.machine.words == ["w1"]
    # Another leader has another second entry; the same message may come twice.
    other = Append(2, 1, 1, 2, 9, [Entry(2, "w3")])
    assert one.hear("n2", other) == [Appended(2, True, 2, 9)]
    assert one.hear("n2", other) == [Appended(2, True, 2, 9)]
    assert one.machine.words == ["w1", "w3"]
    # An old leader learns of the newer term.
    assert one.hear("n1", Append(1, 2, 1, 2, 10)) == [Appended(2, False, 2, 10)]
    with pytest.raises(FormatError, match="was agreed to"):
        one.hear("n2", Append(3, 0, 0, 2, 9, [Entry(3, "w4")]))


def test_snapshot_is_sent_to_who_is_behind_it_and_taken() -> None:
    one = One()
    assert one.hear("n1", Install(1, 3, 1, 5, "w1 w2")) == [Appended(1, True, 3, 5)]
    assert one.machine.words == ["w1", "w2"]
    one.start()
    assert one.machine.words == ["w1", "w2"]
    assert one.hear("n1", Append(1, 2, 1, 4, 6, [Entry(1, "w2"), Entry(1, "w3")])) == [Appended(1, True, 4, 6)]
    assert one.machine.words == ["w1", "w2", "w3"]
    one.lead()
    # n2 has nothing. It gets the state once, and then heartbeats only.
    first = one.hear("n2", Appended(one.raft.term, False, 0, one.now_ms))
    assert first == [Install(one.raft.term, 3, 1, one.now_ms, "w1 w2")]
    assert one.hear("n2", Appended(one.raft.term, False, 0, one.now_ms)) == []
    one.wait(200)
    assert [message for receiver, message in one.take() if receiver == "n2" and isinstance(message, Install)] == []
    sent = one.hear("n2", Appended(one.raft.term, True, 3, one.now_ms))
    assert isinstance(sent[0], Append)
    assert [entry.text for entry in sent[0].entries] == ["w3", ""]


def test_controller_that_has_lost_its_log_gets_it_again(caplog: pytest.LogCaptureFixture) -> None:
    one = One()
    one.lead()
    one.raft.propose("w1", one.now_ms)
    one.acknowledge("n1", Append(one.raft.term, 1, 1, 0, one.now_ms, [Entry(1, "w1")]))
    one.take()
    late = Appended(one.raft.term, False, 0, one.now_ms)
    assert [message.previous_index for message in one.hear("n1", late) if isinstance(message, Append)] == [2]
    one.wait(100)
    one.take()
    with caplog.at_level(logging.ERROR):
        found = one.hear("n1", late._replace(sent_ms=one.now_ms))
    assert [message.previous_index for message in found if isinstance(message, Append)] == [0]
    assert "has lost entries" in caplog.text


IMPOSSIBLE: dict[str, Callable[[One], Message]] = {
    "a term far ahead": lambda one: Append(one.raft.term + (1 << 33), 0, 0, 0, 1),
    "a state far ahead": lambda one: Install(one.raft.term + 1, 1 << 33, 1, 1, "w1"),
    "entries that were not sent": lambda one: Appended(one.raft.term, True, 99, one.now_ms),
    "an answer from the future": lambda one: Appended(one.raft.term, True, 1, one.now_ms + 1),
    "another leader in its own term": lambda one: Append(one.raft.term, 0, 0, 9, 1),
}


@pytest.mark.parametrize("make", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_message_changes_nothing(make: Callable[[One], Message]) -> None:
    one = One()
    one.lead()
    term = one.raft.term
    assert one.hear("n2", make(one)) == []
    assert (one.raft.role, one.raft.term, one.machine.words) == (Role.LEADER, term, [])
    one.wait(TIMES.lease_ms)
    assert not one.raft.is_sure(one.now_ms)
    # Neither does one of a stranger.
    one.raft.receive("n9", Append(term + 1, 0, 0, 0, 1), one.now_ms)
    assert one.raft.term == term


def test_commands_that_are_none_are_refused_where_they_come_in() -> None:
    one = One()
    with pytest.raises(FormatError):
        one.hear("n1", Append(1, 0, 0, 1, 1, [Entry(1, "x")]))
    with pytest.raises(FormatError):
        one.hear("n1", Install(1, 3, 1, 5, "x"))
    one.start()
    assert (one.raft.applied, one.machine.words) == (0, [])


def test_controller_that_cannot_write_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    one = One()
    one.hear("n1", Append(1, 0, 0, 0, 1, [Entry(1, "w1")]))
    one.file.is_full = True
    one.now_ms += 1_000
    assert one.hear("n1", Append(1, 1, 1, 1, 2, [Entry(1, "w2")])) == []
    assert one.hear("n1", Append(1, 1, 1, 1, 3)) == [Appended(1, True, 1, 3)]
    one.now_ms += 1_000
    assert one.hear("n2", Solicit(2, 9, 1)) == []
    assert "cannot be written" in caplog.text
    one.file.is_full = False
    assert one.hear("n2", Solicit(2, 9, 1)) == [Ballot(2, granted=True)]


def test_leader_that_cannot_write_gives_way() -> None:
    one = One()
    one.lead()
    one.file.is_full = True
    with pytest.raises(OSError, match="No space"):
        one.raft.propose("w1", one.now_ms)
    assert not one.raft.is_leader


def test_entries_that_the_leader_has_not_compared_are_not_agreed_to() -> None:
    one = One()
    one.hear("n1", Append(1, 0, 0, 0, 1, [Entry(1, "w1"), Entry(1, "w2")]))
    assert one.hear("n2", Append(2, 1, 1, 2, 2)) == [Appended(2, True, 1, 2)]
    assert one.machine.words == ["w1"]


def test_leader_of_an_earlier_term_is_not_heard() -> None:
    one = One()
    one.hear("n1", Append(3, 0, 0, 0, 1))
    one.now_ms += 1_000
    assert one.hear("n2", Solicit(4, 0, 0)) == [Ballot(4, granted=True)]
    assert one.hear("n1", Append(3, 0, 0, 0, 2, [Entry(3, "w1")])) == [Appended(4, False, 0, 2)]
    assert one.raft.leader_id is None
    # It does not hold up the next election either.
    assert one.hear("n2", Solicit(5, 0, 0, True)) == [Ballot(5, granted=True, pre=True)]


def test_late_vote_of_an_earlier_term_does_not_count() -> None:
    one = One()
    for term in (1, 2):
        one.wait(1_000)
        one.raft.receive("n2", Ballot(term, granted=True, pre=True), one.now_ms)
        assert (one.raft.role, one.raft.term) == (Role.CANDIDATE, term)
    one.raft.receive("n1", Ballot(1, granted=True), one.now_ms)
    assert not one.raft.is_leader
    one.raft.receive("n1", Ballot(2, granted=True), one.now_ms)
    assert one.raft.is_leader
