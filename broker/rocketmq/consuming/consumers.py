"""Requests by which clients report themselves: heartbeats, groups, offsets and locks.

Source: ClientManageProcessor, ConsumerManageProcessor, DefaultConsumerIdsChangeListener.
"""

from __future__ import annotations

import logging
from typing import Final, cast

from broker.common.limited_log import LimitedLog
from broker.rocketmq.consuming.commits import check_commit
from broker.rocketmq.consuming.filters import SQL92, TAG
from broker.rocketmq.consuming.sql import SqlError, compile_sql
from broker.rocketmq.remoting.requests import Handlers, Peer, Refused, Request, failure, success, with_body
from broker.rocketmq.store.message_store import MessageStore
from broker.rocketmq.tables import names
from broker.rocketmq.tables.locks import Locks
from broker.rocketmq.tables.services import Services
from formats.rocketmq.remoting.bodies.clients import (
    CHECK_CLIENT_REQUEST,
    CONSUMER_IDS,
    LOCK_ANSWER,
    LOCK_REQUEST,
    ConsumerIds,
    GroupConfig,
    Heartbeat,
    LockAnswer,
    LockRequest,
    MessageQueue,
    read_heartbeat,
)
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers import consuming
from formats.rocketmq.remoting.headers.codec import read_header, write_header
from formats.rocketmq.remoting.signature import ACCESS_KEY

__all__ = ["ConsumerRequests", "starts_in_memory"]

log = logging.getLogger("broker.rocketmq.clients")

# Maximum of consumers notified in one step.
STEP_NOTICES: Final = 1_000
# The maximum for one request.
LOCK_QUEUES_MAX: Final = 4_096

_UNIT_SUBSCRIPTION: Final = 2
# A new group reads a queue from its start if the queue's first message is within the last HOT_BYTES of the log: it then
# counts as being in memory. The original asks the kernel.
HOT_BYTES: Final = 1 << 30


class ConsumerRequests:
    """Handles heartbeats, and requests about groups, offsets and locks."""

    def __init__(self, services: Services, locks: Locks) -> None:
        self._services = services
        self._locks = locks
        self._fingerprints: dict[str, int] = {}
        self._refusals = LimitedLog(log)
        # The groups that have changed; the consumers yet to be notified about one of them, by `_notice`.
        self._changed: dict[str, None] = {}
        self._untold: list[Peer] = []
        self._notice = Frame(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 0)
        self.handlers: Handlers = {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_client,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._list,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update_offset,
            RequestCode.QUERY_CONSUMER_OFFSET: self._query_offset,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
        }

    # -- heartbeats

    def _heartbeat(self, request: Request) -> Frame:
        heartbeat = read_heartbeat(request.body)
        groups = self._groups_of(heartbeat, request)
        known = [consumer for consumer in heartbeat.consumer_data_set if consumer.group_name in groups]
        subscriptions_differ = heartbeat.heartbeat_fingerprint == 0
        retry_topics = {}
        for consumer in known:
            name = consumer.group_name
            before = self._fingerprints.get(name)
            if before is not None and before != heartbeat.heartbeat_fingerprint:
                subscriptions_differ = True
            self._fingerprints[name] = heartbeat.heartbeat_fingerprint
            flags = _UNIT_SUBSCRIPTION if consumer.unit_mode else 0
            retry_topics[names.RETRY_PREFIX + name] = groups[name].retry_queue_nums, flags
        self._services.topics.make_for_groups(retry_topics, request.now_ms)
        frame = request.frame
        changed = self._services.clients.heard(
            heartbeat._replace(consumer_data_set=known),
            request.peer,
            request.now_ms,
            frame.language.name,
            frame.version,
            request.fields.get(ACCESS_KEY, ""),
        )
        self._notify(changed)
        fields = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if subscriptions_differ else "false"}
        return Frame(ResponseCode.SUCCESS, 0, ext_fields=fields)

    def _groups_of(self, heartbeat: Heartbeat, request: Request) -> dict[str, GroupConfig]:
        """Return the groups of a heartbeat's consumers, created if missing. Raises `Refused` beyond the bounds."""
        options, clients = self._services.options, self._services.clients
        count, most = len(heartbeat.consumer_data_set) + len(heartbeat.producer_data_set), options.heartbeat_groups_max
        fault = None if count <= most else f"it names {count} groups, heartbeatGroupMaxNum allows {most}"
        fault = fault or clients.fault_of(
            heartbeat, request.peer, options.memberships_max, options.subscription_bytes_max
        )
        if fault is not None:
            text = f"a heartbeat of client {heartbeat.client_id[:80]!r} is refused: {fault}"
            self._refusals.add(text, request.now_ms)
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the heartbeat is refused: {fault}")
        return self._services.groups.find_all([each.group_name for each in heartbeat.consumer_data_set], request.now_ms)

    def _unregister(self, request: Request) -> Frame:
        header = read_header(consuming.UnregisterClientRequest, request.fields)
        clients = self._services.clients
        if header.producer_group is not None:
            clients.unregister_producer(header.producer_group, request.peer)
        if header.consumer_group is not None and clients.unregister_consumer(header.consumer_group, request.peer):
            self._notify([header.consumer_group])
        return success()

    def disconnected(self, peer: Peer) -> None:
        self._notify(self._services.clients.disconnected(peer))

    def expire(self, now_ms: int) -> None:
        """Close the connections of clients without heartbeats, and forget expired locks."""
        for peer in self._services.clients.expire(now_ms):
            cast(Peer, peer).give_up("its client has sent no heartbeat for two minutes")
        self._locks.expire(now_ms)
        for name in [name for name in self._fingerprints if name not in self._services.clients.consumers]:
            del self._fingerprints[name]

    def _notify(self, changed: list[str]) -> None:
        for name in changed:
            self._changed[name] = None

    def end_step(self) -> bool:
        """Notify up to `STEP_NOTICES` consumers of changed groups; return True if there may be more."""
        if not self._untold and not self._changed:
            return False
        for _ in range(STEP_NOTICES):
            if self._untold:
                self._untold.pop().ask(self._notice, one_way=True)
            elif self._changed:
                name = next(iter(self._changed))
                del self._changed[name]
                self._begin_notice(name)
            else:
                return False
        return True

    def _begin_notice(self, name: str) -> None:
        config = self._services.groups.table.get(name)
        group = self._services.clients.consumers.get(name)
        if group is None or (config is not None and not config.notify_consumer_ids_changed_enable):
            return
        fields = write_header(consuming.NotifyConsumerIdsChangedRequest(name))
        self._notice = Frame(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 0, ext_fields=fields)
        self._untold = [cast(Peer, peer) for peer in reversed(list(group.members))]

    def _check_client(self, request: Request) -> Frame:
        subscription = CHECK_CLIENT_REQUEST.read(request.body).subscription_data
        if subscription is None or subscription.expression_type in (TAG, ""):
            return success()
        if subscription.expression_type != SQL92 or not self._services.options.property_filter:
            text = f"The broker does not support consumer to filter message by {subscription.expression_type}"
            return failure(ResponseCode.SYSTEM_ERROR, text)
        try:
            compile_sql(subscription.sub_string)
        except SqlError as error:
            return failure(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"Invalid MessageSelector. {error}")
        return success()

    def _list(self, request: Request) -> Frame:
        group = read_header(consuming.GetConsumerListByGroupRequest, request.fields).consumer_group
        ids = self._services.clients.ids(group)
        if not ids:
            return failure(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return with_body(CONSUMER_IDS.write(ConsumerIds(ids)))

    # -- offsets

    def _update_offset(self, request: Request) -> Frame:
        group, topic, queue_id, offset = _in_order(read_header(consuming.UpdateConsumerOffsetRequest, request.fields))
        # Unlike a pull or a heartbeat, a commit creates no group.
        check_commit(self._services, topic, group, queue_id, offset)
        self._services.offsets.commit(topic, group, queue_id, offset)
        return success()

    def _query_offset(self, request: Request) -> Frame:
        header = read_header(consuming.QueryConsumerOffsetRequest, request.fields)
        offset = self._services.offsets.get(header.topic, header.consumer_group, header.queue_id)
        if offset is None:
            if header.set_zero_if_not_found is False:
                text = "Not found, do not set to zero, maybe this group boot first"
                return failure(ResponseCode.QUERY_NOT_FOUND, text)
            is_at_start = starts_in_memory(self._services.store, header.topic, header.queue_id)
            if not is_at_start and not self._is_empty(header.topic, header.queue_id):
                text = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                return failure(ResponseCode.QUERY_NOT_FOUND, text)
            offset = 0
        return success(consuming.QueryConsumerOffsetResponse(offset))

    def _is_empty(self, topic: str, queue_id: int) -> bool:
        """Return whether a queue of a topic never had a message.

        A new group without an offset requests the queue's end, which is also 0, unless a message comes in between:
        nobody would consume it. The original has this gap.
        """
        config = self._services.topics.get(topic)
        if config is None or not 0 <= queue_id < config.read_queue_nums:
            return False
        queue = self._services.store.queues.get((topic, queue_id))
        return queue is None or queue.end == 0

    # -- locks

    def _lock(self, request: Request) -> Frame:
        wanted = _read_lock(request)
        queues = [queue for queue in wanted.mq_set if self._exists(queue)]
        locked = self._locks.lock(wanted.consumer_group, queues, wanted.client_id, request.now_ms)
        return with_body(LOCK_ANSWER.write(LockAnswer(locked)))

    def _exists(self, queue: MessageQueue) -> bool:
        config = self._services.topics.get(queue.topic)
        return config is not None and 0 <= queue.queue_id < max(config.read_queue_nums, config.write_queue_nums)

    def _unlock(self, request: Request) -> Frame:
        wanted = _read_lock(request)
        self._locks.unlock(wanted.consumer_group, wanted.mq_set, wanted.client_id)
        return success()


def starts_in_memory(store: MessageStore, topic: str, queue_id: int) -> bool:
    """Return whether a queue still has its very first message, in memory."""
    queue = store.queues.get((topic, queue_id))
    if queue is None or queue.begin > 0 or queue.end == 0:
        return False
    return store.log.end - queue.get(0).physical_offset <= HOT_BYTES


def _read_lock(request: Request) -> LockRequest:
    """Read the body of a lock request. Raises `FormatError`, and `Refused` for more than `LOCK_QUEUES_MAX` queues."""
    # Each queue is an object in a list.
    if bytes(request.body).count(b"{") > LOCK_QUEUES_MAX + 1:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"a request locks at most {LOCK_QUEUES_MAX} queues")
    return LOCK_REQUEST.read(request.body)


def _in_order(header: consuming.UpdateConsumerOffsetRequest) -> tuple[str, str, int, int]:
    return header.consumer_group, header.topic, header.queue_id, header.commit_offset
