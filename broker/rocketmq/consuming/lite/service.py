"""The broker's interface to lite topics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from broker.rocketmq.consuming.commits import check_room
from broker.rocketmq.consuming.lite.attributes import QUOTA_SLACK, LiteGroup, expiration_ms, is_lite_topic, lite_group
from broker.rocketmq.consuming.lite.dispatching import Dispatcher
from broker.rocketmq.consuming.lite.inquiries import LiteInquiries
from broker.rocketmq.consuming.lite.placing import check_staying
from broker.rocketmq.consuming.lite.popping import LitePopper
from broker.rocketmq.consuming.lite.registry import Evicted, LiteSubscriber, Registry
from broker.rocketmq.consuming.pop.checks import HIDDEN_MS_MAX, NO_CODE_SET, find_topic
from broker.rocketmq.consuming.pop.order import ILLEGAL, UNCHANGED, Orders
from broker.rocketmq.remoting.requests import Handlers, Peer, Refused, Request, success
from broker.rocketmq.tables.routes import FindQueues
from broker.rocketmq.tables.services import Services
from formats.rocketmq.lite import QUEUE_ID, fault_of_lite_topic, is_lite_queue, queue_name, split_queue_name
from formats.rocketmq.remoting.bodies import lite as bodies
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import codec_of, write_header
from formats.rocketmq.remoting.headers.consuming import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    NotifyUnsubscribeLiteRequest,
)
from formats.rocketmq.remoting.receipts import parse_receipt

__all__ = ["LiteService"]

_UNUSED_MS: Final = 300_000

log = logging.getLogger("broker.rocketmq.lite")

# The interval of the checks (liteTtlCheckInterval), and the minimum for which lite topics are kept (minLiteTTl), also
# after a start.
CHECK_MS: Final = 120_000
LEAST_MS: Final = 15 * 60_000
_AT_A_TIME: Final = 100
# Units of removing a lite topic's files; see `Scheduler`.
_REMOVAL_UNITS: Final = 150_000

_ACK = codec_of(AckMessageRequest)
_CHANGE = codec_of(ChangeInvisibleTimeRequest)
_CHANGED = codec_of(ChangeInvisibleTimeResponse)
_UNCHANGED: Final = ChangeInvisibleTimeResponse(0, 0, 0)
_LITE_TOPIC: Final = "liteTopic"

# Maximum number of all clients' subscriptions, and of clients (maxLiteSubscriptionCount).
SUBSCRIPTIONS_MAX: Final = 100_000
# Clients and proxies send one change per request.
CHANGES_MAX: Final = 500
# Clients repeat their subscriptions; one that is silent for this time is forgotten.
_SILENT_MS: Final = 180_000
# Ids of clients that have gone are kept for a while, too.
_CLIENT_ID_MAX: Final = 255
_ANEW: Final = bodies.OffsetOption("POLICY", bodies.FROM_FIRST)


class Subscribing:
    """Carries out requests by which clients subscribe to lite topics (source: LiteSubscriptionCtlProcessor)."""

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
        """Raise `Refused` if a change, or a client, has more lite topics than its group allows, as proxies do."""
        count = len(change.lite_topic_set)
        known = self._registry.get(change.client_id) if change.action == bodies.PARTIAL_ADD else None
        if known is not None:
            count += len(known.queues.keys() - {queue_name(change.topic, each) for each in change.lite_topic_set})
        if count > group.client_quota + QUOTA_SLACK:
            text = f"lite subscription quota exceeded: {group.client_quota}"
            raise Refused(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, text)

    def _check_room(self, client_id: str, count: int) -> None:
        """Raise `Refused` beyond the bound on subscriptions and clients; clients without subscriptions count, too."""
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
                self._evict(each, restarts=group.restarts_for_successor)
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
        subscriptions, and not all react to the notice.
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
            if group.restarts_after_leaving:
                self._move(queue, change.group, _ANEW)

    def _evict(self, evicted: Evicted, *, restarts: bool) -> None:
        subscriber, queue = evicted
        lite = split_queue_name(queue)
        assert lite is not None
        header = NotifyUnsubscribeLiteRequest(lite[1], subscriber.group, subscriber.client_id)
        frame = Frame(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, 0, ext_fields=write_header(header))
        subscriber.peer.ask(frame, one_way=True)
        if restarts:
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
        for subscriber in self._registry.expire(now_ms - _SILENT_MS):
            log.info(
                "client %s of group %s is silent, and subscribed to nothing", subscriber.client_id, subscriber.group
            )
            self._dispatcher.left(subscriber)


def _target(option: bodies.OffsetOption, current: int | None, end: int) -> int | None:
    """Return the offset of an option; None to stay. A time is ignored, as by the original."""
    if option.type == "POLICY":
        return {bodies.FROM_FIRST: 0, bodies.FROM_LAST: end}.get(option.value)
    if option.type == "OFFSET":
        return max(0, option.value)
    if option.type == "TAIL_N" and current is not None:
        return max(0, current - option.value)
    return None


class LiteAcks:
    """Handles acknowledgements for lite topics, and changes of their invisible time; `others` handles other messages.

    Source: AckMessageProcessor.ackLite, ChangeInvisibleTimeProcessor.processChangeInvisibleTimeForLite.
    """

    def __init__(self, services: Services, orders: Orders, dispatcher: Dispatcher, others: Handlers) -> None:
        self._services = services
        self._orders = orders
        self._dispatcher = dispatcher
        self._others = others
        self.handlers: Handlers = {
            RequestCode.ACK_MESSAGE: self._acknowledge,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self._change,
        }

    def _acknowledge(self, request: Request) -> Frame | None:
        if not request.fields.get(_LITE_TOPIC, "").strip():
            return self._others[RequestCode.ACK_MESSAGE](request)
        header = _ACK.read(request.fields)
        queue = self._queue(header, "ack offset illegal.")
        group, offset, now_ms = header.consumer_group, header.offset, request.now_ms
        receipt = parse_receipt(header.extra_info)
        if header.queue_id != QUEUE_ID or not receipt.is_ordered:
            raise Refused(ResponseCode.INVALID_PARAMETER, "ack queue illegal.")
        if offset < (self._services.offsets.get(queue, group, QUEUE_ID) or 0):
            return success()
        following = self._orders.acknowledge((queue, group, QUEUE_ID), offset, receipt.popped_ms)
        if following == ILLEGAL:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "ack offset illegal.")
        if following != UNCHANGED:
            self._services.offsets.commit(queue, group, QUEUE_ID, following)
            self._dispatcher.go_on(queue, group, now_ms)
        return success()

    def _queue(self, header: AckMessageRequest | ChangeInvisibleTimeRequest, text: str) -> str:
        """Return the queue of a request's message.

        Raises `Refused`, with `text` for an invalid offset.
        """
        find_topic(self._services, header.topic)
        if lite_group(self._services.groups.table.get(header.consumer_group)).bound_topic != header.topic:
            raise Refused(ResponseCode.INVALID_PARAMETER, "group type or bind topic not match.")
        lite_topic = header.lite_topic or ""
        fault = fault_of_lite_topic(lite_topic)
        if fault is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        queue = queue_name(header.topic, lite_topic)
        if not 0 <= header.offset < self._services.store.span(queue, QUEUE_ID)[1]:
            raise Refused(ResponseCode.NO_MESSAGE, text)
        return queue

    def _change(self, request: Request) -> Frame | None:
        if not request.fields.get(_LITE_TOPIC, "").strip():
            return self._others[RequestCode.CHANGE_MESSAGE_INVISIBLETIME](request)
        try:
            changed = self._change_time(request)
        except Refused as refused:
            return Frame(refused.code, 0, remark=refused.text, ext_fields=_CHANGED.write(_UNCHANGED))
        return Frame(ResponseCode.SUCCESS, 0, remark=NO_CODE_SET, ext_fields=_CHANGED.write(changed))

    def _change_time(self, request: Request) -> ChangeInvisibleTimeResponse:
        header = _CHANGE.read(request.fields)
        queue, group = self._queue(header, NO_CODE_SET), header.consumer_group
        if not 0 <= header.invisible_ms <= HIDDEN_MS_MAX:
            text = f"a message cannot be hidden for {header.invisible_ms} ms, but for {HIDDEN_MS_MAX} ms at most"
            raise Refused(ResponseCode.INVALID_PARAMETER, text)
        receipt = parse_receipt(header.extra_info)
        if header.offset < (self._services.offsets.get(queue, group, QUEUE_ID) or 0):
            return _UNCHANGED
        visible_ms = request.now_ms + header.invisible_ms
        key = (queue, group, QUEUE_ID)
        if header.suspend:
            self._orders.suspend(key, receipt.popped_ms, visible_ms)
        else:
            self._orders.change(key, header.offset, receipt.popped_ms, visible_ms)
        return ChangeInvisibleTimeResponse(receipt.popped_ms, visible_ms - receipt.popped_ms, receipt.revive_queue)


class Expiry:
    """Removes expired lite topics, and those of deleted parents, in small steps.

    Source: AbstractLiteLifecycleManager. Messages stay in the commit log until it expires.
    """

    def __init__(self, services: Services, registry: Registry, orders: Orders, begun_ms: int) -> None:
        self._services = services
        self._registry = registry
        self._orders = orders
        self._begun_ms = begun_ms
        self._checked_ms = begun_ms
        # Queues yet to be checked, each with its parent topic.
        self._left: list[tuple[str, str]] = []
        # Queues without any message when they were checked: storing the first one has failed.
        self._empty: set[str] = set()

    def tick(self, now_ms: int) -> None:
        if not 0 <= now_ms - self._checked_ms < CHECK_MS:
            self._checked_ms = now_ms
            if now_ms - self._begun_ms >= LEAST_MS:
                self._left = self._queues()
        for queue, parent in self._left[-_AT_A_TIME:]:
            if self._has_expired(queue, parent, now_ms):
                self.remove(queue, parent)
        del self._left[-_AT_A_TIME:]

    def _queues(self) -> list[tuple[str, str]]:
        found = ((name, split_queue_name(name)) for name, _ in self._services.store.queues)
        return [(name, lite[0]) for name, lite in found if lite is not None]

    def _has_expired(self, queue: str, parent: str, now_ms: int) -> bool:
        config = self._services.topics.get(parent)
        kept_ms = expiration_ms(config) if config is not None and is_lite_topic(config) else None
        if kept_ms is None:
            return False
        end = self._services.store.span(queue, QUEUE_ID)[1]
        if not end:
            was_empty = queue in self._empty
            self._empty ^= {queue}
            return was_empty
        return now_ms - self._services.store.stored_ms(queue, QUEUE_ID, end - 1) > max(kept_ms, LEAST_MS)

    def remove(self, queue: str, parent: str) -> None:
        log.info("lite topic %s is removed", queue)
        self._services.offsets.forget_topic(queue)
        for group, config in self._services.groups.table.items():
            if lite_group(config).bound_topic == parent:
                self._orders.drop((queue, group, QUEUE_ID))
        self._services.store.delete_topic(queue)
        self._registry.drop_queue(queue)

    def remove_all(self, parent: str) -> None:
        """Start to remove all lite topics of a parent; it is `leaving` until that is done."""
        queues = [queue for queue, of_parent in self._queues() if of_parent == parent]
        if queues:
            self._services.leaving.add(parent)
            self._services.scheduler.add(self, self._remove_in_turn(queues, parent))

    def _remove_in_turn(self, queues: list[str], parent: str) -> Iterator[None]:
        for queue in queues:
            self._services.scheduler.spend(_REMOVAL_UNITS)
            self.remove(queue, parent)
            yield
        self._services.leaving.discard(parent)


class LiteService:
    """Carries out requests and due work. `others` handles acknowledgements of other topics' messages."""

    def __init__(
        self,
        services: Services,
        choose: Callable[[int], int],
        failed: Callable[[object, Exception], None],
        others: Handlers,
        find_queues: FindQueues,
        now_ms: int,
    ) -> None:
        self._registry = registry = Registry()
        # Messages of lite topics under way are known in memory only.
        self._orders = orders = Orders(b"")
        self._popper = popper = LitePopper(services, registry, orders, failed)
        self._dispatcher = dispatcher = Dispatcher(services, registry, orders, popper, choose)
        self._subscribing = Subscribing(services, registry, orders, dispatcher)
        self._expiry = Expiry(services, registry, orders, now_ms)
        self._tidied_ms = now_ms
        inquiries = LiteInquiries(services, registry, orders, popper.events, dispatcher, find_queues)
        parts = (popper, self._subscribing, LiteAcks(services, orders, dispatcher, others), inquiries)
        self.handlers: Handlers = {code: handler for part in parts for code, handler in part.handlers.items()}

    def arrived(self, queue: str, queue_id: int, now_ms: int) -> None:
        if queue_id == QUEUE_ID and is_lite_queue(queue):
            self._dispatcher.arrived(queue)

    def removed(self, topic: str) -> None:
        self._expiry.remove_all(topic)

    def disconnected(self, connection: object) -> None:
        """Forget the waiting requests of a closed connection; its client stays subscribed for a while."""
        self._popper.disconnected(connection)

    def end_waits(self) -> None:
        """Answer all waiting requests: another broker becomes master, or this one restarts its work."""
        self._popper.end_waits()

    def tick(self, now_ms: int) -> None:
        self._dispatcher.tick(now_ms)
        self._subscribing.tick(now_ms)
        self._popper.tick(now_ms)
        self._expiry.tick(now_ms)
        if not 0 <= now_ms - self._tidied_ms < _UNUSED_MS:
            self._tidied_ms = now_ms
            self._orders.drop_unused(now_ms)
