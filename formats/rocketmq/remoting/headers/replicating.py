"""Headers of requests between the brokers of one name, and between brokers and controllers."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from formats.rocketmq.remoting.headers.codec import Int, Long

__all__ = [
    "AddBrokerRequest",
    "AlterSyncStateSetRequest",
    "AlterSyncStateSetResponse",
    "ApplyBrokerIdRequest",
    "ApplyBrokerIdResponse",
    "CleanBrokerDataRequest",
    "ElectMasterRequest",
    "ElectMasterResponse",
    "ExchangeHaInfoRequest",
    "ExchangeHaInfoResponse",
    "GetControllerMetadataResponse",
    "GetNextBrokerIdRequest",
    "GetNextBrokerIdResponse",
    "GetReplicaInfoRequest",
    "GetReplicaInfoResponse",
    "NotifyBrokerRoleChangedRequest",
    "RegisterBrokerToControllerRequest",
    "RegisterBrokerToControllerResponse",
    "RemoveBrokerRequest",
    "ResetMasterFlushOffsetRequest",
]


class ExchangeHaInfoRequest(NamedTuple):
    """A master's addresses, and the offset up to which it has flushed."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ExchangeHaInfoResponse(NamedTuple):
    """The addresses and the flushed offset of the answering broker."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ResetMasterFlushOffsetRequest(NamedTuple):
    """Set the master's flushed offset."""

    master_flush_offset: Long


class AddBrokerRequest(NamedTuple):
    """Start a broker inside a container."""

    config_path: str | None = None


class RemoveBrokerRequest(NamedTuple):
    """Stop a broker inside a container."""

    broker_name: str
    broker_cluster_name: str
    broker_id: Long


class NotifyBrokerRoleChangedRequest(NamedTuple):
    """A controller's notice to a broker of a new master. The body has the SyncStateSet."""

    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None
    master_broker_id: Long | None = None


class AlterSyncStateSetRequest(NamedTuple):
    """A master's new SyncStateSet, which is the body."""

    broker_name: str | None = None
    master_broker_id: Long | None = None
    master_epoch: Int | None = None
    invoked_ms: Annotated[Long, "invokeTime"] = 0


class AlterSyncStateSetResponse(NamedTuple):
    """The epoch of the accepted set."""

    new_sync_state_set_epoch: Int = 0


class ElectMasterRequest(NamedTuple):
    """Elect a master; with `designate_elect`, a particular one."""

    cluster_name: str
    broker_name: str
    broker_id: Long
    designate_elect: bool
    invoked_ms: Annotated[Long | None, "invokeTime"] = None


class ElectMasterResponse(NamedTuple):
    """The elected master."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None


class GetControllerMetadataResponse(NamedTuple):
    """The controllers, and their leader."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


class GetReplicaInfoRequest(NamedTuple):
    """The master and SyncStateSet of a broker name."""

    broker_name: str | None = None


class GetReplicaInfoResponse(NamedTuple):
    """The master; the SyncStateSet is the body."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None


class CleanBrokerDataRequest(NamedTuple):
    """Forget brokers."""

    broker_name: str
    cluster_name: str | None = None
    broker_controller_ids_to_clean: str | None = None
    clean_living: Annotated[bool, "isCleanLivingBroker"] = False
    invoked_ms: Annotated[Long, "invokeTime"] = 0


class GetNextBrokerIdRequest(NamedTuple):
    """An id for a broker without one."""

    cluster_name: str | None = None
    broker_name: str | None = None


class GetNextBrokerIdResponse(NamedTuple):
    """The next free id."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Long | None = None


class ApplyBrokerIdRequest(NamedTuple):
    """Take an id."""

    cluster_name: str | None = None
    broker_name: str | None = None
    applied_broker_id: Long | None = None
    register_check_code: str | None = None


class ApplyBrokerIdResponse(NamedTuple):
    """The owner of an applied broker id."""

    cluster_name: str | None = None
    broker_name: str | None = None


class RegisterBrokerToControllerRequest(NamedTuple):
    """Register a broker under its id."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Long | None = None
    broker_address: str | None = None
    invoked_ms: Annotated[Long, "invokeTime"] = 0


class RegisterBrokerToControllerResponse(NamedTuple):
    """The master at that time. The body has the SyncStateSet."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None
