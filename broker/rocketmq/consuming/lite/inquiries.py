"""Requests of administrators about lite topics (source: LiteManagerProcessor)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nlargest, nsmallest
from itertools import islice
from typing import Final, NamedTuple

from broker.rocketmq.consuming.lite.attributes import LiteGroup, expiration_ms, is_lite_topic, lite_group
from broker.rocketmq.consuming.lite.dispatching import Dispatcher
from broker.rocketmq.consuming.lite.events import Events
from broker.rocketmq.consuming.lite.placing import LITE_TOPICS_MAX
from broker.rocketmq.consuming.lite.registry import Registry
from broker.rocketmq.consuming.lite.sharding import owner
from broker.rocketmq.consuming.pop.order import Orders
from broker.rocketmq.remoting.requests import Handlers, Peer, Refused, Request, success, with_body
from broker.rocketmq.tables.routes import FindQueues
from broker.rocketmq.tables.services import Services
from formats.rocketmq.lite import QUEUE_ID, is_lite_queue, queue_name, split_queue_name
from formats.rocketmq.remoting.bodies import lite as bodies
from formats.rocketmq.remoting.bodies.routes import QueueData, TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers import lite as headers
from formats.rocketmq.remoting.headers.codec import read_header

__all__ = ["LiteInquiries"]


_STORE_TYPE: Final = "default"
_NAMES_MAX: Final = 10_000
_NAMES: Final = 1_000
_TOP_MAX: Final = 1_000
_MINUTE_MS: Final = 60_000
_EVERYBODY: Final = "*"


class _Lag(NamedTuple):
    """The number of a lite topic's messages that a group has not consumed, and the storing time of the first."""

    messages: int
    lite_topic: str
    first_ms: int


def _by_time(lag: _Lag) -> tuple[int, int, str]:
    return lag.first_ms, lag.messages, lag.lite_topic


class LiteInquiries:
    def __init__(
        self,
        services: Services,
        registry: Registry,
        orders: Orders,
        events: Events,
        dispatcher: Dispatcher,
        find_queues: FindQueues,
    ) -> None:
        self._services = services
        self._registry = registry
        self._orders = orders
        self._events = events
        self._dispatcher = dispatcher
        self._find_queues = find_queues
        self.handlers: Handlers = {
            RequestCode.GET_BROKER_LITE_INFO: self._broker,
            RequestCode.GET_PARENT_TOPIC_INFO: self._parent,
            RequestCode.GET_LITE_TOPIC_INFO: self._topic,
            RequestCode.GET_LITE_CLIENT_INFO: self._client,
            RequestCode.GET_LITE_GROUP_INFO: self._group,
            RequestCode.TRIGGER_LITE_DISPATCH: self._trigger,
        }

    # -- the broker and parent topics

    def _broker(self, request: Request) -> Frame:
        services = self._services
        names = [name for name, _ in services.store.queues]
        parents = {name: _minutes(config) for name, config in services.topics.table.items() if is_lite_topic(config)}
        info = bodies.BrokerLiteInfo(
            _STORE_TYPE,
            LITE_TOPICS_MAX,
            sum(map(is_lite_queue, names)),
            self._registry.count,
            len(self._orders),
            len(set(names)),
            len(services.offsets),
            len(self._events),
            parents,
            self._groups_by_topic(),
        )
        return with_body(bodies.BROKER_LITE_INFO.write(info))

    def _groups_by_topic(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, config in self._services.groups.table.items():
            bound = lite_group(config).bound_topic
            if bound is not None:
                found.setdefault(bound, []).append(name)
        return found

    def _parent(self, request: Request) -> Frame:
        topic = read_header(headers.GetParentTopicInfoRequest, request.fields).topic
        config = self._check_parent(topic)
        all_count = sum(is_lite_queue(name) for name, _ in self._services.store.queues)
        groups = self._groups_by_topic().get(topic, [])
        count = len(self._dispatcher.queues_of(topic))
        info = bodies.ParentTopicInfo(topic, _minutes(config), groups, all_count, count)
        return with_body(bodies.PARENT_TOPIC_INFO.write(info))

    def _check_parent(self, topic: str) -> TopicConfig:
        """Return the configuration of a parent topic. Raises `Refused`."""
        config = self._services.topics.get(topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic [{topic}] not exist.")
        if not is_lite_topic(config):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"Topic [{topic}] type not match.")
        return config

    # -- lite topics

    def _topic(self, request: Request) -> None:
        header = read_header(headers.GetLiteTopicInfoRequest, request.fields)
        parent, lite_topic = header.parent_topic or "", header.lite_topic or ""
        self._check_parent(parent)
        frame = request.frame.bare

        def found(queues: Sequence[QueueData]) -> None:
            request.peer.answer(frame, self._topic_info(parent, lite_topic, owner(queues, lite_topic)))

        self._find_queues(parent, request.now_ms, found)

    def _topic_info(self, parent: str, lite_topic: str, broker: str | None) -> Frame:
        queue = queue_name(parent, lite_topic)
        store, name = self._services.store, self._services.options.name
        begin, end = store.span(queue, QUEUE_ID)
        last_ms = store.stored_ms(queue, QUEUE_ID, end - 1) if end else 0
        subscribers = [
            bodies.ClientGroup(_EVERYBODY if each.takes_all else each.client_id, each.group)
            for each in self._registry.subscribers(queue, parent)
        ]
        info = bodies.LiteTopicInfo(
            parent,
            lite_topic,
            list(dict.fromkeys(subscribers)),
            bodies.TopicOffset(end, begin, last_ms),
            broker in (None, name),
        )
        return with_body(bodies.LITE_TOPIC_INFO.write(info))

    # -- clients and groups

    def _client(self, request: Request) -> Frame:
        header = read_header(headers.GetLiteClientInfoRequest, request.fields)
        parent, group, client_id = header.parent_topic or "", header.group or "", header.client_id or ""
        self._check_parent(parent)
        if self._find_group(group).bound_topic != parent:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"Subscription [{group}]-[{parent}] not match.")
        subscriber = self._registry.get(client_id)
        times = self._events.times(client_id)
        if subscriber is not None and (subscriber.group, subscriber.parent) != (group, parent):
            # The answer must not show the client, which belongs to another group.
            subscriber, times = None, (-1, -1)
        most = max(0, min(_NAMES if header.max_count is None else header.max_count, _NAMES_MAX))
        names = None if subscriber is None else list(islice(subscriber.queues, most))
        count = -1 if subscriber is None else len(subscriber.queues)
        info = bodies.LiteClientInfo(parent, group, client_id, *times, count, names)
        return with_body(bodies.LITE_CLIENT_INFO.write(info))

    def _find_group(self, name: str) -> LiteGroup:
        """Return the part of a group's configuration that is about lite topics. Raises `Refused`."""
        config = self._services.groups.table.get(name)
        if config is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group [{name}] not exist.")
        return lite_group(config)

    def _find_parent(self, group: str) -> str:
        """Return the parent topic that a group is bound to. Raises `Refused`."""
        parent = self._find_group(group).bound_topic
        if parent is None:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"Group [{group}] is not a LITE group.")
        return parent

    def _group(self, request: Request) -> Frame | None:
        header = read_header(headers.GetLiteGroupInfoRequest, request.fields)
        parent = self._find_parent(header.group)
        if header.lite_topic:
            info = self._group_in_topic(header.group, parent, header.lite_topic)
            return with_body(bodies.LITE_GROUP_INFO.write(info))
        most = max(0, min(header.top_k or 0, _TOP_MAX))
        self._services.scheduler.add(
            self, self._answer_in_all(request.peer, request.frame.bare, header.group, parent, most)
        )
        return None

    def _group_in_topic(self, group: str, parent: str, lite_topic: str) -> bodies.LiteGroupInfo:
        queue, store = queue_name(parent, lite_topic), self._services.store
        end = store.span(queue, QUEUE_ID)[1]
        offset = self._services.offsets.get(queue, group, QUEUE_ID)
        if not end:
            return bodies.LiteGroupInfo(group, parent, lite_topic, -1, -1)
        if offset is None:
            return bodies.LiteGroupInfo(group, parent, lite_topic, -1, 0)
        last_ms = store.stored_ms(queue, QUEUE_ID, offset - 1) if offset else 0
        first_ms = store.stored_ms(queue, QUEUE_ID, offset)
        wrapper = bodies.OffsetWrapper(end, offset, last_ms)
        return bodies.LiteGroupInfo(group, parent, lite_topic, first_ms, end - offset, wrapper)

    def _answer_in_all(self, peer: Peer, request: Frame, group: str, parent: str, most: int) -> Iterator[None]:
        """Examine all lite topics of a parent, some in each step, and answer."""
        lags: list[_Lag] = []
        for queue in self._services.offsets.topics(group):
            lag = self._lag(queue, group, parent)
            if lag is not None:
                lags.append(lag)
            yield
        oldest = nsmallest(most, lags, key=_by_time)
        info = bodies.LiteGroupInfo(
            group,
            parent,
            None,
            min([each.first_ms for each in lags], default=-1),
            sum(each.messages for each in lags),
            None,
            [bodies.LiteLag(each.lite_topic, each.messages, each.first_ms) for each in nlargest(most, lags)],
            [bodies.LiteLag(each.lite_topic, each.messages, each.first_ms) for each in oldest],
        )
        peer.answer(request, with_body(bodies.LITE_GROUP_INFO.write(info)))

    def _lag(self, queue: str, group: str, parent: str) -> _Lag | None:
        """Return the lag of a group in a lite topic of a parent; None if it has none, or there is no such topic."""
        lite = split_queue_name(queue)
        if lite is None or lite[0] != parent:
            return None
        offset = self._services.offsets.get(queue, group, QUEUE_ID) or 0
        begin, end = self._services.store.span(queue, QUEUE_ID)
        if end <= offset:
            return None
        return _Lag(end - offset, lite[1], self._services.store.stored_ms(queue, QUEUE_ID, max(begin, offset)))

    def _trigger(self, request: Request) -> Frame:
        header = read_header(headers.TriggerLiteDispatchRequest, request.fields)
        self._find_parent(header.group)
        for subscriber in self._registry.of_group(header.group):
            if header.client_id in (None, "", subscriber.client_id):
                self._dispatcher.dispatch_all(subscriber)
        return success()


def _minutes(config: TopicConfig) -> int:
    """Return the minutes after which lite topics of a parent expire; -1 if they do not."""
    kept_ms = expiration_ms(config)
    return -1 if kept_ms is None else kept_ms // _MINUTE_MS
