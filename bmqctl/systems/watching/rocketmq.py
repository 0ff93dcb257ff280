"""Samples of a RocketMQ cluster: the topics of all masters, and the groups that consume them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import trio

from bmqctl.client.remoting.link import RemotingLink
from bmqctl.systems.rocketmq.status.asker import Asker, NobodyAnswers, body_of
from bmqctl.systems.rocketmq.status.asking import Places, hear
from bmqctl.systems.rocketmq.status.names import is_own_group, is_own_topic
from bmqctl.systems.rocketmq.status.view import Heard, Name, Unheard, View, view_of
from bmqctl.systems.watching.model import Counted, NodeState, Sample
from formats.rocketmq.remoting.bodies.clients import CONSUMER_IDS, CONSUMER_OFFSETS
from formats.rocketmq.remoting.bodies.inspection import TIME_SPANS
from formats.rocketmq.remoting.bodies.routes import TOPIC_CONFIGS
from formats.rocketmq.remoting.bodies.statistics import read_topic_stats
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.headers.administration import GetTopicStatsInfoRequest, QueryConsumeTimeSpanRequest
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.headers.consuming import GetConsumerListByGroupRequest

__all__ = ["Look", "take_look", "take_sample"]

SYSTEM: Final = "RocketMQ"
# Topics of a broker that are requested, and groups whose oldest message is.
TOPICS_MAX: Final = 1_000
OLDEST_MAX: Final = 100


class Look(NamedTuple):
    """The view of a cluster, its brokers' answers, and the sample taken with them."""

    view: View
    heard: Heard
    sample: Sample


def take_sample(places: Places, asker: Asker) -> Sample:
    """Ask all given processes, and others that they name. Raises `NobodyAnswers` if none answers."""
    return take_look(places, asker).sample


def take_look(places: Places, asker: Asker) -> Look:
    """Take a sample, and keep its view. Raises `NobodyAnswers` if none answers."""
    return trio.run(_take_look, places, asker)


async def _take_look(places: Places, asker: Asker) -> Look:
    heard = await hear(places, asker)
    answers = [*heard.nameservers.items(), *heard.controllers.items(), *heard.brokers.items()]
    silent = [f"{address}: {answer.reason}" for address, answer in answers if isinstance(answer, Unheard)]
    if len(silent) == len(answers):
        raise NobodyAnswers("; ".join(silent))
    view = view_of(heard)
    own = frozenset(name for each in view.names for name in (each.name, each.cluster))
    counted: list[Counted] = []
    for name in view.names:
        master = name.master
        if master is None or master.error is not None:
            continue
        broker = _Broker(name.name, _lag(name), own, asker.timeout_s)
        try:
            counted += await asker.over(master.address, broker.counted)
        except NobodyAnswers as fault:
            silent.append(str(fault))
    sample = Sample(time.monotonic(), SYSTEM, tuple(counted), tuple(_nodes(view.names)), tuple(silent))
    return Look(view, heard, sample)


def _lag(name: Name) -> int | None:
    return max((each.behind for each in name.brokers if each.behind is not None), default=None)


def _nodes(names: list[Name]) -> Iterator[NodeState]:
    for name in names:
        for each in name.brokers:
            role = "master" if each.is_master else "slave"
            state = "GONE" if each.is_alive is False else "AVAILABLE" if each.error is None else "UNREACHABLE"
            yield NodeState(name.name, each.address, role, state, each.behind)


class _Broker:
    """Queries to the master of a name."""

    def __init__(self, name: str, lag: int | None, own: frozenset[str], timeout_s: float) -> None:
        self._name = name
        self._lag = lag
        self._own = own
        self._timeout_s = timeout_s

    async def counted(self, link: RemotingLink) -> list[Counted]:
        configs = TOPIC_CONFIGS.read(await self._ask(link, RequestCode.GET_ALL_TOPIC_CONFIG, {}))
        topics = [name for name in sorted(configs.topic_config_table) if not is_own_topic(name, self._own)]
        table = CONSUMER_OFFSETS.read(await self._ask(link, RequestCode.GET_ALL_CONSUMER_OFFSET, {})).all_offsets
        groups: dict[str, dict[str, Mapping[int, int]]] = {}
        for key, offsets in table.items():
            topic, _, group = key.rpartition("@")
            if topic and not is_own_group(group):
                groups.setdefault(topic, {})[group] = offsets
        consumers = {group: await self._consumers(link, group) for each in groups.values() for group in each}
        found: list[Counted] = []
        for topic in topics[:TOPICS_MAX]:
            fields = write_header(GetTopicStatsInfoRequest(topic))
            stats = read_topic_stats(await self._ask(link, RequestCode.GET_TOPIC_STATS_INFO, fields))
            ends = {queue.queue_id: each.max_offset for queue, each in stats.items()}
            parts = [
                self._of_group(topic, group, offsets, ends, consumers[group])
                for group, offsets in sorted(groups.get(topic, {}).items())
            ]
            found += [self._of_topic(topic, sum(ends.values()), parts), *parts]
        return await self._with_oldest(link, found)

    def _of_topic(self, topic: str, put: int, parts: list[Counted]) -> Counted:
        taken = sum(each.taken or 0 for each in parts)
        backlog = max((each.backlog or 0 for each in parts), default=None)
        consumers = sum(each.consumers or 0 for each in parts)
        return Counted(topic, "", self._name, put, taken, backlog, None, consumers, self._lag)

    def _of_group(
        self, topic: str, group: str, offsets: Mapping[int, int], ends: Mapping[int, int], consumers: int
    ) -> Counted:
        put, taken = sum(ends.values()), sum(offsets.values())
        backlog = sum(max(0, end - offsets.get(queue, 0)) for queue, end in ends.items())
        return Counted(topic, group, self._name, put, taken, backlog, None, consumers, self._lag)

    async def _consumers(self, link: RemotingLink, group: str) -> int:
        fields = write_header(GetConsumerListByGroupRequest(group))
        answer = await link.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields, self._timeout_s)
        # A group without members is no error here.
        return 0 if answer.code != ResponseCode.SUCCESS else len(CONSUMER_IDS.read(answer.body).consumer_id_list)

    async def _with_oldest(self, link: RemotingLink, counted: list[Counted]) -> list[Counted]:
        waiting = sorted(
            (each for each in counted if each.part and each.backlog), key=lambda each: -(each.backlog or 0)
        )
        ages: dict[tuple[str, str], float] = {}
        for each in waiting[:OLDEST_MAX]:
            fields = write_header(QueryConsumeTimeSpanRequest(each.name, each.part))
            spans = TIME_SPANS.read(await self._ask(link, RequestCode.QUERY_CONSUME_TIME_SPAN, fields))
            age = max((max(0, span.delay_ms) / 1000 for span in spans.consume_time_span_set), default=0.0)
            ages[each.name, each.part] = age
            ages[each.name, ""] = max(age, ages.get((each.name, ""), 0.0))
        return [each._replace(oldest_s=ages.get((each.name, each.part))) for each in counted]

    async def _ask(self, link: RemotingLink, code: RequestCode, fields: Mapping[str, str]) -> bytes:
        return body_of(await link.call(code, fields, self._timeout_s), code.name)
