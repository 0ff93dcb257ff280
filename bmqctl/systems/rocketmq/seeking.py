"""Seeks of a consumer group in a topic: to the beginning, the end, a time, an offset, or by a number of messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from bmqctl.client.remoting.consuming import QueuePuller
from bmqctl.client.remoting.link import RemotingLink
from bmqctl.systems.administration import Move, Seek, Shift
from bmqctl.systems.rocketmq.status.asker import Asker, body_of
from bmqctl.systems.rocketmq.status.group import masters_of_topic
from formats.rocketmq.remoting.bodies.statistics import read_consume_stats
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.headers.administration import GetConsumeStatsRequest, ResetOffsetRequest
from formats.rocketmq.remoting.headers.codec import write_header

__all__ = ["plan_seek", "seek"]

_END_MS: Final = -1


async def plan_seek(nameservers: Sequence[str], wanted: Seek, ask: Asker) -> list[Move]:
    """The present effect of a seek, by queue. Raises `NobodyAnswers` or `GroupUnknown`."""
    moves: list[Move] = []
    for address in await masters_of_topic(nameservers, wanted.topic, ask):
        moves += await ask.over(address, lambda link: _moves(link, wanted, ask.timeout_s))
    return sorted(moves)


async def seek(nameservers: Sequence[str], wanted: Seek, ask: Asker) -> list[str]:
    """Seek at all masters of the topic; return their addresses. Raises `NobodyAnswers` or `GroupUnknown`.

    The masters notify connected consumers.
    """
    request = ResetOffsetRequest(wanted.group, wanted.topic, _time_ms(wanted), is_force=True)

    async def send(link: RemotingLink) -> None:
        requests = [request]
        # A request names one offset, which is one queue's.
        if isinstance(wanted.to, int):
            moves = await _moves(link, wanted, ask.timeout_s)
            requests = [request._replace(queue_id=each.queue_id, offset=each.after) for each in moves]
        for each in requests:
            body_of(await link.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, write_header(each), ask.timeout_s))

    addresses = await masters_of_topic(nameservers, wanted.topic, ask)
    for address in addresses:
        await ask.over(address, send)
    return addresses


async def _moves(link: RemotingLink, wanted: Seek, timeout_s: float) -> list[Move]:
    fields = write_header(GetConsumeStatsRequest(wanted.group, wanted.topic))
    stats = read_consume_stats(body_of(await link.call(RequestCode.GET_CONSUME_STATS, fields, timeout_s)))
    found = []
    for queue, progress in stats.items():
        place = _Place(queue.queue_id, progress.consumer_offset, progress.broker_offset)
        after = await _target(link, wanted, place, timeout_s)
        found.append(Move(queue.broker_name, queue.queue_id, progress.consumer_offset, after))
    return found


class _Place(NamedTuple):
    """A queue, the offset of the group in it, and the queue's end."""

    queue_id: int
    offset: int
    end: int


async def _target(link: RemotingLink, wanted: Seek, place: _Place, timeout_s: float) -> int:
    match wanted.to:
        case "end":
            return place.end
        case "begin":
            return await _begin(link, wanted, place, timeout_s)
        case int(to):
            offset = place.offset + to if isinstance(to, Shift) else to
            return min(max(offset, await _begin(link, wanted, place, timeout_s)), place.end)
    puller = QueuePuller(link, wanted.group, wanted.topic, place.queue_id, timeout_s)
    await puller.seek_time(_time_ms(wanted))
    return puller.offset


async def _begin(link: RemotingLink, wanted: Seek, place: _Place, timeout_s: float) -> int:
    puller = QueuePuller(link, wanted.group, wanted.topic, place.queue_id, timeout_s)
    await puller.seek_begin()
    return puller.offset


def _time_ms(wanted: Seek) -> int:
    if isinstance(wanted.to, datetime):
        return max(0, round(wanted.to.timestamp() * 1000))
    return _END_MS if wanted.to == "end" else 0
