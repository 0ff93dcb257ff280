"""RocketMQ as a bridge's source and destination."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import trio

from bmqctl.bridge.blazingmq_ends import ToPost
from bmqctl.bridge.carrying import Bridge, CannotBegin, Tell, TryAgain
from bmqctl.bridge.ends import RocketEnd
from bmqctl.bridge.flow import AGAIN, TAKEN, Answer, AnswerKind, Item, Send
from bmqctl.bridge.mapping import Unfit, to_blazingmq
from bmqctl.rocketmq_client.client import Client, Queue, RequestRefused
from bmqctl.rocketmq_client.consuming import QueuePuller
from bmqctl.rocketmq_client.link import LinkLost, NoAnswer, RemotingLink
from bmqctl.rocketmq_client.sending import Sender
from formats.errors import FormatError
from formats.rocketmq.codes import RequestCode, ResponseCode
from formats.rocketmq.frame import Frame
from formats.rocketmq.record import Record

__all__ = ["Place", "RocketDestination", "RocketSource", "find_places", "find_topics"]

FAULTS: Final = (OSError, LinkLost, NoAnswer, RequestRefused, FormatError)
# The queues of a topic that is made because nobody knows it.
NEW_QUEUES: Final = 4
PULLED_MAX: Final = 1024
# Pulls of a queue whose messages wait to be taken, beyond what the flow's window allows.
PULLS_AHEAD: Final = 1


class _Pulled(NamedTuple):
    """The messages of one pull, and the offset behind them."""

    records: list[Record]
    offset: int


class Place(NamedTuple):
    """A queue of a topic, wherever its broker's master is. Their order is that of the queues' numbers in a bridge."""

    topic: str
    broker_name: str
    queue_id: int


async def find_places(end: RocketEnd, timeout_s: float, *, make: bool) -> list[Place]:
    """Find the queues of a topic; with `make` it is made if nobody knows it. Raises `CannotBegin`."""
    wanted = end.queue or 0
    queues = max(NEW_QUEUES, wanted + 1) if make else 0
    places = (await find_topics(end, {end.topic: queues}, timeout_s))[end.topic]
    if make and not end.key:
        if wanted >= len(places):
            raise CannotBegin(f"{end}: there are {len(places)} queues, and none with number {wanted}")
        return [places[wanted]]
    return places


async def find_topics(end: RocketEnd, topics: Mapping[str, int], timeout_s: float) -> dict[str, list[Place]]:
    """Find the queues of topics, given by name with the number of queues that one gets if nobody knows it.

    Raises `CannotBegin`, also for an unknown topic with the number 0.
    """
    places: dict[str, list[Place]] = {}
    try:
        async with Client.connect(end.host, end.port, timeout_s) as client:
            for topic, new_queues in topics.items():
                found = await client.queues(topic)
                if not found and new_queues:
                    found = await client.create_topic(topic, new_queues)
                places[topic] = sorted(Place(topic, each.broker_name, each.queue_id) for each in found)
    except FAULTS as fault:
        raise CannotBegin(f"{end}: {_words(fault)}") from None
    unknown = [topic for topic, found in places.items() if not found]
    if unknown:
        which = "such topic" if unknown == [end.topic] else f"topic {unknown[0]}"
        raise CannotBegin(f"{end}: the nameserver knows no {which}")
    return places


async def _links(client: Client, places: Sequence[Place]) -> list[RemotingLink]:
    """The connections to the masters of all places. Raises `LinkLost` if one has none."""
    found: dict[Place, Queue] = {
        Place(topic, each.broker_name, each.queue_id): each
        for topic in dict.fromkeys(place.topic for place in places)
        for each in await client.queues(topic)
    }
    missing = [place for place in places if place not in found]
    if missing:
        first = missing[0]
        raise LinkLost(f"no master has queue {first.queue_id} of topic {first.topic}, broker {first.broker_name}")
    return [await client.link_to(found[place].address) for place in places]


class RocketSource:
    """A group that pulls all queues of a topic, each in a lane of its own, and commits how far it has come.

    The group's committed offset is asked for once; a new connection goes on where the last one was.
    """

    def __init__(self, end: RocketEnd, places: Sequence[Place], timeout_s: float, tell: Tell) -> None:
        self.lanes = len(places)
        self._end = end
        self._places = places
        self._timeout_s = timeout_s
        self._trying = TryAgain(str(end), tell)
        self._positions: list[int | None] = [None] * len(places)
        # By lane: the offset before which everything is settled, and not committed yet.
        self._to_commit: dict[int, int] = {}

    async def run(self, bridge: Bridge, task_status: trio.TaskStatus[None]) -> None:
        """Pull until the bridge has ended; commit what was settled before leaving."""
        while True:
            reason = "disconnected"
            try:
                async with Client.connect(self._end.host, self._end.port, self._timeout_s) as client:
                    pullers = await self._open(client)
                    self._trying.connected(task_status)
                    await self._work(pullers, bridge)
            except FAULTS as fault:
                reason = _words(fault)
            if bridge.ended.is_set() and not self._to_commit:
                return
            await self._trying.failed(reason)

    def settle(self, lane: int, items: list[Item]) -> None:
        """Have the group's offset committed."""
        self._to_commit[lane] = items[-1].token + 1

    async def _open(self, client: Client) -> list[QueuePuller]:
        end = self._end
        links = await _links(client, self._places)
        client.keep_alive(end.group, end.topic, consumer=True)
        pullers = []
        for lane, (place, link) in enumerate(zip(self._places, links, strict=True)):
            puller = QueuePuller(link, end.group, end.topic, place.queue_id, self._timeout_s)
            position = self._positions[lane]
            if position is not None:
                puller.offset = position
            elif not await puller.seek_committed():
                await puller.seek_begin()
            self._positions[lane] = puller.offset
            pullers.append(puller)
        return pullers

    async def _work(self, pullers: list[QueuePuller], bridge: Bridge) -> None:
        """Pull and commit until the bridge has ended. Raises one of `FAULTS`."""
        faults: list[Exception] = []
        async with trio.open_nursery() as nursery:

            async def guarded(work: Callable[[], Awaitable[None]]) -> None:
                try:
                    await work()
                except FAULTS as fault:
                    faults.append(fault)
                    nursery.cancel_scope.cancel()

            nursery.start_soon(guarded, partial(self._commit_all, pullers, bridge))
            nursery.start_soon(guarded, partial(self._pull_all, pullers, bridge, guarded))
        if faults:
            raise faults[0]

    async def _pull_all(
        self,
        pullers: list[QueuePuller],
        bridge: Bridge,
        guarded: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]],
    ) -> None:
        """Pull all queues until the bridge is stopped."""
        async with trio.open_nursery() as nursery:
            for lane, puller in enumerate(pullers):
                give, get = trio.open_memory_channel[_Pulled](PULLS_AHEAD)
                nursery.start_soon(guarded, partial(self._pull, lane, puller, give, bridge))
                nursery.start_soon(self._take_all, lane, get, bridge)
            await bridge.stopped.wait()
            nursery.cancel_scope.cancel()

    async def _pull(
        self, lane: int, puller: QueuePuller, give: trio.MemorySendChannel[_Pulled], bridge: Bridge
    ) -> None:
        """Pull one queue; while messages are taken, the broker looks for the next."""
        while True:
            while not (room := bridge.flow.room(lane)):
                await bridge.await_change()
            records = await puller.pull_records(min(room, PULLED_MAX))
            await give.send(_Pulled(records, puller.offset))

    async def _take_all(self, lane: int, get: trio.MemoryReceiveChannel[_Pulled], bridge: Bridge) -> None:
        broker_name = self._places[lane].broker_name
        async for records, offset in get:
            # The request for the next messages goes first.
            await trio.lowlevel.checkpoint()
            if records:
                bridge.take(lane, [_item(record, broker_name) for record in records])
            self._positions[lane] = offset

    async def _commit_all(self, pullers: list[QueuePuller], bridge: Bridge) -> None:
        """Commit what is settled, as soon as the commit before is answered."""
        while True:
            for lane, offset in list(self._to_commit.items()):
                await pullers[lane].commit(offset)
                if self._to_commit[lane] == offset:
                    del self._to_commit[lane]
            if self._to_commit:
                continue
            if bridge.ended.is_set():
                return
            await bridge.await_change()


def _item(record: Record, broker_name: str) -> Item:
    try:
        if not record.is_body_sound:
            raise Unfit("the body's checksum differs")
        posted = to_blazingmq(record, broker_name)
    except Unfit as fault:
        return Item(record.queue_offset, None, 0, str(fault))
    size = len(posted.payload) + len(record.properties)
    return Item(record.queue_offset, ToPost(posted, record, broker_name), size)


class RocketDestination:
    """A producer to queues of topics, one for each lane."""

    def __init__(self, end: RocketEnd, places: Sequence[Place], timeout_s: float, tell: Tell) -> None:
        self._end = end
        self._places = places
        self._timeout_s = timeout_s
        self._tell = tell
        self._trying = TryAgain(str(end), tell)
        self._senders = {topic: Sender(end.group, topic) for topic in {place.topic for place in places}}
        self._links: list[RemotingLink] = []
        self._bridge: Bridge | None = None
        self._told = ""

    async def run(self, bridge: Bridge, task_status: trio.TaskStatus[None]) -> None:
        """Keep the connections to the brokers."""
        self._bridge = bridge
        end = self._end
        while True:
            reason = "disconnected"
            try:
                async with Client.connect(end.host, end.port, self._timeout_s) as client:
                    self._links = await _links(client, self._places)
                    client.keep_alive(end.group, end.topic, consumer=False)
                    self._trying.connected(task_status)
                    bridge.destination_up()
                    reason = await _first_lost(self._links)
            except FAULTS as fault:
                reason = _words(fault)
            finally:
                self._links = []
            bridge.destination_down()
            await self._trying.failed(reason)

    def send(self, send: Send) -> None:
        """Send a batch in one request."""
        messages = [item.message for item in send.items]
        topic, _, queue_id = self._places[send.lane]
        sender = self._senders[topic]
        born_ms = time.time_ns() // 1_000_000
        if len(messages) == 1:
            fields, body = sender.encoded(queue_id, born_ms, messages[0])
            code = RequestCode.SEND_MESSAGE_V2
        else:
            fields, body = sender.encoded_batch(queue_id, born_ms, messages)
            code = RequestCode.SEND_BATCH_MESSAGE
        try:
            self._links[send.lane].ask(code, fields, partial(self._take, send), self._timeout_s, body)
        except (LinkLost, IndexError):
            return  # it is answered when the connection's end is noticed

    def _take(self, send: Send, answer: Frame | str) -> None:
        bridge = self._bridge
        if bridge is None:
            return
        count = len(send.items)
        if isinstance(answer, str):
            self._hear(answer)
            bridge.answered(send.lane, send.batch, [AGAIN] * count)
        elif answer.code == ResponseCode.SUCCESS:
            self._hear("")
            bridge.answered(send.lane, send.batch, [TAKEN] * count)
        elif answer.code != ResponseCode.MESSAGE_ILLEGAL:
            self._hear(str(RequestRefused("refuses messages", answer)))
            bridge.answered(send.lane, send.batch, [AGAIN] * count)
        elif count == 1:
            reason = answer.remark or "MESSAGE_ILLEGAL"
            bridge.answered(send.lane, send.batch, [Answer(AnswerKind.REFUSED, reason)])
        else:
            # One of them is at fault, and the broker does not say which.
            bridge.answered(send.lane, send.batch, [AGAIN] * count, one_by_one=True)

    def _hear(self, reason: str) -> None:
        if reason != self._told:
            self._told = reason
            self._tell(f"{self._end}: {reason or 'the broker takes messages again'}")


async def _first_lost(links: Sequence[RemotingLink]) -> str:
    """Wait for the end of any of the connections; return the reason."""
    reasons: list[str] = []
    async with trio.open_nursery() as nursery:

        async def watch(link: RemotingLink) -> None:
            reasons.append(await link.lost())
            nursery.cancel_scope.cancel()

        for link in set(links):
            nursery.start_soon(watch, link)
    return reasons[0]


def _words(fault: Exception) -> str:
    return (fault.strerror or str(fault)) if isinstance(fault, OSError) else str(fault)
