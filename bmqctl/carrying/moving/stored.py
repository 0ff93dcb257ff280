"""A topic as the source of a copy: its queues' messages, read by offset; nothing is committed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import trio

from bmqctl.carrying.bridge.carrying import Bridge, CannotBegin, TryAgain, run_to_end
from bmqctl.carrying.bridge.ends import RocketEnd
from bmqctl.carrying.bridge.flow import CarriedMessage
from bmqctl.carrying.bridge.rocketmq_source import MakeOfRecord, hand_out
from bmqctl.client.remoting.ahead import PullsAhead
from bmqctl.client.remoting.client import PLAIN, Client, Security
from bmqctl.client.remoting.consuming import QueuePuller
from bmqctl.client.remoting.faults import FAULTS, RequestRefused, words_of
from bmqctl.client.remoting.link import LinkLost
from bmqctl.client.remoting.routes import Place
from formats.rocketmq.files.record import Record
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.bodies.clients import ALL, SQL92, TAG, make_subscription
from formats.rocketmq.remoting.bodies.routes import Permission
from formats.rocketmq.remoting.codes import ResponseCode

__all__ = ["EVERYTHING", "Part", "Selection", "StoredSource", "find_parts", "select"]

_PULLED_MAX: Final = 1024
# Brokers require the name of a group in each pull.
_GROUP: Final = "bmqctl-copy"
_FINAL: Final = frozenset({ResponseCode.SUBSCRIPTION_PARSE_FAILED, ResponseCode.NO_PERMISSION})


class Selection(NamedTuple):
    """The messages to copy, in the terms of a pull: an expression and its type, and the tags that it names."""

    expression: str = ALL
    expression_type: str = TAG
    tags: frozenset[str] = frozenset()

    def has(self, record: Record) -> bool:
        """Return True for a selected message: brokers compare only the hashes of tags."""
        return not self.tags or decode_properties(record.properties).get("TAGS") in self.tags


EVERYTHING: Final = Selection()


def select(tags: str | None, sql: str | None) -> Selection:
    """Select by tags, such as `A || B`, or by an expression in SQL; by default all messages."""
    if sql is not None:
        return Selection(sql, SQL92)
    wanted = make_subscription("", tags or ALL)
    return Selection(wanted.sub_string, TAG, frozenset(wanted.tags_set))


@dataclass(slots=True)
class Part:
    """The part of a queue to read: [`offset`, `end`)."""

    place: Place
    offset: int
    end: int


async def find_parts(client: Client, end: RocketEnd, timeout_s: float, group: str = "") -> list[Part]:
    """Find the messages of a topic's queues, or with `group` the messages that this group has yet to get.

    Raises `CannotBegin` for a queue that the topic lacks, or one of `FAULTS`.
    """
    queues = await client.queues(end.topic, Permission.READ)
    if not queues:
        raise CannotBegin(f"{end}: the nameserver knows no such topic")
    wanted = [each for each in queues if end.queue in (None, each.queue_id)]
    if not wanted:
        raise CannotBegin(f"{end}: has no queue {end.queue}: its brokers have {len(queues)} queues in all")
    parts = []
    for queue in sorted(wanted, key=lambda each: (each.broker_name, each.queue_id)):
        link = await client.link_to(queue.address)
        puller = QueuePuller(link, group or _GROUP, end.topic, queue.queue_id, timeout_s)
        await puller.seek_end()
        stop = puller.offset
        await puller.seek_begin()
        first = puller.offset
        if group and await puller.seek_committed():
            first = max(first, puller.offset)
        parts.append(Part(Place(end.topic, queue.broker_name, queue.queue_id), min(first, stop), stop))
    return parts


class StoredSource:
    """Reads the initial messages of the queues, each in order and in its own lane."""

    def __init__(
        self,
        end: RocketEnd,
        selection: Selection,
        make: MakeOfRecord,
        timeout_s: float,
        trying: TryAgain,
        security: Security = PLAIN,
        group: str = "",
    ) -> None:
        self.lanes = 0
        self._end = end
        self._selection = selection
        self._make = make
        self._timeout_s = timeout_s
        self._trying = trying
        self._security = security
        self._group = group
        self._parts: list[Part] | None = None

    @property
    def total(self) -> int | None:
        """The number of offsets to read, None while unknown; not each has a selected message."""
        return None if self._parts is None else sum(part.end - part.offset for part in self._parts)

    async def run(self, bridge: Bridge, task_status: trio.TaskStatus[None]) -> None:
        """Hand out all messages, and stop the bridge when all are answered."""
        while self._parts is None:
            try:
                async with self._connect() as client:
                    self._parts = await find_parts(client, self._end, self._timeout_s, self._group)
            except FAULTS as fault:
                await self._trying.failed(words_of(fault))
        self._trying.connected(trio.TASK_STATUS_IGNORED)
        for _ in self._parts:
            bridge.add_lane()
        await run_to_end(bridge, task_status, partial(self._hand_out, self._parts))

    def settle(self, lane: int, items: list[CarriedMessage]) -> None:
        """Do nothing: a topic keeps its messages."""

    def _connect(self) -> AbstractAsyncContextManager[Client]:
        return Client.connect(self._end.host, self._end.port, self._timeout_s, self._security)

    async def _hand_out(self, parts: Sequence[Part], bridge: Bridge) -> None:
        while any(part.offset < part.end for part in parts):
            try:
                async with self._connect() as client:
                    await self._read_all(client, parts, bridge)
            except FAULTS as fault:
                if isinstance(fault, RequestRefused) and fault.code in _FINAL:
                    bridge.stop(str(fault))
                    return
                bridge.is_source_away = True
                await self._trying.failed(words_of(fault))

    async def _read_all(self, client: Client, parts: Sequence[Part], bridge: Bridge) -> None:
        """Read all queues at the same time. Raises one of `FAULTS`."""
        queues = await client.queues(self._end.topic, Permission.READ)
        addresses = {Place(self._end.topic, each.broker_name, each.queue_id): each.address for each in queues}
        faults: list[Exception] = []
        async with trio.open_nursery() as nursery:

            async def read(lane: int, part: Part) -> None:
                try:
                    await self._read(client, addresses.get(part.place), lane, part, bridge)
                except FAULTS as fault:
                    faults.append(fault)
                    nursery.cancel_scope.cancel()

            for lane, part in enumerate(parts):
                nursery.start_soon(read, lane, part)
        if faults:
            raise faults[0]

    async def _read(self, client: Client, address: str | None, lane: int, part: Part, bridge: Bridge) -> None:
        if part.offset >= part.end:
            return
        _, broker_name, queue_id = part.place
        if address is None:
            raise LinkLost(f"no master has queue {queue_id} of topic {self._end.topic}, broker {broker_name}")
        link = await client.link_to(address)
        expression, kind, _ = self._selection
        puller = QueuePuller(link, self._group or _GROUP, self._end.topic, queue_id, self._timeout_s, expression, kind)
        puller.offset = part.offset
        pulls = PullsAhead(puller)
        while (before := part.offset) < part.end:
            while not (room := bridge.flow.room(lane)):
                await bridge.await_change()
            records = await pulls.next_records(min(room, _PULLED_MAX, part.end - part.offset))
            self._trying.connected(trio.TASK_STATUS_IGNORED)
            wanted = [each for each in records if each.queue_offset < part.end and self._selection.has(each)]
            async for taken in hand_out(bridge, lane, wanted, broker_name, self._make):
                part.offset = max(part.offset, taken)
            bridge.is_source_away = puller.offset <= part.offset and not records
            part.offset = max(part.offset, puller.offset)
            if self._selection == EVERYTHING:
                # Each offset of a queue has a message: the broker skips deleted and damaged ones.
                read = sum(each.queue_offset < part.end for each in records)
                bridge.account.missing += min(part.offset, part.end) - before - read
