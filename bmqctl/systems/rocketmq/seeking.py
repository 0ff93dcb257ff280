"""Resets of the offsets of a consumer group in a topic: to the beginning, the end, or a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from bmqctl.clients.rocketmq.consuming import QueuePuller
from bmqctl.clients.rocketmq.link import AccessKeys, RemotingLink
from bmqctl.console.cluster import Plan
from bmqctl.systems.rocketmq.status.asker import Asker, body_of
from bmqctl.systems.rocketmq.status.group import masters_of_topic
from formats.rocketmq.remoting.bodies.statistics import read_consume_stats
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.headers.administration import GetConsumeStatsRequest, ResetOffsetRequest
from formats.rocketmq.remoting.headers.codec import read_header, write_header
from formats.rocketmq.remoting.headers.consuming import SearchOffsetRequest, SearchOffsetResponse

__all__ = ["Reset", "plan_reset", "reset_offsets"]

_END_MS: Final = -1


class Reset(NamedTuple):
    """A group of a topic, and where it continues: `begin`, `end`, or a time."""

    topic: str
    group: str
    to: str | datetime


class _Effect(NamedTuple):
    """The effect at a broker: the number of queues, and of messages that come again or are skipped."""

    queues: int
    again: int
    skipped: int


async def plan_reset(nameservers: Sequence[str], reset: Reset, timeout_s: float, keys: AccessKeys | None) -> Plan:
    """Return the present effects of a reset. Raises `NobodyAnswers` or `GroupUnknown`."""
    ask = Asker(timeout_s, keys)
    addresses = await masters_of_topic(nameservers, reset.topic, ask)
    effects = [await ask.over(address, lambda link: _effect(link, reset, timeout_s)) for address in addresses]
    queues, again, skipped = (sum(each) for each in zip(*effects, strict=True))
    return Plan(
        f"Reset the offsets of group {reset.group}?",
        f"In topic {reset.topic}, group {reset.group} continues at {_place(reset)}, in {queues:,} queues of "
        f"{len(effects):,} brokers. As of now {_messages(again)} that it has consumed will come again, and "
        f"{_messages(skipped)} that it has not consumed will be skipped. Consumers that are connected are told to go "
        "there. The offsets that it has now are lost.",
        f"Reset {reset.group}",
    )


async def reset_offsets(nameservers: Sequence[str], reset: Reset, timeout_s: float, keys: AccessKeys | None) -> str:
    """Set the offsets at all masters of the topic; return what was done. Raises `NobodyAnswers` or `GroupUnknown`."""
    ask = Asker(timeout_s, keys)
    fields = write_header(ResetOffsetRequest(reset.group, reset.topic, _time_ms(reset), is_force=True))

    async def send(link: RemotingLink) -> None:
        body_of(await link.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields, timeout_s))

    addresses = await masters_of_topic(nameservers, reset.topic, ask)
    for address in addresses:
        await ask.over(address, send)
    return f"group {reset.group} of topic {reset.topic} continues at {_place(reset)}; done at {', '.join(addresses)}"


async def _effect(link: RemotingLink, reset: Reset, timeout_s: float) -> _Effect:
    fields = write_header(GetConsumeStatsRequest(reset.group, reset.topic))
    stats = read_consume_stats(body_of(await link.call(RequestCode.GET_CONSUME_STATS, fields, timeout_s)))
    again = skipped = 0
    for queue, progress in stats.items():
        target = await _target(link, reset, queue.queue_id, progress.broker_offset, timeout_s)
        again += max(0, progress.consumer_offset - target)
        skipped += max(0, target - progress.consumer_offset)
    return _Effect(len(stats), again, skipped)


async def _target(link: RemotingLink, reset: Reset, queue_id: int, end: int, timeout_s: float) -> int:
    """Return the offset that a queue would be set to."""
    if reset.to == "end":
        return end
    if reset.to == "begin":
        puller = QueuePuller(link, reset.group, reset.topic, queue_id, timeout_s)
        await puller.seek_begin()
        return puller.offset
    fields = write_header(SearchOffsetRequest(reset.topic, queue_id, _time_ms(reset)))
    answer = await link.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields, timeout_s)
    body_of(answer)
    return read_header(SearchOffsetResponse, answer.ext_fields).offset


def _time_ms(reset: Reset) -> int:
    if isinstance(reset.to, datetime):
        return max(0, round(reset.to.timestamp() * 1000))
    return _END_MS if reset.to == "end" else 0


def _place(reset: Reset) -> str:
    match reset.to:
        case "begin":
            return "the oldest stored message"
        case "end":
            return "the next message that is posted"
    return f"the first message stored at {reset.to:%Y-%m-%d %H:%M:%S %Z} or later"


def _messages(count: int) -> str:
    return f"{count:,} message" + ("" if count == 1 else "s")
