"""Requests that show and change the configuration of a broker (source: AdminBrokerProcessor)."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from broker.rocketmq.access.guard import Guard
from broker.rocketmq.administration.retention import FileRetention
from broker.rocketmq.remoting.requests import Handlers, Refused, Request, success
from broker.rocketmq.replication.role import BrokerRole
from broker.rocketmq.sending.plain_sending import PlainSender
from broker.rocketmq.sending.transactions import Transactions
from broker.rocketmq.settings import SettingRefused, Settings
from broker.rocketmq.tables.groups import Groups
from broker.rocketmq.tables.options import BOUNDS, BrokerOptions
from broker.rocketmq.tables.topics import Topics
from formats.rocketmq.remoting.bodies.routes import DATA_VERSION, DataVersion
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.administration import GetBrokerConfigResponse

__all__ = ["BrokerConfiguration", "ConfiguredParts"]


_HOUR_MS = 3_600_000
# Options that their holders read at each use, by property.
_OPTIONS = {
    "brokerPermission": "permission",
    "autoCreateTopicEnable": "auto_create_topic",
    "maxMessageSize": "message_bytes_max",
    "traceOn": "trace_on",
    "enablePropertyFilter": "property_filter",
    "slaveReadEnable": "slave_read",
    "timerMaxDelaySec": "timer_delay_max_s",
    "popFromRetryProbability": "retry_percent",
    "popFromRetryProbabilityForPriority": "priority_retry_percent",
    "priorityOrderAsc": "highest_first",
    **BOUNDS,
}
_REPLICATION = {
    "inSyncReplicas": "in_sync_replicas",
    "slaveTimeout": "slave_timeout_ms",
    "haMaxGapNotInSync": "gap_bytes_max",
    "haSendHeartbeatInterval": "heartbeat_ms",
    "haHousekeepingInterval": "silence_ms",
    "haTransferBatchSize": "piece_bytes",
    "haMaxTimeSlaveNotCatchup": "behind_ms_max",
    "allAckInSyncStateSet": "all_in_sync",
    "minInSyncReplicas": "in_sync_replicas_min",
    "enableAutoInSyncReplicas": "auto_in_sync",
    "brokerElectionPriority": "priority",
}
_TIMES = {
    "transactionCheckInterval": "check_interval_ms",
    "transactionTimeOut": "timeout_ms",
    "transactionCheckMax": "checks_max",
}


class ConfiguredParts(NamedTuple):
    """The parts of a broker that changes go to."""

    topics: Topics
    groups: Groups
    transactions: Transactions
    retention: FileRetention
    plain: PlainSender
    guard: Guard
    role: BrokerRole


class BrokerConfiguration:
    """Shows the properties in force, and passes changes to the parts concerned."""

    def __init__(self, options: BrokerOptions, settings: Settings, parts: ConfiguredParts, booted_ms: int) -> None:
        self._options = options
        self._settings = settings
        self._parts = parts
        self._version = DataVersion(0, 0, booted_ms)
        for name, attribute in _OPTIONS.items():
            settings.on_change(name, partial(self._set_option, attribute))
        for name, attribute in _TIMES.items():
            settings.on_change(name, partial(self._set_time, attribute))
        for name, attribute in _REPLICATION.items():
            settings.on_change(name, partial(setattr, parts.role.options, attribute))
        if not parts.role.is_slave and not parts.role.options.is_controlled:
            settings.on_change("brokerRole", partial(setattr, parts.role.options, "role"))
        settings.on_change("autoCreateSubscriptionGroup", self._set_auto_create_group)
        settings.on_change("fileReservedTime", self._set_reserved)
        settings.on_change("cleanFileForciblyInterval", self._set_forced)
        for name, apply in parts.guard.setters().items():
            settings.on_change(name, apply)
        settings.find_fault = parts.guard.fault_of
        self.handlers: Handlers = {
            RequestCode.GET_BROKER_CONFIG: self._show,
            RequestCode.UPDATE_BROKER_CONFIG: self._change,
        }

    def _show(self, request: Request) -> Frame:
        version = DATA_VERSION.write(self._version).decode()
        role, others = self._parts.role.options, {}
        if role.is_controlled:
            # The controller decides on the role, which is not in the file.
            others = {"brokerRole": role.role.value, "brokerId": str(self._options.broker_id)}
        return success(GetBrokerConfigResponse(version), self._settings.text(others))

    def _change(self, request: Request) -> Frame:
        try:
            changed = self._settings.change(bytes(request.body), str(request.peer.host))
        except SettingRefused as refused:
            raise Refused(refused.code, refused.text) from None
        self._version = DataVersion(self._version.counter + 1, 0, request.now_ms)
        if {"brokerPermission", "autoCreateTopicEnable"}.intersection(changed):
            # Nameservers pass it to clients: it is registered at the end of the step.
            self._parts.topics.touch(request.now_ms)
        return success()

    def _set_option(self, attribute: str, value: Any) -> None:
        setattr(self._options, attribute, value)
        self._parts.plain.forget()

    def _set_time(self, attribute: str, value: Any) -> None:
        self._parts.transactions.times = self._parts.transactions.times._replace(**{attribute: value})

    def _set_auto_create_group(self, value: bool) -> None:
        self._parts.groups.auto_create = value

    def _set_forced(self, after_ms: int) -> None:
        self._parts.retention.limits = self._parts.retention.limits._replace(forced_after_ms=after_ms)

    def _set_reserved(self, hours: int) -> None:
        self._parts.transactions.times = self._parts.transactions.times._replace(reserved_ms=hours * _HOUR_MS)
        self._parts.retention.limits = self._parts.retention.limits._replace(reserved_ms=hours * _HOUR_MS)
