"""The topics and groups of the cluster: nameservers know a topic's brokers, brokers its message types.

Source: ClusterTopicRouteService, ClusterMetadataService, MessageQueueSelector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.rocketmq.grpc.brokers.backend import Topic, accepted_types
from broker.rocketmq.grpc.statuses import CallRejected, rejection, topic_not_found
from broker.rocketmq.proxy.brokers import Brokers
from broker.rocketmq.proxy.cache import Cache, Found
from broker.rocketmq.proxy.nameservers import ProxyNameservers
from formats.errors import FormatError
from formats.rocketmq.grpc.codes import Code, MessageType
from formats.rocketmq.numbers import read_digits
from formats.rocketmq.remoting.bodies.clients import GROUP_CONFIG, GroupConfig
from formats.rocketmq.remoting.bodies.routes import MASTER_ID, TOPIC_CONFIG, TOPIC_ROUTE, Permission, TopicRoute
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.administration import GetSubscriptionGroupConfigRequest, GetTopicConfigRequest
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.headers.routing import GetRouteInfoRequest

__all__ = ["ProxyTopics"]

_WRITE: Final = int(Permission.WRITE)
_WAIT_MS: Final = 3_000
# Not part of any name of a topic or group.
_SEPARATOR: Final = "@"
_QUEUES_MAX: Final = 65_536


class ProxyTopics:
    """The known topics and groups."""

    def __init__(self, nameservers: ProxyNameservers, brokers: Brokers, now_ms: Callable[[], int]) -> None:
        self._nameservers = nameservers
        self._brokers = brokers
        self._now_ms = now_ms
        self._topics: Cache[Topic] = Cache(self._load_topic, now_ms, is_settled=_is_settled)
        self._groups: Cache[GroupConfig] = Cache(self._load_group, now_ms)

    def find(self, name: str, found: Found[Topic]) -> None:
        self._topics.find(name, found)

    def find_group(self, name: str, topic: str | None, found: Found[GroupConfig]) -> None:
        """Look up a group that consumes a topic, now or later."""
        self._groups.find(f"{name}{_SEPARATOR}{topic or ''}", found)

    def lost(self, broker: str) -> None:
        """Look up the topics of an unreachable broker again before their next use."""
        self._topics.distrust(lambda topic: any(each.broker_name == broker for each in topic.queues))

    def tick(self) -> None:
        self._topics.tick()
        self._groups.tick()

    # -- topics

    def _load_topic(self, name: str, done: Found[Topic]) -> None:
        def routed(answer: Frame) -> None:
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                done(topic_not_found(name))
                return
            if answer.code != ResponseCode.SUCCESS:
                done(rejection(answer))
                return
            try:
                route = TOPIC_ROUTE.read(answer.body)
            except FormatError as error:
                done(CallRejected(Code.INTERNAL_SERVER_ERROR, f"the nameserver's route cannot be read: {error}"))
                return
            self._brokers.learn(route.broker_datas)
            self._find_types(name, route, done)

        fields = write_header(GetRouteInfoRequest(name, accept_standard_json_only=True))
        self._nameservers.ask(Frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, 0, ext_fields=fields), routed)

    def _find_types(self, name: str, route: TopicRoute, done: Found[Topic]) -> None:
        known = {broker.broker_name for broker in route.broker_datas if broker.broker_addrs}
        left = sorted({queues.broker_name for queues in route.queue_datas} & known)
        if not left:
            done(topic_not_found(name))
            return
        frame = Frame(RequestCode.GET_TOPIC_CONFIG, 0, ext_fields=write_header(GetTopicConfigRequest(name)))

        def ask() -> None:
            self._brokers.ask(left.pop(0), frame, self._now_ms() + _WAIT_MS, answered)

        def answered(answer: Frame) -> None:
            types = _types_of(answer)
            if types is None and left:
                ask()
                return
            if types is None:
                # As in the original, a topic with unknown types accepts nothing, unless an earlier answer is known.
                before = self._topics.peek(name)
                types = (MessageType.MESSAGE_TYPE_UNSPECIFIED,) if before is None else before.types
            done(_topic(name, route, types))

        ask()

    # -- groups

    def _load_group(self, key: str, done: Found[GroupConfig]) -> None:
        group, _, topic = key.partition(_SEPARATOR)

        def found(known: Topic | CallRejected) -> None:
            names = [] if isinstance(known, CallRejected) else [each.broker_name for each in known.queues]
            self._ask_group(group, names or self._brokers.names, done)

        if topic:
            self.find(topic, found)
        else:
            self._ask_group(group, self._brokers.names, done)

    def _ask_group(self, group: str, brokers: list[str], done: Found[GroupConfig]) -> None:
        if not brokers:
            done(GroupConfig(group))
            return
        left = list(brokers)
        fields = write_header(GetSubscriptionGroupConfigRequest(group))
        frame = Frame(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, 0, ext_fields=fields)

        def ask() -> None:
            self._brokers.ask(left.pop(0), frame, self._now_ms() + _WAIT_MS, answered)

        def answered(answer: Frame) -> None:
            if answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                done(GroupConfig(group))
            elif answer.code == ResponseCode.SUCCESS:
                try:
                    done(GROUP_CONFIG.read(answer.body))
                except FormatError as error:
                    done(CallRejected(Code.INTERNAL_SERVER_ERROR, f"the broker's group cannot be read: {error}"))
            elif left:
                ask()
            else:
                done(rejection(answer))

        ask()


def _types_of(answer: Frame) -> tuple[MessageType, ...] | None:
    if answer.code != ResponseCode.SUCCESS:
        return None
    try:
        return accepted_types(TOPIC_CONFIG.read(answer.body))
    except FormatError:
        return None


def _is_settled(topic: Topic) -> bool:
    """Return False for a topic whose master is gone or has given no type: another may be elected any moment."""
    masters = {broker for broker, _ in topic.writes}
    wanted = {each.broker_name for each in topic.queues if each.perm & _WRITE and each.write_queue_nums}
    return wanted <= masters and topic.types != (MessageType.MESSAGE_TYPE_UNSPECIFIED,)


def _topic(name: str, route: TopicRoute, types: tuple[MessageType, ...]) -> Topic:
    known = {broker.broker_name: broker.broker_addrs for broker in route.broker_datas if broker.broker_addrs}
    queues = sorted(
        each._replace(
            read_queue_nums=min(max(each.read_queue_nums, 0), _QUEUES_MAX),
            write_queue_nums=min(max(each.write_queue_nums, 0), _QUEUES_MAX),
        )
        for each in route.queue_datas
        if each.broker_name in known
    )
    # Only masters store clients' messages.
    masters = {broker for broker, addresses in known.items() if MASTER_ID in addresses}
    writes = _in_order(route.order_topic_conf) or [
        (each.broker_name, each.write_queue_nums) for each in queues if each.perm & _WRITE and each.write_queue_nums
    ]
    return Topic(name, types, tuple(queues), tuple(each for each in writes if each[0] in masters))


def _in_order(text: str | None) -> list[tuple[str, int]]:
    """Return the queues of a topic with a fixed order, regardless of the present brokers."""
    found = []
    for part in filter(None, (text or "").split(";")):
        broker, _, count = part.partition(":")
        if queues := read_digits(count, _QUEUES_MAX):
            found.append((broker, queues))
    return sorted(found)
