"""Metrics of controllers, by the original's names and labels."""

from __future__ import annotations

from broker.rocketmq.controller.metrics import controller_pieces
from broker.rocketmq.controller.options import ControllerOptions
from tests.broker.rocketmq.controller.rig import Member, Rig
from tests.broker.rocketmq.controller.service_rig import group_of

OPTIONS = ControllerOptions(peers={"n0": "h:1"}, self_id="n0")
LABELS = 'address="h:1",group="group1",peer_id="n0"'


def lines(member: Member) -> list[str]:
    text = b"".join(controller_pieces(OPTIONS, member.service)).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def lacks(member: Member) -> str | None:
    return member.service.lacks


def test_each_controller_has_its_role_and_counts_the_live_brokers() -> None:
    rig = Rig()
    brokers = group_of(rig)
    leader = rig.leader()
    alive = [f'active_broker_num{{address="h:1",broker_set="broker-c",cluster="cluster",{LABELS[14:]}}} ']
    for member in rig.up():
        role = 3 if member is leader else 2
        assert lines(member) == [f"role{{{LABELS}}} {role}", f"{alive[0]}3"]
    brokers[2].die()
    rig.pass_time(300)
    assert lines(leader) == [f"role{{{LABELS}}} 3", f"{alive[0]}2"]
    rig.pass_time(20_000)
    assert lines(leader) == [f"role{{{LABELS}}} 3"]


def test_a_controller_lacks_a_leader_without_a_majority() -> None:
    rig = Rig(3)
    leader = rig.leader()
    assert lacks(leader) is None
    for member in rig.up():
        if member is not leader:
            rig.kill(member.name)
    rig.pass_time(20_000)
    assert lacks(leader) == "no controller of the group leads"
    assert lines(leader)[0] in {f"role{{{LABELS}}} {role}" for role in (0, 1, 2)}
