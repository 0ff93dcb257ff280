"""RocketMQ as a bridge's source.

The bridge is a consumer of its group, and shares the topic's queues with the other consumers; it periodically looks for
changes of both. Each queue has its own lane for the life of the bridge.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

import trio

from bmqctl.carrying.bridge.blazingmq_ends import Made, ToPost
from bmqctl.carrying.bridge.carrying import Bridge, Tell, TryAgain
from bmqctl.carrying.bridge.encoding import encode_for_blazingmq
from bmqctl.carrying.bridge.ends import RocketEnd
from bmqctl.carrying.bridge.flow import CarriedMessage
from bmqctl.carrying.bridge.mapping import Unfit, posted_guid
from bmqctl.client.remoting.ahead import PullsAhead
from bmqctl.client.remoting.client import PLAIN, Client, Security
from bmqctl.client.remoting.consuming import QueuePuller
from bmqctl.client.remoting.faults import FAULTS, words_of
from bmqctl.client.remoting.link import LinkLost
from bmqctl.client.remoting.routes import Place, share_of
from formats.rocketmq.files.record import Record
from formats.rocketmq.remoting.bodies.routes import Permission

__all__ = ["MakeOfRecord", "RocketSource", "for_queue", "hand_out"]

PULLED_MAX: Final = 1024
# Pulls ahead of the flow's window, for each queue.
PULLS_AHEAD: Final = 1
# Seconds between checks of the bridge's share of queues.
SHARE_S: Final = 2.0
JOIN_S: Final = 0.1
# See `blazingmq_ends`.
_PORTION_BYTES: Final = 1 << 20
# The shortest time between two commits of a queue: a commit costs as much as some messages.
COMMIT_S: Final = 0.05


class _Pulled(NamedTuple):
    """The messages of one pull, and the offset after them."""

    records: list[Record]
    offset: int


Guarded = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]

MakeOfRecord = Callable[[Record, str], Made]
"""Converts a record, with the name of its broker, for the destination. Raises `Unfit`."""


def for_queue(record: Record, broker_name: str) -> Made:
    """Make a message for a queue, with the same GUID at each attempt. Raises `Unfit`."""
    encoded = encode_for_blazingmq(record, broker_name)
    made = ToPost(encoded, partial(posted_guid, record, broker_name))
    return Made(made, len(encoded.payload) + len(record.properties))


class RocketSource:
    """A consumer that pulls its share of a topic's queues, and commits its progress.

    It asks for a queue's committed offset when it gets the queue; a new connection continues where the last one was.
    """

    def __init__(
        self,
        end: RocketEnd,
        timeout_s: float,
        trying: TryAgain,
        tell: Tell,
        share_s: float = SHARE_S,
        make: MakeOfRecord = for_queue,
        security: Security = PLAIN,
    ) -> None:
        self.lanes = 0
        self._end = end
        self._timeout_s = timeout_s
        self._trying = trying
        self._tell = tell
        self._share_s = share_s
        self._make = make
        self._security = security
        self._lane_of: dict[Place, int] = {}
        # By lane: the next offset, for the bridge's own queues.
        self._positions: dict[int, int] = {}
        # By lane: the offset before which everything is settled but not committed.
        self._to_commit: dict[int, int] = {}
        # Of this connection: the tasks of the queues being pulled, and by lane all that were.
        self._carried: dict[Place, trio.CancelScope] = {}
        self._pullers: dict[int, QueuePuller] = {}
        self._told: tuple[int, int] | None = None

    async def run(self, bridge: Bridge, task_status: trio.TaskStatus[None]) -> None:
        """Pull until the bridge has ended; commit settled messages before leaving."""
        while True:
            reason = "disconnected"
            try:
                host, port = self._end.host, self._end.port
                async with Client.connect(host, port, self._timeout_s, self._security) as client:
                    await self._work(client, bridge, task_status)
            except FAULTS as fault:
                reason = words_of(fault)
            finally:
                self._carried.clear()
                self._pullers.clear()
            if bridge.ended.is_set() and not self._to_commit:
                # The bridge may have ended before its share of the queues was known.
                self._trying.connected(task_status)
                return
            bridge.is_source_away = True
            await self._trying.failed(reason)

    def settle(self, lane: int, items: list[CarriedMessage]) -> None:
        self._to_commit[lane] = items[-1].token + 1

    async def _work(self, client: Client, bridge: Bridge, task_status: trio.TaskStatus[None]) -> None:
        """Pull and commit until the bridge has ended. Raises one of `FAULTS`."""
        faults: list[Exception] = []
        async with trio.open_nursery() as nursery:

            async def guarded(work: Callable[[], Awaitable[None]]) -> None:
                try:
                    await work()
                except FAULTS as fault:
                    faults.append(fault)
                    nursery.cancel_scope.cancel()

            nursery.start_soon(guarded, partial(self._commit_all, client, bridge))
            nursery.start_soon(guarded, partial(self._share_all, client, bridge, guarded, task_status))
        if faults:
            raise faults[0]

    # The share of queues

    async def _share_all(
        self, client: Client, bridge: Bridge, guarded: Guarded, task_status: trio.TaskStatus[None]
    ) -> None:
        client.keep_alive(self._end.group, self._end.topic, consumer=True)
        async with trio.open_nursery() as nursery:

            async def share() -> None:
                while True:
                    is_known = await self._share(client, bridge, guarded, nursery)
                    if is_known:
                        self._trying.connected(task_status)
                        bridge.is_source_away = False
                    await trio.sleep(self._share_s if is_known else JOIN_S)

            nursery.start_soon(guarded, share)
            await bridge.stopped.wait()
            nursery.cancel_scope.cancel()

    async def _share(self, client: Client, bridge: Bridge, guarded: Guarded, nursery: trio.Nursery) -> bool:
        """Begin with newly assigned queues, and leave others; False while it is not yet a consumer."""
        addresses = await self._addresses(client)
        if addresses is None:
            return False
        for address in set(addresses.values()):
            await client.link_to(address)
        members = await client.consumers(self._end.group, next(iter(addresses.values())))
        mine = share_of(client.client_id, members, list(addresses))
        if mine is None:
            return False
        for place, lane in self._lane_of.items():
            if lane in self._positions and place not in mine:
                self._leave(place, lane, bridge)
        for place in mine:
            if place not in self._carried:
                await self._begin(client, place, addresses[place], bridge, guarded, nursery)
        self._tell_share(len(mine), len(addresses))
        return True

    async def _addresses(self, client: Client) -> dict[Place, str] | None:
        """The topic's queues with their addresses; None while the nameserver does not know them again."""
        queues = await client.queues(self._end.topic, Permission.READ)
        if not queues and not self._carried:
            raise LinkLost("the nameserver knows no such topic")
        # A restarted nameserver knows no topics until the brokers register them.
        return {Place(self._end.topic, each.broker_name, each.queue_id): each.address for each in queues} or None

    def _tell_share(self, count: int, total: int) -> None:
        if (count, total) != self._told and (self._told or count != total):
            self._tell(f"{self._end}: {count} of {total} queues are this bridge's")
        self._told = count, total

    def _leave(self, place: Place, lane: int, bridge: Bridge) -> None:
        """Stop pulling a queue assigned to another consumer. Sent messages are settled as usual."""
        tasks = self._carried.pop(place, None)
        if tasks is not None:
            tasks.cancel()
        del self._positions[lane]
        bridge.release(lane)

    async def _begin(
        self, client: Client, place: Place, address: str, bridge: Bridge, guarded: Guarded, nursery: trio.Nursery
    ) -> None:
        """Pull a queue from the group's offset; later, if its messages are still at the destination."""
        if place not in self._lane_of:
            self._lane_of[place] = bridge.add_lane()
        lane = self._lane_of[place]
        known = self._positions.get(lane)
        if known is None and not (bridge.flow.is_free(lane) and lane not in self._to_commit):
            return
        puller = await self._puller(client, place, address)
        if not await puller.seek_committed():
            await puller.seek_begin()
        # Others may have made progress while there was no connection.
        self._positions[lane] = puller.offset = max(puller.offset, known or 0)
        self._pullers[lane] = puller
        tasks = trio.CancelScope()
        self._carried[place] = tasks
        nursery.start_soon(guarded, partial(self._carry, lane, place, puller, tasks, bridge))

    # The messages

    async def _carry(
        self, lane: int, place: Place, puller: QueuePuller, tasks: trio.CancelScope, bridge: Bridge
    ) -> None:
        give, get = trio.open_memory_channel[_Pulled](PULLS_AHEAD)
        with tasks:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._take_all, lane, place.broker_name, get, bridge)
                fault = await self._pull(lane, puller, give, bridge)
                nursery.cancel_scope.cancel()
            raise fault

    async def _pull(
        self, lane: int, puller: QueuePuller, give: trio.MemorySendChannel[_Pulled], bridge: Bridge
    ) -> Exception:
        """Pull one queue until a failure; return the reason, which a nursery would wrap in an exception group."""
        pulls = PullsAhead(puller)
        try:
            while True:
                while not (room := bridge.flow.room(lane)):
                    await bridge.await_change()
                records = await pulls.next_records(min(room, PULLED_MAX))
                await give.send(_Pulled(records, puller.offset))
        except FAULTS as fault:
            return fault

    async def _take_all(
        self, lane: int, broker_name: str, get: trio.MemoryReceiveChannel[_Pulled], bridge: Bridge
    ) -> None:
        async for records, offset in get:
            # The request for the next messages goes first.
            await trio.lowlevel.checkpoint()
            async for taken in hand_out(bridge, lane, records, broker_name, self._make):
                self._positions[lane] = taken
            self._positions[lane] = offset

    async def _commit_all(self, client: Client, bridge: Bridge) -> None:
        """Commit settled offsets; each queue's again after a while, or when the bridge has ended."""
        while True:
            for lane, offset in list(self._to_commit.items()):
                puller = self._pullers.get(lane)
                if puller is None and lane not in self._positions:
                    # Settled on an earlier connection, and another consumer now has the queue.
                    del self._to_commit[lane]
                elif puller is not None:
                    await puller.commit(offset)
                    if self._to_commit[lane] == offset:
                        del self._to_commit[lane]
            if not self._to_commit:
                if bridge.ended.is_set():
                    return
                await bridge.await_change()
            elif bridge.ended.is_set():
                await self._open_left(client)
            with trio.move_on_after(COMMIT_S):
                await bridge.ended.wait()

    async def _open_left(self, client: Client) -> None:
        """Make pullers to commit queues that this connection has not begun with: the bridge was stopped."""
        addresses = await self._addresses(client) or {}
        for place, lane in self._lane_of.items():
            if lane in self._to_commit and lane not in self._pullers and place in addresses:
                self._pullers[lane] = await self._puller(client, place, addresses[place])
        await trio.sleep(COMMIT_S)

    async def _puller(self, client: Client, place: Place, address: str) -> QueuePuller:
        link = await client.link_to(address)
        return QueuePuller(link, self._end.group, self._end.topic, place.queue_id, self._timeout_s)


async def hand_out(
    bridge: Bridge, lane: int, records: Sequence[Record], broker_name: str, make: MakeOfRecord
) -> AsyncIterator[int]:
    """Give a bridge messages, converted as it has room for them; yield the offset after each portion.

    This bounds the decompressed bodies to the lane's window and one portion.
    """
    items: list[CarriedMessage] = []
    size = 0
    for record in records:
        items.append(_item_of(record, broker_name, make))
        size += items[-1].size
        if size >= _PORTION_BYTES:
            bridge.take(lane, items)
            yield record.queue_offset + 1
            items, size = [], 0
            while not bridge.flow.room(lane):
                await bridge.await_change()
    if items:
        bridge.take(lane, items)
        yield records[-1].queue_offset + 1


def _item_of(record: Record, broker_name: str, make: MakeOfRecord) -> CarriedMessage:
    try:
        if not record.is_body_sound:
            raise Unfit("the body's checksum differs")
        made, size, is_alone = make(record, broker_name)
    except Unfit as fault:
        return CarriedMessage(record.queue_offset, None, 0, str(fault))
    return CarriedMessage(record.queue_offset, made, size, is_alone=is_alone)
