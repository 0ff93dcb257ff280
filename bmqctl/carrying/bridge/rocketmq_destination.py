"""RocketMQ as a bridge's destination."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import trio

from bmqctl.carrying.bridge.carrying import Bridge, CannotBegin, Tell, TryAgain
from bmqctl.carrying.bridge.ends import RocketEnd
from bmqctl.carrying.bridge.flow import AGAIN, TAKEN, Answer, AnswerKind, Send
from bmqctl.client.remoting.client import PLAIN, Client, Queue, RequestRefused, Security
from bmqctl.client.remoting.faults import FAULTS, NotWritable, words_of
from bmqctl.client.remoting.link import LinkLost, RemotingLink
from bmqctl.client.remoting.routes import Place
from bmqctl.client.remoting.sending import Sender
from formats.rocketmq.remoting.bodies.routes import Permission
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame

__all__ = ["NEW_QUEUES", "RocketDestination", "find_places", "find_topics"]

NEW_QUEUES: Final = 4


async def find_places(end: RocketEnd, timeout_s: float, trying: TryAgain, security: Security = PLAIN) -> list[Place]:
    """Find the destination queues; create an unknown topic. Raises `CannotBegin`."""
    wanted = end.queue or 0
    topics = await find_topics(end, {end.topic: max(NEW_QUEUES, wanted + 1)}, timeout_s, trying, security)
    places = topics[end.topic]
    if end.key:
        return places
    if wanted >= len(places):
        raise CannotBegin(f"{end}: there are {len(places)} queues, and none with number {wanted}")
    return [places[wanted]]


async def find_topics(
    end: RocketEnd, topics: Mapping[str, int], timeout_s: float, trying: TryAgain, security: Security = PLAIN
) -> dict[str, list[Place]]:
    """Find the queues of topics, given by name with the number of queues for creating an unknown one.

    Raises `CannotBegin`, also for an unknown topic with the number 0, and for one without a writable queue.
    """
    places: dict[str, list[Place]] = {}
    while len(places) < len(topics):
        try:
            async with Client.connect(end.host, end.port, timeout_s, security) as client:
                for topic, new_queues in topics.items():
                    try:
                        found = await client.queues(topic, Permission.WRITE)
                    except NotWritable as fault:
                        raise CannotBegin(f"{end}: {fault}") from None
                    if not found and new_queues:
                        found = await client.create_topic(topic, new_queues)
                    places[topic] = sorted(Place(topic, each.broker_name, each.queue_id) for each in found)
        except FAULTS as fault:
            await trying.failed(words_of(fault))
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
        for each in await client.queues(topic, Permission.WRITE)
    }
    missing = [place for place in places if place not in found]
    if missing:
        first = missing[0]
        raise LinkLost(f"no master has queue {first.queue_id} of topic {first.topic}, broker {first.broker_name}")
    return [await client.link_to(found[place].address) for place in places]


class RocketDestination:
    """A producer to queues of topics, one for each lane; further lanes share the queues in turn."""

    def __init__(
        self,
        end: RocketEnd,
        places: Sequence[Place],
        timeout_s: float,
        trying: TryAgain,
        tell: Tell,
        security: Security = PLAIN,
    ) -> None:
        self._end = end
        self._places = places
        self._timeout_s = timeout_s
        self._tell = tell
        self._trying = trying
        self._security = security
        self._senders = {topic: Sender(end.group, topic) for topic in {place.topic for place in places}}
        self._links: list[RemotingLink] = []
        self._bridge: Bridge | None = None
        self._told = ""

    async def run(self, bridge: Bridge, task_status: trio.TaskStatus[None]) -> None:
        self._bridge = bridge
        end = self._end
        while True:
            reason = "disconnected"
            try:
                async with Client.connect(end.host, end.port, self._timeout_s, self._security) as client:
                    self._links = await _links(client, self._places)
                    client.keep_alive(end.group, end.topic, consumer=False)
                    self._trying.connected(task_status)
                    bridge.destination_up()
                    reason = await _first_lost(self._links)
            except FAULTS as fault:
                reason = words_of(fault)
            finally:
                self._links = []
            bridge.destination_down()
            await self._trying.failed(reason)

    def send(self, send: Send) -> None:
        messages = [item.message for item in send.items]
        at = send.lane % len(self._places)
        topic, _, queue_id = self._places[at]
        sender = self._senders[topic]
        born_ms = time.time_ns() // 1_000_000
        if len(messages) == 1:
            fields, body = sender.encoded(queue_id, born_ms, messages[0])
            code = RequestCode.SEND_MESSAGE_V2
        else:
            fields, body = sender.encoded_batch(queue_id, born_ms, messages)
            code = RequestCode.SEND_BATCH_MESSAGE
        try:
            self._links[at].ask(code, fields, partial(self._take, send), self._timeout_s, body)
        except (LinkLost, IndexError):
            return  # the end of the connection answers it

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
            # One of the messages is at fault, and the broker does not say which.
            bridge.answered(send.lane, send.batch, [AGAIN] * count, one_by_one=True)

    def _hear(self, reason: str) -> None:
        if reason != self._told:
            self._told = reason
            self._tell(f"{self._end}: {reason or 'the broker takes messages again'}")


async def _first_lost(links: Sequence[RemotingLink]) -> str:
    reasons: list[str] = []
    async with trio.open_nursery() as nursery:

        async def watch(link: RemotingLink) -> None:
            reasons.append(await link.lost())
            nursery.cancel_scope.cancel()

        for link in set(links):
            nursery.start_soon(watch, link)
    return reasons[0]
