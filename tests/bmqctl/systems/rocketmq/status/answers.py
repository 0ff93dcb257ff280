"""Answers of a RocketMQ cluster that is well, of which tests change some."""

from __future__ import annotations

from typing import Any

from bmqctl.systems.rocketmq.status.view import BrokerAnswers, Heard, Unheard
from formats.rocketmq.remoting.bodies.controllers import ReplicaIdentity, Replicas
from formats.rocketmq.remoting.bodies.replication import EpochCache, EpochSpan, HaRuntime, HaSlave
from formats.rocketmq.remoting.bodies.routes import BrokerData, ClusterInfo
from formats.rocketmq.remoting.headers.replicating import GetControllerMetadataResponse

NAME, CLUSTER = "broker-a", "DefaultCluster"
NAMESERVERS = ("10.0.0.1:9876", "10.0.0.2:9876", "10.0.0.3:9876")
CONTROLLERS = ("10.0.0.1:9878", "10.0.0.2:9878", "10.0.0.3:9878")
BROKERS = ("10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911")
PEERS = "".join(f"n{number}:{address};" for number, address in enumerate(CONTROLLERS))
END = 1_000_000


def info(*addresses: str) -> ClusterInfo:
    """Return a nameserver's answer with brokers of the name, of which the first one is master."""
    data = BrokerData(CLUSTER, NAME, {at if at == 0 else at + 1: address for at, address in enumerate(addresses)})
    return ClusterInfo({NAME: data}, {CLUSTER: [NAME]})


def metadata(address: str, leader: str | None = CONTROLLERS[0], peers: str = PEERS) -> GetControllerMetadataResponse:
    return GetControllerMetadataResponse("group1", "n0", leader, address == leader, peers)


def broker(number: int, *, is_master: bool, end: int = END, **properties: Any) -> BrokerAnswers:
    """Return the answers of broker `number`, from 1 on."""
    told = {"brokerName": NAME, "brokerClusterName": CLUSTER, "enableControllerMode": "true"} | {
        name: str(value) for name, value in properties.items()
    }
    slave = HaSlave(None if is_master else BROKERS[0], 0, 0 if is_master else end, 0 if is_master else 5_000)
    replication = HaRuntime(is_master, end if is_master else 0, 2 if is_master else 0, [], slave)
    epochs = EpochCache(CLUSTER, NAME, 0 if is_master else number, [EpochSpan(3, 0)], end)
    return BrokerAnswers(told, replication, epochs if told["enableControllerMode"] == "true" else None)


def replicas(in_sync: tuple[int, ...] = (1, 2, 3), gone: tuple[int, ...] = (), master: int | None = 1) -> Replicas:
    """Return the controller's answer about the brokers 1, 2 and 3."""
    every = [ReplicaIdentity(NAME, number, BROKERS[number - 1], number not in gone) for number in (1, 2, 3)]
    return Replicas(
        master,
        None if master is None else BROKERS[master - 1],
        3,
        7,
        [each for each in every if each.broker_id in in_sync],
        [each for each in every if each.broker_id not in in_sync],
    )


def well(**changes: Any) -> Heard:
    """Three of each, all well."""
    heard = Heard(
        {address: info(*BROKERS) for address in NAMESERVERS},
        {address: metadata(address) for address in CONTROLLERS},
        {NAME: replicas()},
        {address: broker(at, is_master=at == 1, minInSyncReplicas=2) for at, address in enumerate(BROKERS, 1)},
    )
    return heard._replace(**changes)


def configured(*, slaves: int = 1, **properties: Any) -> Heard:
    """A master and its slaves without controllers."""
    told = {"enableControllerMode": "false", "brokerRole": "ASYNC_MASTER", **properties}
    answers: dict[str, BrokerAnswers | Unheard] = {BROKERS[0]: broker(0, is_master=True, **told)}
    for number in range(1, slaves + 1):
        answers[BROKERS[number]] = broker(number, is_master=False, enableControllerMode="false", brokerRole="SLAVE")
    return Heard({NAMESERVERS[0]: info(*BROKERS[: slaves + 1])}, {}, {}, answers)
