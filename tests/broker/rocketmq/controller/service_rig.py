"""The replicas of a group, as a controller's service knows them."""

from __future__ import annotations

from formats.rocketmq.remoting.bodies.controllers import BROKER_REPLICAS, Replicas
from formats.rocketmq.remoting.codes import RequestCode
from tests.broker.rocketmq.controller.rig import NAME, FakeBroker, Peer, Rig


def group_of(rig: Rig, size: int = 3) -> list[FakeBroker]:
    """Some brokers of one name, all in sync, of which the first is master."""
    brokers = [FakeBroker(rig, number) for number in range(1, size + 1)]
    for broker in brokers:
        broker.come()
    assert brokers[0].elect().code == 0
    if size > 1:
        assert brokers[0].alter(list(range(1, size + 1)), 1, 1).code == 0
    rig.pass_time(300)
    return brokers


def replicas(rig: Rig, peer: Peer | None = None) -> Replicas:
    body = (peer or rig.peer()).call(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, f'["{NAME}"]'.encode()).body
    return BROKER_REPLICAS.read(body).replicas_info_table[NAME]
