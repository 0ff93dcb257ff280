"""Controllers behind their connections: brokers that come and go, elections, agreement, restarts, and strangers."""

from __future__ import annotations

from typing import Any

import pytest

from broker.rocketmq.access.guard import AccessOptions
from broker.rocketmq.raft.journal import JournalDamaged
from formats.rocketmq.remoting.bodies.access import UserInfo
from formats.rocketmq.remoting.bodies.controllers import SYNC_STATE_SET, SyncStateSet
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers import replicating as headers
from formats.rocketmq.remoting.headers.codec import read_header
from formats.rocketmq.remoting.raft import CODE, RAFT_HEADER, RaftHeader, Solicit, encode_message
from formats.rocketmq.remoting.signature import signed
from tests.broker.rocketmq.controller.rig import CLUSTER, NAME, FakeBroker, Rig
from tests.broker.rocketmq.controller.service_rig import group_of, replicas


def told(rig: Rig, since: int = 0) -> dict[str, headers.NotifyBrokerRoleChangedRequest]:
    """The words to brokers about their master, by address."""
    return {
        address: read_header(headers.NotifyBrokerRoleChangedRequest, frame.ext_fields)
        for member in rig.members.values()
        for address, frame in member.told[since:]
        if frame.code == RequestCode.NOTIFY_BROKER_ROLE_CHANGED
    }


@pytest.mark.parametrize("size", [1, 3])
def test_brokers_register_and_one_is_elected(size: int) -> None:
    rig = Rig(size)
    group_of(rig)
    found = replicas(rig)
    assert (found.master_broker_id, found.master_address, found.master_epoch) == (1, "10.0.0.1:10911", 1)
    assert [each.broker_id for each in found.in_sync_replicas] == [1, 2, 3]
    assert {each.alive for each in found.in_sync_replicas} == {True}
    # Every controller has agreed.
    for member in rig.members.values():
        assert member.service.groups.by_name == rig.leader().service.groups.by_name
    assert told(rig)["10.0.0.2:10911"] == headers.NotifyBrokerRoleChangedRequest("10.0.0.1:10911", 1, 1, 1)


@pytest.mark.parametrize("size", [1, 3])
def test_other_broker_is_elected_at_once_when_the_master_is_cut_off(size: int) -> None:
    rig = Rig(size)
    brokers = group_of(rig)
    rig.pass_time(10_000)
    brokers[1].beat(epoch=1, offset=10)
    brokers[2].beat(epoch=1, offset=30)
    counts = {name: len(member.told) for name, member in rig.members.items()}
    brokers[0].die()
    rig.pass_time(200)
    found = replicas(rig)
    assert (found.master_broker_id, found.master_epoch) == (3, 2)
    assert [each.broker_id for each in found.in_sync_replicas] == [3]
    leader = rig.leader()
    frames = leader.told[counts[leader.name] :]
    assert sorted(address for address, _ in frames) == ["10.0.0.2:10911", "10.0.0.3:10911"]
    changed = headers.NotifyBrokerRoleChangedRequest("10.0.0.3:10911", 2, 3, 3)
    assert read_header(type(changed), frames[0][1].ext_fields) == changed
    assert SYNC_STATE_SET.read(frames[0][1].body) == SyncStateSet([3], 3)
    # The old one comes back and learns its master; its own claim is refused.
    brokers[0].connect()
    header = headers.RegisterBrokerToControllerResponse(CLUSTER, NAME, 3, "10.0.0.3:10911", 2, 3)
    assert read_header(headers.RegisterBrokerToControllerResponse, brokers[0].register().ext_fields) == header
    brokers[0].beat()
    assert brokers[0].alter([1, 2], 1, 2).code == ResponseCode.CONTROLLER_INVALID_MASTER


def test_silent_master_is_replaced_when_its_time_is_over() -> None:
    rig = Rig()
    brokers = group_of(rig, 2)
    rig.pass_time(12_000)
    for _ in range(10):
        brokers[1].beat()
        rig.pass_time(1_000)
    assert replicas(rig).master_broker_id == 2


def test_broker_that_is_not_in_sync_is_elected_only_if_permitted() -> None:
    rig = Rig()
    brokers = group_of(rig, 2)
    assert brokers[0].alter([1], 1, 2).code == 0
    rig.pass_time(10_000)
    brokers[0].beat()
    brokers[1].beat()
    brokers[0].die()
    rig.pass_time(200)
    assert replicas(rig).master_broker_id is None
    assert brokers[1].elect().code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    change = b"enableElectUncleanMaster=true"
    assert rig.peer().call(RequestCode.UPDATE_CONTROLLER_CONFIG, change).code == 0
    assert rig.members["n0"].kept == {"enableElectUncleanMaster": "true"}
    assert b"enableElectUncleanMaster=true" in rig.peer().call(RequestCode.GET_CONTROLLER_CONFIG).body
    brokers[1].beat()
    assert brokers[1].elect().code == 0
    assert replicas(rig).master_broker_id == 2


def test_all_is_there_after_a_kill() -> None:
    rig = Rig()
    brokers = group_of(rig)
    before = replicas(rig)
    file = rig.members["n0"].file
    state = rig.leader().service.groups.by_name
    # Each answer was on the disk: the journal is read as it is at that moment.
    rig.kill("n0")
    rig.start("n0")
    assert rig.leader().service.groups.by_name == state
    assert rig.members["n0"].file is file
    for broker in brokers:
        broker.connect()
        broker.beat()
    assert replicas(rig) == before


def test_controller_that_has_just_started_elects_nobody_in_place_of_a_master_that_it_has_not_heard() -> None:
    rig = Rig()
    brokers = group_of(rig, 2)
    rig.kill("n0")
    rig.start("n0")
    rig.leader()
    for broker in brokers:
        broker.connect()
    brokers[1].beat()
    answer = brokers[1].elect()
    assert answer.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    assert "just started" in (answer.remark or "")
    rig.pass_time(6_000)
    brokers[1].beat()
    assert replicas(rig).master_broker_id == 1
    # It does not come.
    rig.pass_time(9_000)
    assert replicas(rig).master_broker_id == 2


def test_master_that_comes_back_with_its_controller_stays_master() -> None:
    rig = Rig()
    brokers = group_of(rig, 2)
    rig.kill("n0")
    rig.start("n0")
    rig.leader()
    for broker in brokers:
        broker.connect()
        broker.beat()
    answer = brokers[0].elect()
    assert answer.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    assert replicas(rig).master_epoch == 1


def test_followers_send_askers_to_the_leader() -> None:
    rig = Rig(3)
    leader = rig.leader()
    for name in rig.members:
        answer = rig.peer(name).call(RequestCode.CONTROLLER_GET_METADATA_INFO)
        header = read_header(headers.GetControllerMetadataResponse, answer.ext_fields)
        assert header.controller_leader_id == leader.name
        assert header.controller_leader_address == rig.addresses[leader.name]
        assert header.is_leader == (name == leader.name)
        assert header.peers == "n0:10.0.1.0:9878;n1:10.0.1.1:9878;n2:10.0.1.2:9878;"
    follower = next(name for name in rig.members if name != leader.name)
    for code in (RequestCode.CONTROLLER_GET_REPLICA_INFO, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID):
        answer = rig.peer(follower).call(code, brokerName=NAME, clusterName=CLUSTER)
        assert answer.code == ResponseCode.CONTROLLER_NOT_LEADER


def test_leader_without_a_majority_answers_nothing_and_then_that_it_does_not_lead() -> None:
    rig = Rig(3)
    group_of(rig)
    leader = rig.leader()
    peer = rig.peer(leader.name, "10.0.0.7")
    for name in rig.members:
        if name != leader.name:
            rig.kill(name)
    opaque = peer.ask(
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
        clusterName=CLUSTER,
        brokerName="other",
        appliedBrokerId=1,
        registerCheckCode="10.0.0.7:10911;x",
    )
    later = peer.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, brokerName=NAME)
    rig.pass_time(1_000)
    assert peer.answer(opaque) is None
    assert "other" not in leader.service.groups.by_name
    rig.pass_time(2_000)
    for each in (opaque, later):
        answer = peer.answer(each)
        assert answer is not None
        assert answer.code == ResponseCode.CONTROLLER_NOT_LEADER


def test_master_is_elected_by_the_next_leader() -> None:
    rig = Rig(3)
    brokers = group_of(rig)
    first = rig.leader().name
    rig.pass_time(10_000)
    for broker in brokers:
        broker.beat()
    rig.kill(first)
    for broker in brokers:
        del broker.peers[first]
    assert rig.leader().name != first
    for broker in brokers:
        broker.beat()
    brokers[0].die()
    rig.pass_time(500)
    found = replicas(rig)
    assert found.master_broker_id in (2, 3)
    assert found.master_epoch == 2
    # The first one comes back, and learns of it.
    rig.start(first)
    rig.pass_time(3_000)
    assert rig.members[first].service.groups.by_name == rig.leader().service.groups.by_name


def test_next_leader_replaces_at_once_a_master_that_is_gone_with_the_leader() -> None:
    rig = Rig(3)
    brokers = group_of(rig)
    first = rig.leader().name
    rig.pass_time(10_000)
    for broker in brokers:
        broker.beat()
    rig.kill(first)
    for broker in brokers:
        del broker.peers[first]
    brokers[0].die()
    # An election among controllers, at most, and not the time until the next scan.
    rig.pass_time(2_300)
    assert rig.leader().name != first
    found = replicas(rig)
    assert found.master_broker_id in (2, 3)
    assert found.master_epoch == 2


def test_requests_that_cannot_be_stored_are_refused() -> None:
    rig = Rig()
    rig.leader()
    broker = FakeBroker(rig, 1)
    rig.members["n0"].file.is_full = True
    answer = broker.apply()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "No space left" in (answer.remark or "")
    assert rig.members["n0"].service.groups.by_name == {}
    rig.members["n0"].file.is_full = False
    assert broker.apply().code == 0


def test_damaged_journal_is_not_used() -> None:
    rig = Rig()
    group_of(rig)
    rig.kill("n0")
    file = rig.members["n0"].file
    file.data = file.data[:60] + b"?" + file.data[61:]
    with pytest.raises(JournalDamaged, match="no block at offset 0, but one at"):
        rig.start("n0")


UNFIT: dict[str, dict[str, Any]] = {
    "no name": {"brokerName": ""},
    "a long name": {"brokerName": "x" * 129},
    "a name with a newline": {"brokerName": "a\nb"},
    "no cluster": {"clusterName": ""},
    "no address": {"registerCheckCode": "10.0.0.1;1"},
    "a long check code": {"registerCheckCode": "10.0.0.1:10911;" + "x" * 256},
    "an id beyond all": {"appliedBrokerId": 1 << 62},
    "no id": {"appliedBrokerId": "x"},
}


@pytest.mark.parametrize("changes", UNFIT.values(), ids=UNFIT)
def test_unfit_applications_are_refused(changes: dict[str, Any]) -> None:
    rig = Rig()
    good: dict[str, Any] = {
        "clusterName": CLUSTER,
        "brokerName": NAME,
        "appliedBrokerId": 1,
        "registerCheckCode": "10.0.0.1:10911;1",
    }
    peer = rig.peer(host="10.0.0.1")
    answer = peer.call(RequestCode.CONTROLLER_APPLY_BROKER_ID, **(good | changes))
    assert answer.code not in (0, ResponseCode.CONTROLLER_NOT_LEADER)
    assert rig.leader().service.groups.by_name == {}
    assert peer.call(RequestCode.CONTROLLER_APPLY_BROKER_ID, **good).code == 0


def test_bodies_that_are_none_are_refused() -> None:
    rig = Rig()
    group_of(rig, 1)
    peer = rig.peer()
    for body in (b"", b"x", b"{}", b"\xff", b'{"a":1}'):
        answer = peer.call(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body)
        assert answer.code == (0 if body == b"" else ResponseCode.SYSTEM_ERROR)
    fields: dict[str, Any] = {"brokerName": NAME, "masterBrokerId": 1, "masterEpoch": 1}
    assert peer.call(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, b'{"syncStateSet":["x"]}', **fields).code == 1
    assert peer.call(9_999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    # Ids are numbers of 64 bits, as Java reads them.
    clean: dict[str, Any] = {"brokerName": NAME, "clusterName": CLUSTER, "isCleanLivingBroker": "true"}
    assert peer.call(RequestCode.CLEAN_BROKER_DATA, brokerControllerIdsToClean="9" * 40, **clean).code == 2009
    assert replicas(rig).master_broker_id == 1


def test_heartbeats_of_strangers_are_not_kept() -> None:
    rig = Rig()
    group_of(rig, 1)
    stranger = FakeBroker(rig, 9)
    stranger.beat()
    other = FakeBroker(rig, 1, "unknown")
    other.beat()
    assert len(rig.leader().service.liveness._live) == 1
    fields: dict[str, Any] = {"clusterName": CLUSTER, "brokerName": NAME, "brokerAddr": "10.0.0.1:10911"}
    assert rig.peer().call(RequestCode.BROKER_HEARTBEAT, **fields).code == ResponseCode.CONTROLLER_INVALID_REQUEST


def test_messages_of_other_groups_and_to_other_controllers_are_refused() -> None:
    rig = Rig(3)
    leader = rig.leader()
    term = leader.service.raft.term
    kind, body = encode_message(Solicit(term + 5, 99, term + 4))
    good = RaftHeader("group1", "n1" if leader.name != "n1" else "n2", leader.name, kind)
    host = rig.addresses[good.sender].partition(":")[0]
    unfit = (good._replace(group="other"), good._replace(receiver="n9"), good._replace(kind="x"))
    for header in (*unfit, good._replace(sender="n9")):
        answer = rig.peer(leader.name, host).call(CODE, body, **RAFT_HEADER.write(header))
        assert answer.code == ResponseCode.SYSTEM_ERROR
    assert leader.service.raft.term == term
    # That of a member that has not heard the leader for long changes nothing.
    assert rig.peer(leader.name, host).call(CODE, body, **RAFT_HEADER.write(good)).code == 0
    assert rig.leader() is leader
    assert leader.service.raft.term == term


def test_requests_need_a_user_where_they_are_checked(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(3)
    rig.tables.create_user(UserInfo("inner", "secret-1", "Super", "enable"))
    for name in rig.members:
        rig.kill(name)
    rig.access = AccessOptions(authentication=True, authorization=True)
    rig.seal = lambda frame: signed(frame, "inner", "secret-1")
    for name in rig.members:
        rig.start(name)
    # They sign what they tell each other, so they agree.
    peer = rig.peer()
    for code in (RequestCode.CONTROLLER_GET_METADATA_INFO, RequestCode.CONTROLLER_ELECT_MASTER, CODE):
        assert peer.call(code).code == ResponseCode.NO_PERMISSION
    asked = Frame(RequestCode.CONTROLLER_GET_METADATA_INFO, 0, ext_fields={}, version=493)
    fields: dict[str, Any] = dict(signed(asked, "inner", "secret-1").ext_fields or {})
    assert peer.call(RequestCode.CONTROLLER_GET_METADATA_INFO, **fields).code == 0
    # Peers that sign with another identity do not, and each logs the reason once.
    rig.seal = lambda frame: signed(frame, "inner", "guess")
    with caplog.at_level("WARNING"):
        rig.pass_time(5_000)
    assert 1 <= caplog.text.count("what a controller says is refused: check signature failed.") <= 3
    assert not any(member.service.raft.is_sure(rig.now_ms) for member in rig.up())


def test_journal_is_shortened_and_what_is_left_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.rocketmq.raft.raft.KEPT_MAX", 5)
    rig = Rig(3)
    follower = next(name for name in rig.members if name != rig.leader().name)
    rig.kill(follower)
    brokers = group_of(rig)
    for number in range(6):
        assert brokers[0].alter([1, 2] if number % 2 == 0 else [1, 2, 3], 1, 2 + number).code == 0
    rig.start(follower)
    rig.pass_time(4_000)
    assert rig.members[follower].service.groups.by_name == rig.leader().service.groups.by_name
    state = rig.leader().service.groups.by_name
    for name in rig.members:
        rig.kill(name)
    for name in rig.members:
        rig.start(name)
    assert rig.leader().service.groups.by_name == state
