"""Strangers that speak for a controller, a broker or an administrator, and nodes that prove who they are."""

from __future__ import annotations

from typing import Any

import pytest

from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag
from formats.rocketmq.remoting.proof import CODE as PROOF
from formats.rocketmq.remoting.proof import PROOF_HEADER, ProofHeader, dialer_code
from formats.rocketmq.remoting.raft import (
    CODE,
    RAFT_HEADER,
    Append,
    Appended,
    Ballot,
    Entry,
    Install,
    Message,
    RaftHeader,
    Solicit,
    encode_message,
)
from tests.broker.rocketmq.controller.rig import CLUSTER, NAME, FakeBroker, Peer, Rig
from tests.broker.rocketmq.controller.service_rig import group_of, replicas

STRANGER = "203.0.113.7"
SECRET = b"a secret of the group, long enough"
# A group in which the broker at 127.0.0.1:1 is master, and was so for a million epochs.
WORLD = (
    f'{{"groups":[{{"cluster":"{CLUSTER}","name":"{NAME}","nextId":9,"masterEpoch":1000000,"membersEpoch":1000000,'
    '"members":[1],"master":1,"addresses":{"1":"127.0.0.1:1"},"checkCodes":{"1":"127.0.0.1:1;1"}}]}'
)


def say(peer: Peer, sender: str, receiver: str, message: Message) -> Frame:
    """Send a message of a controller, and return the answer."""
    kind, body = encode_message(message)
    return peer.call(CODE, body, **RAFT_HEADER.write(RaftHeader("group1", sender, receiver, kind)))


def states(rig: Rig) -> list[Any]:
    return [(member.service.raft.term, member.service.raft.applied, member.service.groups) for member in rig.up()]


def host_of(rig: Rig, name: str) -> str:
    return rig.addresses[name].partition(":")[0]


def attacks(term: int) -> list[Message]:
    """Each kind of message, by which a group would do what a stranger wants."""
    command = f'{{"what":"elect","name":"{NAME}","brokerId":3}}'
    return [
        Install(term + 9, 1_000, term + 9, 1, WORLD),
        Install(term, 1_000, term, 1, WORLD),
        Append(term + 9, 0, 0, 1, 1, [Entry(term + 9, command)]),
        Solicit(term + 9, 1 << 40, term + 9),
        Ballot(term + 9, False),
        Appended(term + 9, False, 0, 1),
    ]


def test_messages_of_strangers_change_nothing_whoever_they_say_they_are() -> None:
    rig = Rig(3)
    brokers = group_of(rig)
    # Followers give their votes to others a while after they have last heard the leader.
    leader = rig.leader()
    term = leader.service.raft.term
    for name in rig.members:
        for sender in rig.members:
            for message in attacks(term):
                assert say(rig.peer(name, STRANGER), sender, name, message).code == ResponseCode.SYSTEM_ERROR
    rig.pass_time(3_000)
    for broker in brokers:
        broker.beat()
    found = replicas(rig)
    assert (found.master_broker_id, found.master_address, found.master_epoch) == (1, "10.0.0.1:10911", 1)
    assert {member.service.raft.term for member in rig.up()} == {term}
    assert brokers[0].alter([1, 2], 1, 2).code == 0


def test_controller_speaks_for_itself_only() -> None:
    rig = Rig(3)
    group_of(rig)
    leader = rig.leader()
    other, third = (name for name in rig.members if name != leader.name)
    before = leader.service.raft.term
    # From the host of one, as the other, and as the controller that is asked.
    for sender in (third, leader.name, "n9", ""):
        answer = say(rig.peer(leader.name, host_of(rig, other)), sender, leader.name, Ballot(before + 1, False))
        assert answer.code == ResponseCode.SYSTEM_ERROR
    # A connection that has begun as one does not go on as another.
    peer = rig.peer(leader.name, host_of(rig, other))
    assert say(peer, other, leader.name, Solicit(before, 0, 0, True)).code == 0
    answer = say(peer, third, leader.name, Ballot(before + 1, False))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert leader.service.raft.term == before


NUMBERS = [1 << 33, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, 1 << 63, 1 << 70, -1]


@pytest.mark.parametrize("number", NUMBERS)
def test_absurd_numbers_of_a_controller_do_not_end_the_agreement(number: int) -> None:
    rig = Rig(3)
    brokers = group_of(rig)
    leader = rig.leader()
    other = next(name for name in rig.members if name != leader.name)
    term = leader.service.raft.term
    absurd: list[Message] = [
        Install(term, number, term, 1, WORLD),
        Install(number, number, number, 1, WORLD),
        Install(term, 5, number, 1, WORLD),
        Append(number, number, number, number, number),
        Append(term, number, term, number, number),
        Solicit(number, number, number),
        Ballot(number, False),
        Appended(number, False, number, number),
        Appended(term, True, number, number),
    ]
    for name in rig.members:
        if name != other:
            for message in absurd:
                say(rig.peer(name, host_of(rig, other)), other, name, message)
    rig.pass_time(3_000)
    for broker in brokers:
        broker.beat()
    assert brokers[0].alter([1, 2], 1, 2).code == 0
    assert replicas(rig).master_address == "10.0.0.1:10911"
    assert max(member.service.raft.term for member in rig.up()) < 1 << 34


def fields(**changes: Any) -> dict[str, Any]:
    return {"clusterName": CLUSTER, "brokerName": NAME, **changes}


def test_strangers_speak_for_no_broker() -> None:
    rig = Rig(3)
    group_of(rig)
    leader = rig.leader()
    before, live = replicas(rig), dict(leader.service.liveness._live)
    stranger = rig.peer(host=STRANGER)
    shrunk = b'{"syncStateSet":[1],"syncStateSetEpoch":2}'
    asked: list[tuple[RequestCode, bytes, dict[str, Any]]] = [
        (RequestCode.CONTROLLER_APPLY_BROKER_ID, b"", {"appliedBrokerId": 4, "registerCheckCode": "10.0.0.4:1;1"}),
        (RequestCode.CONTROLLER_REGISTER_BROKER, b"", {"brokerId": 1, "brokerAddress": "10.0.0.1:1"}),
        # It is where it says, and the broker is alive elsewhere.
        (RequestCode.CONTROLLER_REGISTER_BROKER, b"", {"brokerId": 1, "brokerAddress": f"{STRANGER}:10911"}),
        (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, shrunk, {"masterBrokerId": 1, "masterEpoch": 1}),
        (RequestCode.CONTROLLER_ELECT_MASTER, b"", {"brokerId": 2, "designateElect": "true"}),
        (RequestCode.CONTROLLER_ELECT_MASTER, b"", {"brokerId": 2, "designateElect": "false"}),
        (RequestCode.BROKER_HEARTBEAT, b"", {"brokerId": 2, "brokerAddr": "10.0.0.2:10911", "maxOffset": 1 << 60}),
        (RequestCode.CLEAN_BROKER_DATA, b"", {"isCleanLivingBroker": "true"}),
        (RequestCode.UPDATE_CONTROLLER_CONFIG, b"enableElectUncleanMaster=true", {}),
    ]
    for code, body, named in asked:
        assert stranger.call(code, body, **fields(**named)).code == ResponseCode.NO_PERMISSION, code
    assert replicas(rig) == before
    assert leader.service.liveness._live == live
    assert leader.kept == {}


def test_strangers_do_not_keep_a_master_alive_that_is_gone() -> None:
    rig = Rig()
    brokers = group_of(rig, 2)
    stranger = rig.peer(host=STRANGER)
    rig.pass_time(12_000)
    for _ in range(12):
        brokers[1].beat()
        stranger.ask(
            RequestCode.BROKER_HEARTBEAT, flag=FrameFlag.ONE_WAY, **fields(brokerId=1, brokerAddr="10.0.0.1:1")
        )
        rig.pass_time(1_000)
    assert replicas(rig).master_broker_id == 2


def test_broker_moves_to_another_host_once_it_is_gone_from_its_own() -> None:
    rig = Rig()
    brokers = group_of(rig, 2)
    again = FakeBroker(rig, 2)
    again.address = "10.0.0.12:10911"
    again.connect()
    assert again.register().code == ResponseCode.NO_PERMISSION
    brokers[1].die()
    assert again.register().code == 0
    again.beat()
    assert [each.broker_address for each in replicas(rig).in_sync_replicas] == ["10.0.0.1:10911", "10.0.0.12:10911"]


# -- with a secret


def secret_rig(size: int = 3, **others: bytes) -> Rig:
    return Rig(size, secrets={f"n{number}": SECRET for number in range(size)} | others)


def prove(peer: Peer, secret: bytes = SECRET, name: str = "", said: str | None = None) -> Frame:
    """Prove that the secret is known, as somebody; `said` is the name that is said beside."""
    challenge = bytes(peer.call(PROOF).body)
    nonce = b"\x01" * 32
    body = nonce + dialer_code(secret, 9878, name, challenge, nonce)
    return peer.call(PROOF, body, **PROOF_HEADER.write(ProofHeader(name if said is None else said)))


def test_controllers_that_know_the_secret_agree_and_others_have_no_part_in_it() -> None:
    rig = secret_rig(3, n2=b"another secret, of as many characters")
    leader = rig.leader()
    rig.pass_time(3_000)
    assert leader.name != "n2"
    assert rig.members["n2"].service.raft.term == 0
    # Two of three agree.
    broker = FakeBroker(rig, 1)
    for peer in broker.peers.values():
        prove(peer)
    assert broker.apply().code == 0
    # Nobody is let in because of the address.
    term = leader.service.raft.term
    answer = say(rig.peer(leader.name, host_of(rig, "n2")), "n2", leader.name, Solicit(term + 1, 99, term))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert leader.service.raft.term == term


def test_brokers_prove_that_they_know_the_secret_from_wherever_they_come() -> None:
    rig = secret_rig(1)
    broker = FakeBroker(rig, 1)
    assert broker.apply().code == ResponseCode.NO_PERMISSION
    for peer in broker.peers.values():
        assert prove(peer, b"some other secret").code == ResponseCode.NO_PERMISSION
    assert broker.apply().code == ResponseCode.NO_PERMISSION
    for peer in broker.peers.values():
        assert prove(peer).code == 0
        # The address changes, as with NAT; the proofs still count.
        broker.address = "192.168.0.1:10911"
    assert broker.apply().code == 0
    assert broker.register().code == 0


def test_proof_is_good_for_one_connection_one_answer_and_one_name() -> None:
    rig = secret_rig(3)
    leader = rig.leader()
    term = leader.service.raft.term
    other, third = (name for name in rig.members if name != leader.name)
    peer = rig.peer(leader.name)
    challenge = bytes(peer.call(PROOF).body)
    nonce = bytes(32)
    body = nonce + dialer_code(SECRET, 9878, other, challenge, nonce)
    named = PROOF_HEADER.write(ProofHeader(other))
    # On another connection, which has a challenge of its own, and one that has none.
    thief = rig.peer(leader.name)
    assert thief.call(PROOF, body, **named).code == ResponseCode.NO_PERMISSION
    assert bytes(thief.call(PROOF).body) != challenge
    assert thief.call(PROOF, body, **named).code == ResponseCode.NO_PERMISSION
    # With another name, by which the challenge is used up.
    assert peer.call(PROOF, body, **PROOF_HEADER.write(ProofHeader(third))).code == ResponseCode.NO_PERMISSION
    assert peer.call(PROOF, body, **named).code == ResponseCode.NO_PERMISSION
    assert say(peer, other, leader.name, Ballot(term + 1, False)).code == ResponseCode.SYSTEM_ERROR
    # One that has proved to be one is not the other, and neither is a broker a controller.
    assert prove(peer, name=other).code == 0
    assert say(peer, third, leader.name, Ballot(term + 1, False)).code == ResponseCode.SYSTEM_ERROR
    broker = rig.peer(leader.name)
    assert prove(broker).code == 0
    assert say(broker, other, leader.name, Ballot(term + 1, False)).code == ResponseCode.SYSTEM_ERROR
    assert leader.service.raft.term == term
    assert say(peer, other, leader.name, Solicit(term, 0, 0, True)).code == 0


@pytest.mark.parametrize("body", [b"x", b"\0" * 64, b"\0" * 63, b"\0" * 4096], ids=len)
def test_answers_that_are_no_proof_are_refused(body: bytes) -> None:
    rig = secret_rig(1)
    peer = rig.peer()
    peer.call(PROOF)
    assert peer.call(PROOF, body).code == ResponseCode.NO_PERMISSION


def test_address_of_a_node_does_not_do_for_what_can_end_a_group_with_a_secret() -> None:
    rig = secret_rig(3)
    for number in (1, 2):
        broker = FakeBroker(rig, number)
        for peer in broker.peers.values():
            prove(peer)
        assert broker.apply().code == 0
        assert broker.register().code == 0
        broker.beat()
    before = replicas(rig)
    leader = rig.leader()
    # Another process on the host of a controller.
    peer = rig.peer(leader.name, host_of(rig, leader.name))
    refused: list[tuple[RequestCode, bytes, dict[str, Any]]] = [
        (RequestCode.CLEAN_BROKER_DATA, b"", {"isCleanLivingBroker": "true"}),
        (RequestCode.CLEAN_BROKER_DATA, b"", {"isCleanLivingBroker": "true", "brokerControllerIdsToClean": "1"}),
        (RequestCode.UPDATE_CONTROLLER_CONFIG, b"enableElectUncleanMaster=true", {}),
    ]
    for code, body, named in refused:
        assert peer.call(code, body, **fields(**named)).code == ResponseCode.NO_PERMISSION, code
    assert replicas(rig) == before
    assert leader.kept == {}
    # A broker that is gone may be forgotten.
    rig.pass_time(60_000)
    assert peer.call(RequestCode.CLEAN_BROKER_DATA, **fields(brokerControllerIdsToClean="2")).code == 0
