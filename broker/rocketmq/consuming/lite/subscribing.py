"""Requests by which clients subscribe to lite topics (source: LiteSubscriptionCtlProcessor)."""

from __future__ import annotations

import logging
from typing import Final

from broker.rocketmq.consuming.commits import check_room
from broker.rocketmq.consuming.lite.attributes import QUOTA_SLACK, LiteGroup, lite_group
from broker.rocketmq.consuming.lite.dispatching import Dispatcher
from broker.rocketmq.consuming.lite.placing import check_staying
from broker.rocketmq.consuming.lite.registry import Evicted, LiteSubscriber, Registry
from broker.rocketmq.consuming.pop.order import Orders
from broker.rocketmq.remoting.requests import Handlers, Peer, Refused, Request, success
from broker.rocketmq.tables.services import Services
from formats.rocketmq.lite import QUEUE_ID, fault_of_lite_topic, queue_name, split_queue_name
from formats.rocketmq.remoting.bodies import lite as bodies
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.headers.consuming import NotifyUnsubscribeLiteRequest

__all__ = ["CHANGES_MAX", "SUBSCRIPTIONS_MAX", "Subscribing"]

log = logging.getLogger("broker.rocketmq.lite")


# Maximum number of subscriptions of all clients, and of clients (maxLiteSubscriptionCount).
SUBSCRIPTIONS_MAX: Final = 100_000
# Maximum number of changes in a request; clients and proxies send one.
CHANGES_MAX: Final = 500
# Clients repeat their subscriptions from time to time; one that is silent for this time is forgotten.
_SILENT_MS: Final = 180_000
# Maximum length of a client id; ids of clients that have gone are kept for a while, too.
_CLIENT_ID_MAX: Final = 255
_ANEW: Final = bodies.OffsetOption("POLICY", bodies.FROM_FIRST)


class Subscribing:
    """Carries out the requests."""

    def __init__(
        self,
        services: Services,
        registry: Registry,
        orders: Orders,
        dispatcher: Dispatcher,
        subscriptions_max: int = SUBSCRIPTIONS_MAX,
    ) -> None:
        self._services = services
        self._registry = registry
        self._orders = orders
        self._dispatcher = dispatcher
        self._subscriptions_max = subscriptions_max
        self.handlers: Handlers = {RequestCode.LITE_SUBSCRIPTION_CTL: self._control}

    def _control(self, request: Request) -> Frame:
        if not len(request.body):
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "Request body is null.")
        changes = bodies.SUBSCRIPTIONS.read(bytes(request.body)).subscription_set
        if not changes:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "LiteSubscriptionCtlRequestBody is empty.")
        if len(changes) > CHANGES_MAX:
            text = f"a request makes {CHANGES_MAX} changes of subscriptions at most, not {len(changes)}"
            raise Refused(ResponseCode.INVALID_PARAMETER, text)
        for change in changes:
            if change.client_id.strip() and change.group.strip() and change.topic.strip():
                self._change(change, request.peer, request.now_ms)
        return success()

    def _change(self, change: bodies.LiteSubscription, peer: Peer, now_ms: int) -> None:
        """Make one change. Raises `Refused`."""
        if len(change.client_id) > _CLIENT_ID_MAX:
            text = f"the client id is too long, the max is {_CLIENT_ID_MAX}"
            raise Refused(ResponseCode.INVALID_PARAMETER, text)
        if change.action == bodies.COMPLETE_REMOVE:
            known = self._registry.get(change.client_id)
            if known is not None and known.group == change.group:
                self.leave(change.client_id, now_ms)
            return
        group = self._group(change)
        queues = [queue_name(change.topic, each) for each in change.lite_topic_set]
        self._check_quota(change, group)
        if change.action == bodies.PARTIAL_REMOVE:
            self._remove(change, group, queues)
        elif change.action == bodies.PARTIAL_ADD:
            self._add(change, group, queues, peer, now_ms)
        elif change.action == bodies.COMPLETE_ADD:
            self._replace(change, group, queues, peer, now_ms)
        else:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{change.action[:40]} is no action")

    def _group(self, change: bodies.LiteSubscription) -> LiteGroup:
        """Return the configuration of the group that a change is about. Raises `Refused`."""
        config = self._services.groups.table.get(change.group)
        if change.action != bodies.PARTIAL_REMOVE and (config is None or not config.consume_enable):
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "Consumer group is not allowed to consume.")
        group = lite_group(config)
        if group.bound_topic != change.topic:
            raise Refused(ResponseCode.INVALID_PARAMETER, "group type or bind topic not match.")
        check_staying(self._services.leaving, change.topic)
        for name in change.lite_topic_set:
            fault = fault_of_lite_topic(name)
            if fault is not None:
                raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        return group

    def _check_quota(self, change: bodies.LiteSubscription, group: LiteGroup) -> None:
        """Raise `Refused` if a change, or a client, has more lite topics than its group allows; proxies do the same."""
        count = len(change.lite_topic_set)
        known = self._registry.get(change.client_id) if change.action == bodies.PARTIAL_ADD else None
        if known is not None:
            count += len(known.queues.keys() - {queue_name(change.topic, each) for each in change.lite_topic_set})
        if count > group.client_quota + QUOTA_SLACK:
            text = f"lite subscription quota exceeded: {group.client_quota}"
            raise Refused(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, text)

    def _check_room(self, client_id: str, count: int) -> None:
        """Raise `Refused` if there are too many subscriptions or clients; clients without subscriptions count, too."""
        is_new = self._registry.get(client_id) is None
        if max(self._registry.count + count, len(self._registry) + is_new) > self._subscriptions_max:
            text = f"lite subscription quota exceeded {self._subscriptions_max}"
            raise Refused(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, text)

    def _hear(self, change: bodies.LiteSubscription, peer: Peer, now_ms: int) -> LiteSubscriber:
        return self._registry.hear(change.client_id, change.group, change.topic, peer, now_ms)

    def _add(
        self, change: bodies.LiteSubscription, group: LiteGroup, queues: list[str], peer: Peer, now_ms: int
    ) -> None:
        if group.takes_all:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "subscribe lite operation is not supported for this group")
        known = self._registry.get(change.client_id)
        self._check_room(
            change.client_id, len(queues) if known is None else sum(each not in known.queues for each in queues)
        )
        subscriber = self._hear(change, peer, now_ms)
        if group.is_exclusive:
            new, evicted = self._registry.add_exclusively(subscriber, queues)
            for each in evicted:
                self._evict(each, anew=group.begins_anew_for_successor)
        else:
            new = self._registry.add(subscriber, queues)
        for queue in queues if change.offset_option is not None else ():
            assert change.offset_option is not None
            self._move(queue, change.group, change.offset_option)
        self._dispatcher.subscribed(subscriber, new if change.offset_option is None else queues)

    def _replace(
        self, change: bodies.LiteSubscription, group: LiteGroup, queues: list[str], peer: Peer, now_ms: int
    ) -> None:
        """Subscribe a client to just these lite topics, or to all of the parent if its group takes all.

        A lite topic that another client of the group has taken over stays with that client: clients repeat their old
        subscriptions, and not all of them react to the notice.
        """
        if group.is_exclusive:
            mine = {change.client_id}
            queues = [each for each in queues if mine.issuperset(self._registry.members(each, change.group))]
        known = self._registry.get(change.client_id)
        count = 1 if group.takes_all else sum(known is None or each not in known.queues for each in queues)
        self._check_room(change.client_id, count)
        subscriber = self._hear(change, peer, now_ms)
        if group.takes_all:
            if self._registry.take_all(subscriber):
                self._dispatcher.dispatch_all(subscriber)
        else:
            self._dispatcher.subscribed(subscriber, self._registry.replace(subscriber, queues))

    def _remove(self, change: bodies.LiteSubscription, group: LiteGroup, queues: list[str]) -> None:
        subscriber = self._registry.get(change.client_id)
        if subscriber is None or subscriber.group != change.group:
            return
        for queue in self._registry.remove(subscriber, queues):
            if group.begins_anew_after_leaving:
                self._move(queue, change.group, _ANEW)

    def _evict(self, evicted: Evicted, *, anew: bool) -> None:
        """Notify a client that another one of its group has taken over a lite topic."""
        subscriber, queue = evicted
        lite = split_queue_name(queue)
        assert lite is not None
        header = NotifyUnsubscribeLiteRequest(lite[1], subscriber.group, subscriber.client_id)
        frame = Frame(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, 0, ext_fields=write_header(header))
        subscriber.peer.ask(frame, one_way=True)
        if anew:
            self._move(queue, subscriber.group, _ANEW)

    def _move(self, queue: str, group: str, option: bodies.OffsetOption) -> None:
        """Set the offset of a group in a queue; messages under way count as acknowledged."""
        current = self._services.offsets.get(queue, group, QUEUE_ID)
        end = self._services.store.span(queue, QUEUE_ID)[1]
        target = _target(option, current, end)
        if target is not None and min(target, end) != current:
            if current is None:
                check_room(self._services, queue, group)
            target = min(target, end)
            self._services.offsets.commit(queue, group, QUEUE_ID, target)
            self._orders.forget((queue, group, QUEUE_ID))
            log.info("group %s begins at offset %d of %s", group, target, queue)

    def leave(self, client_id: str, now_ms: int) -> None:
        subscriber = self._registry.leave(client_id)
        if subscriber is not None:
            self._dispatcher.left(subscriber)

    def tick(self, now_ms: int) -> None:
        """Forget clients that have reported nothing for `_SILENT_MS`."""
        for subscriber in self._registry.expire(now_ms - _SILENT_MS):
            log.info(
                "client %s of group %s is silent, and subscribed to nothing", subscriber.client_id, subscriber.group
            )
            self._dispatcher.left(subscriber)


def _target(option: bodies.OffsetOption, current: int | None, end: int) -> int | None:
    """Return the offset that an option asks for; None to stay. A time is ignored, as by the original."""
    if option.type == "POLICY":
        return {bodies.FROM_FIRST: 0, bodies.FROM_LAST: end}.get(option.value)
    if option.type == "OFFSET":
        return max(0, option.value)
    if option.type == "TAIL_N" and current is not None:
        return max(0, current - option.value)
    return None
