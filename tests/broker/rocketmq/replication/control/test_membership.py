"""A broker and its controllers: how it gets its id, learns who is master, and what it does not believe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from broker.rocketmq.replication.control.appointments import Appointment, InSync
from broker.rocketmq.replication.control.membership import LEAD_AGAIN_MS, ControlledMembership, LogState
from broker.rocketmq.replication.lifecycles import MEMBER_TRANSITIONS, MemberEvent, MemberState
from broker.rocketmq.replication.options import ReplicationOptions
from broker.rocketmq.tables.options import BrokerOptions
from formats.rocketmq.files.identity import BrokerIdentity
from formats.rocketmq.remoting.bodies.controllers import SYNC_STATE_SET, SyncStateSet
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame

EMPTY = LogState(-1, -1, 0, 0)
OTHER = "10.0.0.2:10911"
OWN = BrokerIdentity("DefaultCluster", "broker-a", 3)
NEXT, APPLY = RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, RequestCode.CONTROLLER_APPLY_BROKER_ID
REGISTER, ELECT = RequestCode.CONTROLLER_REGISTER_BROKER, RequestCode.CONTROLLER_ELECT_MASTER
REPLICAS, ALTER = RequestCode.CONTROLLER_GET_REPLICA_INFO, RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET


@dataclass
class Cell:
    """A broker with simulated controllers, and roles that only record their calls."""

    known: BrokerIdentity | None = OWN
    log_state: LogState = EMPTY
    has_leader: bool = True
    can_lead: bool = True
    now_ms: int = 0
    asked: list[tuple[Frame, Callable[[Frame | None], None]]] = field(default_factory=list)
    beats: list[dict[str, str]] = field(default_factory=list)
    files: list[BrokerIdentity | None] = field(default_factory=list)
    told: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        options = ReplicationOptions(is_controlled=True, priority=7)
        self.member = ControlledMembership(
            BrokerOptions(), options, self, self, self, lambda: self.now_ms, lambda: 1_000
        )

    # -- the controllers

    def tell(self, request: Frame) -> None:
        assert request.code == RequestCode.BROKER_HEARTBEAT
        self.beats.append(request.ext_fields or {})

    def ask(self, request: Frame, now_ms: int, done: Callable[[Frame | None], None]) -> None:
        self.asked.append((request, done))

    def tick(self, now_ms: int) -> None: ...
    def close(self) -> None: ...

    # -- the files

    def keep(self, identity: BrokerIdentity) -> None:
        self.files.append(identity)
        self.known = identity

    def forget(self) -> None:
        self.files.append(None)
        self.known = None

    # -- the roles

    def lead(self, epoch: int, in_sync: InSync) -> bool:
        self.told.append(("lead", epoch, *in_sync))
        return self.can_lead

    def follow(self, appointment: Appointment) -> None:
        self.told.append(("follow", appointment.epoch, appointment.address))

    def appoint(self, in_sync: InSync) -> None:
        self.told.append(("appoint", *in_sync))

    def answered(self, taken: InSync | None, is_refused: bool) -> None:
        self.told.append((taken, is_refused))

    # -- the test

    def state(self) -> MemberState:
        return self.member.state

    def pass_time(self, ms: int) -> None:
        for _ in range(ms // 250):
            self.now_ms += 250
            self.member.tick()

    def answer(
        self, code: RequestCode, answer: int | None = 0, members: Any = None, epoch: int = 1, **fields: Any
    ) -> None:
        """Answer the question that was asked, which has to be this one."""
        self.member.tick()
        request, done = self.asked.pop(0)
        assert request.code == code
        body = b"" if members is None else SYNC_STATE_SET.write(SyncStateSet(sorted(members), epoch))
        named = {name: str(value) for name, value in fields.items() if value is not None}
        done(None if answer is None else Frame(answer, 0, ext_fields=named, body=body))

    def settle(self, master: int, epoch: int = 1, members: Any = None) -> None:
        """Register, with a master that is there."""
        address = "127.0.0.1:10911" if master == OWN.broker_id else OTHER
        self.answer(
            REGISTER,
            members={master} if members is None else members,
            masterBrokerId=master,
            masterAddress=address,
            masterEpoch=epoch,
            syncStateSetEpoch=1,
        )

    def replicas(self, master: int | None, epoch: int, members: Any, set_epoch: int = 1) -> None:
        """Have it ask who is master, and answer."""
        self.pass_time(5_000)
        address = None if master is None else "127.0.0.1:10911" if master == OWN.broker_id else OTHER
        self.answer(REPLICAS, 0, members, set_epoch, masterBrokerId=master, masterAddress=address, masterEpoch=epoch)


def fields_of(cell: Cell) -> dict[str, str]:
    cell.member.tick()
    return cell.asked[0][0].ext_fields or {}


def test_new_broker_gets_an_id_registers_and_is_elected() -> None:
    cell = Cell(known=None)
    cell.answer(NEXT, nextBrokerId=4)
    applicant = BrokerIdentity("DefaultCluster", "broker-a", 4, "127.0.0.1:10911;1000")
    assert cell.files == [applicant]
    asked = fields_of(cell)
    assert (asked["appliedBrokerId"], asked["registerCheckCode"]) == ("4", applicant.check_code)
    cell.answer(APPLY)
    assert cell.files == [applicant, applicant._replace(check_code="")]
    asked = fields_of(cell)
    assert (asked["brokerId"], asked["brokerAddress"]) == ("4", "127.0.0.1:10911")
    assert cell.beats == []
    cell.answer(REGISTER, members=())
    # A controller elects those only that it has heard of.
    assert cell.beats[0] | {"brokerId": "4", "epoch": "-1", "electionPriority": "7"} == cell.beats[0]
    assert fields_of(cell)["designateElect"] == "false"
    cell.answer(ELECT, 0, {4}, masterBrokerId=4, masterAddress="127.0.0.1:10911", masterEpoch=1, syncStateSetEpoch=1)
    assert cell.told == [("lead", 1, frozenset({4}), 1)]
    assert cell.member.state is MemberState.LEADING


def test_id_of_another_broker_is_given_up() -> None:
    cell = Cell(known=None)
    cell.answer(NEXT, nextBrokerId=4)
    cell.answer(APPLY, ResponseCode.CONTROLLER_BROKER_ID_INVALID)
    assert cell.files[-1] is None
    cell.pass_time(1_000)
    cell.answer(NEXT, nextBrokerId=5)
    assert cell.known is not None
    assert cell.known.broker_id == 5


def test_applicant_that_was_killed_applies_with_the_same_code() -> None:
    cell = Cell(known=OWN._replace(check_code="127.0.0.1:10911;77"))
    assert fields_of(cell)["registerCheckCode"] == "127.0.0.1:10911;77"
    cell.answer(APPLY, None)
    cell.pass_time(1_000)
    cell.answer(APPLY)
    assert cell.files == [OWN]


@pytest.mark.parametrize("told", [0, -1, None])
def test_id_that_cannot_be_is_not_taken(told: int | None) -> None:
    cell = Cell(known=None)
    cell.answer(NEXT, nextBrokerId=told)
    assert cell.files == []
    assert cell.member.state is MemberState.NAMELESS


def test_nothing_is_asked_while_no_controller_leads() -> None:
    cell = Cell(has_leader=False)
    cell.pass_time(5_000)
    assert cell.asked == []
    cell.has_leader = True
    cell.settle(2)
    assert cell.told == [("follow", 1, OTHER)]


def test_roles_change_with_higher_epochs_only() -> None:
    cell = Cell()
    cell.settle(2, epoch=4)
    cell.replicas(2, 4, {2})
    cell.replicas(3, 3, {3})
    assert cell.told == [("follow", 4, OTHER)]
    cell.replicas(3, 5, {3}, 9)
    assert cell.told[1:] == [("lead", 5, frozenset({3}), 9)]
    cell.replicas(2, 6, {2})
    assert cell.told[2:] == [("follow", 6, OTHER)]
    assert cell.member.state is MemberState.FOLLOWING


def test_word_of_a_controller_counts_at_once() -> None:
    cell = Cell()
    cell.settle(2)
    cell.member.appointed(Appointment(2, 3, "127.0.0.1:10911", InSync(frozenset({3}), 2)))
    assert cell.told[1:] == [("lead", 2, frozenset({3}), 2)]


def test_master_is_told_of_the_set_it_has() -> None:
    cell = Cell()
    cell.settle(3)
    cell.replicas(3, 1, {2, 3}, 5)
    assert cell.told[1:] == [("appoint", frozenset({2, 3}), 5)]


def test_master_is_elected_when_there_is_none() -> None:
    cell = Cell()
    cell.settle(2)
    cell.replicas(None, 2, {2, 3})
    cell.answer(ELECT, ResponseCode.CONTROLLER_ELECT_MASTER_FAILED)
    assert len(cell.told) == 1
    cell.replicas(None, 2, {2, 3})
    cell.answer(ELECT, 0, {3}, masterBrokerId=3, masterAddress="127.0.0.1:10911", masterEpoch=3, syncStateSetEpoch=4)
    assert cell.told[1:] == [("lead", 3, frozenset({3}), 4)]


@pytest.mark.parametrize("master", [2, 3])
def test_forgotten_broker_registers_again_and_stays_what_it_is(master: int) -> None:
    cell = Cell()
    cell.settle(master)
    state = cell.member.state
    cell.pass_time(5_000)
    cell.answer(REPLICAS, ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST)
    cell.answer(REGISTER, members=())
    assert cell.member.state is state
    assert len(cell.told) == 1


def test_broker_that_cannot_lead_is_asked_again() -> None:
    cell = Cell(can_lead=False)
    cell.settle(3)
    assert cell.state() is MemberState.REGISTERED
    cell.can_lead = True
    cell.answer(
        ELECT, ResponseCode.CONTROLLER_MASTER_STILL_EXIST, {3}, masterBrokerId=3, masterAddress=OTHER, masterEpoch=1
    )
    assert cell.state() is MemberState.LEADING


# Power may have failed on a part of the last epoch's records, or on all of them.
@pytest.mark.parametrize("log_state", [LogState(4, 4, 100, 100), LogState(4, 3, 80, 80)])
def test_old_master_lets_another_one_be_elected(log_state: LogState) -> None:
    cell = Cell(log_state=log_state)
    cell.settle(3, 4, {2, 3})
    cell.pass_time(3_000)
    assert (cell.told, cell.beats) == ([], [])
    cell.answer(REPLICAS, 0, {2}, masterBrokerId=2, masterAddress=OTHER, masterEpoch=5)
    assert cell.told == [("follow", 5, OTHER)]
    cell.pass_time(1_000)
    assert len(cell.beats) == 1


@pytest.mark.parametrize(("members", "pause_ms"), [({2, 3}, LEAD_AGAIN_MS), ({3}, 0)])
def test_old_master_leads_again_in_another_epoch_only(members: set[int], pause_ms: int) -> None:
    cell = Cell(log_state=LogState(4, 4, 100, 100))
    cell.settle(3, 4, members)
    still: dict[str, Any] = {"masterBrokerId": 3, "masterAddress": OTHER, "masterEpoch": 4}
    while cell.now_ms < pause_ms - 1_000:
        cell.pass_time(1_000)
        cell.answer(REPLICAS, 0, members, **still)
    cell.pass_time(1_000)
    assert (cell.asked[0][0].ext_fields or {})["brokerId"] == "-1"
    # The controllers may still count the process before as alive.
    cell.answer(ELECT, ResponseCode.CONTROLLER_MASTER_STILL_EXIST, members, **still)
    cell.pass_time(1_000)
    assert (cell.told, cell.beats) == ([], [])
    cell.answer(ELECT, ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE)
    cell.answer(REPLICAS, 0, members, masterEpoch=5)
    cell.pass_time(1_000)
    assert cell.beats
    cell.answer(ELECT, 0, {3}, masterBrokerId=3, masterAddress=OTHER, masterEpoch=6, syncStateSetEpoch=2)
    assert cell.told == [("lead", 6, frozenset({3}), 2)]


@pytest.mark.parametrize("master", [2, 3])
def test_epoch_before_those_in_the_log_is_not_believed(master: int) -> None:
    cell = Cell(log_state=LogState(4, 4, 100, 100))
    cell.settle(master, 3)
    assert cell.told == []


@pytest.mark.parametrize(
    "changes",
    [
        {"masterEpoch": -1},
        {"masterEpoch": 0},
        {"masterEpoch": "x"},
        {"masterAddress": "nowhere"},
        {"epoch": -3},
        {"members": {3, -1}},
        {"members": {3}},
        {"members": set(range(2_000))},
    ],
)
def test_impossible_answer_of_a_controller_is_refused(changes: dict[str, Any]) -> None:
    cell = Cell()
    told: dict[str, Any] = {
        "masterBrokerId": 2,
        "masterAddress": OTHER,
        "masterEpoch": 1,
        "syncStateSetEpoch": 1,
        "members": {2},
    }
    cell.answer(REGISTER, **(told | changes))
    assert cell.told == []
    cell.pass_time(1_000)
    cell.settle(2)
    assert cell.told == [("follow", 1, OTHER)]


def test_set_is_proposed_with_the_epochs_and_taken() -> None:
    cell = Cell()
    cell.settle(3, 2)
    cell.member.propose(frozenset({2, 3}), 6, cell.answered)
    request, done = cell.asked.pop(0)
    assert request.code == ALTER
    assert request.ext_fields is not None
    assert request.ext_fields | {"masterBrokerId": "3", "masterEpoch": "2"} == request.ext_fields
    assert SYNC_STATE_SET.read(request.body) == SyncStateSet([2, 3], 6)
    done(Frame(0, 0, body=SYNC_STATE_SET.write(SyncStateSet([2, 3], 7))))
    assert cell.told[1:] == [(InSync(frozenset({2, 3}), 7), False)]


@pytest.mark.parametrize(
    ("code", "is_refused"),
    [
        (ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, True),
        (ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, True),
        (ResponseCode.SYSTEM_ERROR, False),
        (None, False),
    ],
)
def test_set_counts_until_it_is_refused(code: ResponseCode | None, is_refused: bool) -> None:
    cell = Cell()
    cell.settle(3)
    cell.member.propose(frozenset({2, 3}), 1, cell.answered)
    cell.asked.pop(0)[1](None if code is None else Frame(code, 0))
    assert cell.told[1:] == [(None, is_refused)]


def test_stopped_broker_takes_nothing() -> None:
    cell = Cell()
    cell.member.tick()
    cell.member.stop()
    _, done = cell.asked.pop(0)
    done(Frame(0, 0))
    cell.pass_time(10_000)
    assert (cell.told, cell.asked, cell.beats) == ([], [], [])


def test_every_state_can_be_reached_and_left() -> None:
    left = {state for state, _ in MEMBER_TRANSITIONS}
    assert left == set(MemberState) - {MemberState.STOPPED}
    assert set(MEMBER_TRANSITIONS.values()) == set(MemberState)
    assert {event for _, event in MEMBER_TRANSITIONS} == set(MemberEvent)
