"""A controller's decisions: against all that Apache's controller was asked, and each rule by itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from broker.rocketmq.controller.decisions import Decision, Decisions
from broker.rocketmq.controller.election import choose_master
from broker.rocketmq.controller.groups import CleanBrokers, Elect, Groups, SetAddress, SetMembers
from broker.rocketmq.controller.liveness import BrokerKey, Live, Liveness
from formats.rocketmq.remoting.bodies.controllers import BROKER_REPLICAS, SYNC_STATE_SET, SyncStateSet
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers import replicating as headers
from formats.rocketmq.remoting.headers.codec import codec_of
from formats.rocketmq.remoting.headers.routing import BrokerHeartbeatRequest
from formats.rocketmq.remoting.headers.table import HEADERS
from tests.formats.rocketmq.frames_rig import all_frames
from tests.golden.rocketmq.captures import streams

CONTROLLER_PORT = 19878
NAME = "broker-c"


@dataclass
class Controller:
    """A controller whose commands are agreed upon at once."""

    unclean: bool = False
    groups: Groups = field(default_factory=Groups)
    alive: dict[int, Live] = field(default_factory=dict)
    decisions: Decisions = field(init=False)

    def __post_init__(self) -> None:
        self.decisions = Decisions(self.groups, lambda name, each: self.alive.get(each), unclean=self.unclean)

    def do(self, decision: Decision) -> Decision:
        if decision.command is not None:
            self.groups.apply(decision.command)
        return decision

    def hear(self, broker_id: int, epoch: int = 1, offset: int = 0, priority: int = 0) -> None:
        self.alive[broker_id] = Live(0, 10_000, epoch, offset, priority, None)

    def come(self, count: int) -> None:
        """Register brokers, of which the first is elected."""
        for each in range(1, count + 1):
            code = f"10.0.0.{each}:10911;{each}"
            assert self.do(self.decisions.apply_id(headers.ApplyBrokerIdRequest("c", NAME, each, code))).code == 0
            self.hear(each)
        assert self.elect(1).code == 0

    def elect(self, broker_id: int, *, designated: bool = False) -> Decision:
        return self.do(self.decisions.elect(headers.ElectMasterRequest("c", NAME, broker_id, designated)))

    def alter(self, members: list[int], master: int = 1, master_epoch: int = 1, epoch: int = 1) -> Decision:
        asked = headers.AlterSyncStateSetRequest(NAME, master, master_epoch)
        return self.do(self.decisions.alter_members(asked, SyncStateSet(members, epoch)))


def controller(count: int = 3, *, unclean: bool = False) -> Controller:
    made = Controller(unclean)
    made.come(count)
    return made


def captured() -> list[tuple[int, Frame, Frame | None]]:
    """All requests of a capture to the controller: time in microseconds, request, and answer if there is one."""
    asked: dict[tuple[int, int], tuple[int, Frame]] = {}
    answers: dict[tuple[int, int], Frame] = {}
    for stream in streams("ha-controller/c1-register-elect-sync.pcap.xz"):
        at = 0
        if CONTROLLER_PORT not in (stream.source, stream.target):
            continue
        for frame, data in all_frames(stream.data):
            at += len(data)
            if stream.target == CONTROLLER_PORT and not frame.is_response:
                asked[stream.source, frame.opaque] = (stream.time_of(at), frame)
            elif stream.source == CONTROLLER_PORT and frame.is_response:
                answers[stream.target, frame.opaque] = frame
    return sorted(((*found, answers.get(key)) for key, found in asked.items()), key=lambda each: each[0])


def test_apache_controller_would_answer_the_same() -> None:
    """Three brokers come, one is elected, and the SyncStateSet grows."""
    groups, liveness = Groups(), Liveness()
    now_ms = 0
    decisions = Decisions(groups, lambda name, each: liveness.get(BrokerKey(name, each), now_ms))
    heartbeat = codec_of(BrokerHeartbeatRequest)
    ways: dict[int, Any] = {
        RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: decisions.next_id,
        RequestCode.CONTROLLER_APPLY_BROKER_ID: decisions.apply_id,
        RequestCode.CONTROLLER_REGISTER_BROKER: decisions.register,
        RequestCode.CONTROLLER_ELECT_MASTER: decisions.elect,
        RequestCode.CONTROLLER_GET_REPLICA_INFO: decisions.replica_info,
    }
    seen: dict[int, int] = {}
    for micros, request, answer in captured():
        now_ms = micros // 1000
        fields = request.ext_fields or {}
        code = request.code
        if code == RequestCode.BROKER_HEARTBEAT:
            told = heartbeat.read(fields)
            live = Live(now_ms, told.heartbeat_timeout_ms or 10_000, told.epoch or 0, told.max_offset or 0, 0, None)
            liveness.hear(BrokerKey(told.broker_name, told.broker_id or 0), live)
            continue
        if answer is None:
            continue
        codecs = HEADERS.get(code)
        header = None if codecs is None or codecs.request is None else codecs.request.read(fields)
        if code == RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
            decision = decisions.alter_members(header, SYNC_STATE_SET.read(request.body))  # type: ignore[arg-type]
        elif code == RequestCode.CONTROLLER_GET_SYNC_STATE_DATA:
            decision = decisions.sync_state([NAME])
        elif code in ways:
            decision = ways[code](header)
        else:
            continue
        assert (decision.code, decision.remark) == (answer.code, answer.remark)
        written = codecs.response.write(decision.header) if codecs and codecs.response and decision.header else {}
        assert written == (answer.ext_fields or {}), code
        assert decision.body == bytes(answer.body), code
        if decision.command is not None:
            groups.apply(decision.command)
        seen[code] = seen.get(code, 0) + 1
    assert len(groups.by_name[NAME].members) > 1
    assert set(ways) <= set(seen)
    assert seen[RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET] >= 2


def test_id_is_given_once() -> None:
    made = controller(1)
    again = headers.ApplyBrokerIdRequest("c", NAME, 1, "10.0.0.1:10911;1")
    assert made.do(made.decisions.apply_id(again)).code == 0
    other = made.decisions.apply_id(again._replace(register_check_code="10.0.0.9:10911;7"))
    assert (other.code, other.command) == (ResponseCode.CONTROLLER_BROKER_ID_INVALID, None)
    assert made.groups.by_name[NAME].next_id == 2
    first = Controller().decisions.apply_id(again._replace(applied_broker_id=2))
    assert first.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID


def test_broker_with_another_address_is_known_by_its_id() -> None:
    made = controller(2)
    asked = headers.RegisterBrokerToControllerRequest("c", NAME, 2, "10.0.0.77:10911")
    assert made.do(made.decisions.register(asked)).command == SetAddress(NAME, 2, "10.0.0.77:10911")
    assert made.groups.by_name[NAME].address(2) == "10.0.0.77:10911"
    assert made.decisions.register(asked).command is None
    unknown = made.decisions.register(asked._replace(broker_id=9))
    assert unknown.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED


def test_master_that_is_not_alive_is_not_told() -> None:
    made = controller(2)
    del made.alive[1]
    told = made.decisions.register(headers.RegisterBrokerToControllerRequest("c", NAME, 2, "10.0.0.2:10911"))
    assert isinstance(told.header, headers.RegisterBrokerToControllerResponse)
    assert told.header.master_broker_id is None


REFUSALS: dict[str, tuple[dict[str, Any], ResponseCode]] = {
    "the same": ({"members": [1]}, ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
    "not the master": ({"members": [1, 2], "master": 2}, ResponseCode.CONTROLLER_INVALID_MASTER),
    "an old master epoch": ({"members": [1, 2], "master_epoch": 0}, ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH),
    "an old set": ({"members": [1, 2], "epoch": 0}, ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH),
    "an unknown broker": ({"members": [1, 9]}, ResponseCode.CONTROLLER_INVALID_REPLICAS),
    "a dead broker": ({"members": [1, 3]}, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE),
    "without the master": ({"members": [2]}, ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
}


@pytest.mark.parametrize(("asked", "code"), REFUSALS.values(), ids=REFUSALS)
def test_set_that_is_refused(asked: dict[str, Any], code: ResponseCode) -> None:
    made = controller()
    del made.alive[3]
    decision = made.alter(**asked)
    assert (decision.code, decision.command) == (code, None)
    assert made.groups.by_name[NAME].members == {1}


def test_old_master_is_fenced_after_an_election() -> None:
    made = controller()
    made.alter([1, 2])
    del made.alive[1]
    assert made.elect(-1).command == Elect(NAME, 2)
    made.hear(1)
    assert made.alter([1, 3], epoch=3).code == ResponseCode.CONTROLLER_INVALID_MASTER
    group = made.groups.by_name[NAME]
    assert (group.master, group.master_epoch, group.members, group.members_epoch) == (2, 2, frozenset({2}), 3)
    # Elected again, it is another master, who does not know what the first one knew.
    made.alter([2, 1], master=2, master_epoch=2, epoch=3)
    assert made.elect(1, designated=True).code == 0
    assert made.alter([1, 3], master=1, master_epoch=1, epoch=5).code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH


def test_master_comes_from_those_in_sync_unless_others_are_permitted() -> None:
    for unclean in (False, True):
        made = controller(unclean=unclean)
        del made.alive[1]
        assert made.decisions.without_master() == [NAME]
        decision = made.elect(-1)
        group = made.groups.by_name[NAME]
        assert group.master == (2 if unclean else None)
        assert group.master_epoch == 2
        if not unclean:
            assert decision.code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
            assert made.elect(2).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
            # The one that was in sync comes back.
            made.hear(1)
            assert made.elect(1).command == Elect(NAME, 1)
            assert group.master_epoch == 3


def test_master_that_is_alive_stays() -> None:
    made = controller()
    decision = made.elect(2)
    assert (decision.code, decision.command) == (ResponseCode.CONTROLLER_MASTER_STILL_EXIST, None)
    assert made.decisions.without_master() == []
    assert made.elect(2, designated=True).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED


ELECTIONS = {
    "the highest epoch": ({1: (3, 10, 0), 2: (4, 5, 9)}, 2),
    "then the longest log": ({1: (3, 10, 0), 2: (3, 11, 9)}, 2),
    "then the least priority": ({1: (3, 10, 5), 2: (3, 10, 1)}, 2),
    "then the least id": ({1: (3, 10, 5), 2: (3, 10, 5)}, 1),
    "lengths far apart": ({1: (3, 1 << 40, 0), 2: (3, 1, 0)}, 1),
}


@pytest.mark.parametrize(("brokers", "chosen"), ELECTIONS.values(), ids=ELECTIONS)
def test_best_broker_is_chosen(brokers: dict[int, tuple[int, int, int]], chosen: int) -> None:
    alive = {each: Live(0, 0, *what, None) for each, what in brokers.items()}
    assert choose_master(brokers, (), alive, None) == chosen
    assert choose_master((), brokers, alive, None) == chosen
    assert choose_master(brokers, (), alive, None, wanted=3 - chosen) == 3 - chosen
    assert choose_master((), (), alive, None) is None


def test_all_is_told_of_a_name() -> None:
    made = controller()
    made.alter([1, 2])
    del made.alive[3]
    told = BROKER_REPLICAS.read(made.decisions.sync_state([NAME, "other"]).body).replicas_info_table
    assert list(told) == [NAME]
    found = told[NAME]
    assert (found.master_broker_id, found.master_epoch, found.sync_state_set_epoch) == (1, 1, 2)
    assert [(each.broker_id, each.alive) for each in found.in_sync_replicas] == [(1, True), (2, True)]
    assert [(each.broker_id, each.alive) for each in found.not_in_sync_replicas] == [(3, False)]


def test_brokers_are_forgotten_when_they_are_dead_or_that_is_said() -> None:
    made = controller()
    clean = headers.CleanBrokerDataRequest(NAME, "c", "3")
    invalid = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert made.decisions.clean(clean).code == invalid
    assert made.decisions.clean(clean._replace(broker_controller_ids_to_clean=None)).code == invalid
    assert made.decisions.clean(clean._replace(broker_controller_ids_to_clean="x")).code == invalid
    assert made.decisions.clean(clean._replace(broker_name="other")).code == invalid
    del made.alive[3]
    assert made.do(made.decisions.clean(clean)).command == CleanBrokers(NAME, frozenset({3}))
    assert sorted(made.groups.by_name[NAME].replicas) == [1, 2]
    # Ids are not given twice, and epochs go on.
    assert (made.groups.by_name[NAME].next_id, made.groups.by_name[NAME].master_epoch) == (4, 1)
    made.do(made.decisions.clean(clean._replace(broker_controller_ids_to_clean=None, clean_living=True)))
    assert made.groups.by_name == {}


def test_commands_for_unknown_names_change_nothing() -> None:
    groups = Groups()
    for command in (SetMembers("x", frozenset({1})), Elect("x", 1), SetAddress("x", 1, "a"), CleanBrokers("x", None)):
        groups.apply(command)
    assert groups.by_name == {}


def test_brokers_are_alive_while_they_are_heard_and_connected() -> None:
    liveness = Liveness()
    one, two, key = object(), object(), BrokerKey(NAME, 1)
    liveness.hear(key, Live(1000, 500, 1, 0, 0, one))
    liveness.hear(BrokerKey(NAME, 2), Live(1200, 500, 1, 0, 0, two))
    assert liveness.get(key, 1500) is not None
    assert liveness.get(key, 1501) is None
    assert liveness.expire(1501) == [key]
    assert liveness.lost(two) == [BrokerKey(NAME, 2)]
    assert liveness.expire(9000) == []
