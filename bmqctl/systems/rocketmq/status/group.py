"""The progress of a consumer group in a topic, from its brokers' answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bmqctl.client.remoting.link import RemotingLink
from bmqctl.client.remoting.routes import Route, read_route
from bmqctl.systems.rocketmq.status.asker import Asker, NobodyAnswers, body_of
from formats.rocketmq.remoting.bodies.clients import CONSUMER_IDS
from formats.rocketmq.remoting.bodies.inspection import TIME_SPANS
from formats.rocketmq.remoting.bodies.statistics import read_consume_stats
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.headers.administration import GetConsumeStatsRequest, QueryConsumeTimeSpanRequest
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.headers.consuming import GetConsumerListByGroupRequest

__all__ = ["GroupState", "GroupUnknown", "NobodyAnswers", "QueueLag", "group_state", "masters_of_topic"]


class GroupUnknown(Exception):
    """Error that there is no such topic, or no such group in it; the text says which."""


class QueueLag(NamedTuple):
    """A queue, the number of unconsumed messages, and the milliseconds since the first was stored."""

    broker_name: str
    queue_id: int
    messages: int
    oldest_ms: int


class GroupState(NamedTuple):
    """A group's progress in a topic's queues, and the ids of its connected consumers."""

    queues: list[QueueLag]
    consumers: frozenset[str]


async def group_state(nameservers: Sequence[str], topic: str, group: str, ask: Asker) -> GroupState:
    """Ask a nameserver, and then the masters that it names. Raises `NobodyAnswers` or `GroupUnknown`."""
    route = await _route(nameservers, topic, ask)
    queues: list[QueueLag] = []
    consumers: set[str] = set()
    for address in route.addresses:
        queues += await ask.over(address, lambda link: _lag(link, topic, group, ask.timeout_s))
        consumers |= set(await ask.over(address, lambda link: _consumers(link, group, ask.timeout_s)))
    if not queues:
        raise GroupUnknown(f"no broker knows a queue of topic {topic} for group {group}")
    return GroupState(sorted(queues), frozenset(consumers))


async def masters_of_topic(nameservers: Sequence[str], topic: str, ask: Asker) -> list[str]:
    """The addresses of the masters with queues of a topic. Raises `NobodyAnswers` or `GroupUnknown`."""
    found = (await _route(nameservers, topic, ask)).addresses
    if not found:
        raise GroupUnknown(f"no broker with a master has topic {topic}")
    return found


async def _route(nameservers: Sequence[str], topic: str, ask: Asker) -> Route:
    reasons = []
    for address in nameservers:
        try:
            route = await ask.over(address, lambda link: _ask_route(link, topic, ask.timeout_s))
        except NobodyAnswers as fault:
            reasons.append(str(fault))
            continue
        if route is None:
            raise GroupUnknown(f"nameserver {address} knows no topic {topic}")
        return route
    raise NobodyAnswers("; ".join(reasons))


async def _ask_route(link: RemotingLink, topic: str, timeout_s: float) -> Route | None:
    answer = await link.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, timeout_s)
    return None if answer.code == ResponseCode.TOPIC_NOT_EXIST else read_route(topic, body_of(answer))


async def _lag(link: RemotingLink, topic: str, group: str, timeout_s: float) -> list[QueueLag]:
    fields = write_header(GetConsumeStatsRequest(group, topic))
    stats = read_consume_stats(body_of(await link.call(RequestCode.GET_CONSUME_STATS, fields, timeout_s)))
    fields = write_header(QueryConsumeTimeSpanRequest(topic, group))
    spans = TIME_SPANS.read(body_of(await link.call(RequestCode.QUERY_CONSUME_TIME_SPAN, fields, timeout_s)))
    delays = {each.message_queue: each.delay_ms for each in spans.consume_time_span_set}
    found = []
    for queue, progress in stats.items():
        messages = max(0, progress.broker_offset - progress.consumer_offset)
        # The brokers' clock counts: they noted the storing time.
        delay_ms = max(0, delays.get(queue, 0)) if messages else 0
        found.append(QueueLag(queue.broker_name, queue.queue_id, messages, delay_ms))
    return found


async def _consumers(link: RemotingLink, group: str, timeout_s: float) -> list[str]:
    """The ids of the consumers that a broker knows; none if it does not know the group."""
    fields = write_header(GetConsumerListByGroupRequest(group))
    answer = await link.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields, timeout_s)
    return [] if answer.code != ResponseCode.SUCCESS else CONSUMER_IDS.read(answer.body).consumer_id_list
