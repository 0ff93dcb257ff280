"""Bodies that brokers and controllers exchange (source: SyncStateSet, ElectMasterResponseBody, BrokerReplicasInfo)."""

from __future__ import annotations

from typing import NamedTuple

from formats.rocketmq.remoting.bodies.codec import BodyCodec
from formats.rocketmq.remoting.bodies.routes import BrokerMemberGroup

__all__ = [
    "BROKER_REPLICAS",
    "ELECTED_BODY",
    "SYNC_STATE_SET",
    "BrokerReplicas",
    "ElectedBody",
    "ReplicaIdentity",
    "Replicas",
    "SyncStateSet",
]


class SyncStateSet(NamedTuple):
    """The ids of the brokers in sync, and the set's epoch."""

    sync_state_set: list[int] = []
    sync_state_set_epoch: int = 0


class ElectedBody(NamedTuple):
    """The brokers in sync after an election, and the addresses of all brokers of the name."""

    sync_state_set: list[int] = []
    broker_member_group: BrokerMemberGroup | None = None


class ReplicaIdentity(NamedTuple):
    """One broker of a name."""

    broker_name: str
    broker_id: int
    broker_address: str
    alive: bool = False


class Replicas(NamedTuple):
    """All brokers of a name."""

    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int = 0
    sync_state_set_epoch: int = 0
    in_sync_replicas: list[ReplicaIdentity] = []
    not_in_sync_replicas: list[ReplicaIdentity] = []


class BrokerReplicas(NamedTuple):
    """All brokers of several names."""

    replicas_info_table: dict[str, Replicas] = {}


SYNC_STATE_SET = BodyCodec(SyncStateSet)
ELECTED_BODY = BodyCodec(ElectedBody)
BROKER_REPLICAS = BodyCodec(BrokerReplicas)
