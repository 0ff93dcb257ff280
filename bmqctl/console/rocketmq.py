"""A RocketMQ cluster as one person sees it, through the requests of its tools, signed with that person's key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import trio

from bmqctl.carrying.messages.ends import Reach
from bmqctl.carrying.messages.listing import Contents
from bmqctl.carrying.messages.received import UnreadableMessage, of_topic
from bmqctl.client.remoting.client import Security
from bmqctl.client.remoting.link import AccessKeys
from bmqctl.client.remoting.moments import moment
from bmqctl.client.rocketmq import ClientError, Content, StoredQueue
from bmqctl.client.rocketmq import connect as connect_rocketmq
from bmqctl.console.cluster import ClusterFault, Login, LoginNeeded, Plan, Seen, Words
from bmqctl.console.contents import contents_value
from bmqctl.console.map import rocketmq_map
from bmqctl.systems.administration import Move, Seek
from bmqctl.systems.explaining.rocketmq import causes_of_group
from bmqctl.systems.rocketmq.seeking import plan_seek, seek
from bmqctl.systems.rocketmq.status.asker import Asker, NobodyAnswers, asker_of
from bmqctl.systems.rocketmq.status.asking import Places
from bmqctl.systems.rocketmq.status.group import GroupUnknown, group_state
from bmqctl.systems.rocketmq.status.view import Unheard
from bmqctl.systems.watching.rocketmq import Look, take_look
from formats.bmq.wire.properties import Property, PropertyType

__all__ = ["RocketmqCluster", "connector"]

SYSTEM: Final = "RocketMQ"
GROUPS_MAX: Final = 50
COUNT_MAX: Final = 100
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,255}", re.ASCII)
_NO_PERMISSION: Final = "NO_PERMISSION"


def connector(places: Places, reach: Reach) -> Callable[[Login | None], RocketmqCluster]:
    """Return the maker of a person's cluster, from its known places. Raises `CannotBegin`."""
    asker = asker_of(reach)

    def cluster(login: Login | None) -> RocketmqCluster:
        keys = None if login is None else AccessKeys(*login)
        return RocketmqCluster(places, asker._replace(security=Security(asker.security.tls, keys)))

    return cluster


class _Place(NamedTuple):
    broker: str
    queue_id: int
    offset: int


class RocketmqCluster:
    """A cluster with known nameservers, asked with one person's key."""

    def __init__(self, places: Places, asker: Asker) -> None:
        self._places = places
        self._asker = asker

    def look(self) -> Seen:
        """Ask all nodes. Raises `ClusterFault`."""
        with _for_people():
            found = take_look(self._places, self._asker)
        _check_admission(found)
        return Seen(rocketmq_map(found.view), found.sample)

    def ask(self, question: str, words: Words) -> dict[str, Any]:
        """Answer a question. Raises `ClusterFault`."""
        topic = name_of(words["name"])
        with _for_people():
            match question:
                case "detail":
                    groups = [each for each in words.get("parts", "").split("\n") if each]
                    return trio.run(self._detail, topic, groups[:GROUPS_MAX])
                case "messages":
                    offset, count = _number(words, "offset"), _number(words, "count")
                    return trio.run(self._messages, topic, words.get("part", ""), offset, count)
                case "message":
                    return trio.run(self._message, topic, _place_of(words["id"]))
        raise ClusterFault(f"RocketMQ has no {question[:40]}")

    def plan(self, action: str, words: Words) -> Plan:
        """The effects of an action, without carrying it out. Raises `ClusterFault`."""
        wanted = _seek_of(action, words)
        with _for_people():
            moves = trio.run(plan_seek, self._nameservers, wanted, self._asker)
        return _plan_of(wanted, moves)

    def act(self, action: str, words: Words) -> str:
        """Carry out an action. Raises `ClusterFault`."""
        wanted = _seek_of(action, words)
        with _for_people():
            done_at = trio.run(seek, self._nameservers, wanted, self._asker)
        return (
            f"group {wanted.group} of topic {wanted.topic} continues at {_place_text(wanted)}; done at "
            f"{', '.join(done_at)}"
        )

    def close(self) -> None:
        """Do nothing: each question has connections of its own."""

    @property
    def _nameservers(self) -> tuple[str, ...]:
        if not self._places.nameservers:
            raise ClusterFault("this needs a nameserver: start the console with --nameserver")
        return self._places.nameservers

    async def _detail(self, topic: str, groups: list[str]) -> dict[str, Any]:
        queues = await self._with_queues(topic, _no_more)
        facts = [
            {"name": "Queues", "value": f"{len(queues):,}"},
            {"name": "Stored messages", "value": f"{sum(each.end - each.first for each in queues):,}"},
        ]
        causes, consumers = [], []
        for group in groups:
            try:
                state = await group_state(self._nameservers, topic, group, self._asker)
            except GroupUnknown:
                continue
            causes += causes_of_group(group, topic, state)
            lag = sum(each.messages for each in state.queues)
            consumers += [
                {"client": client, "app": group, "unconfirmed": lag, "limit": None, "is_full": False}
                for client in sorted(state.consumers)
            ]
        return {"causes": [each._asdict() for each in causes], "facts": facts, "consumers": consumers}

    async def _messages(self, topic: str, part: str, offset: int, count: int) -> dict[str, Any]:
        """List messages of a queue of a topic, the first one with messages if none is named."""
        found: list[Content] = []
        chosen: list[StoredQueue] = []
        start = 0

        async def read(queues: list[StoredQueue]) -> None:
            nonlocal start
            named = [each for each in queues if part in ("", _queue_name(each))]
            if part and not named:
                raise ClusterFault(f"topic {topic} has no queue {part[:100]}")
            queue = next((each for each in named if each.end > each.first), named[0] if named else None)
            if queue is None:
                return
            chosen.append(queue)
            held = queue.end - queue.first
            start = min(max(0, held + offset if offset < 0 else offset), held)
            if start < held:
                found.extend(await queue.read(queue.first + start, min(max(1, count), COUNT_MAX)))

        queues = await self._with_queues(topic, read)
        held = sum(each.end - each.first for each in chosen)
        return {
            "messages": [_row(each) for each in found],
            "offset": start,
            "total": held,
            "parts": [_queue_name(each) for each in queues],
            "part": _queue_name(chosen[0]) if chosen else "",
        }

    async def _message(self, topic: str, place: _Place) -> dict[str, Any]:
        found: list[Content] = []

        async def read(queues: list[StoredQueue]) -> None:
            for queue in queues:
                if (queue.broker, queue.queue_id) == place[:2] and queue.first <= place.offset < queue.end:
                    found.extend(await queue.read(place.offset, 1))

        await self._with_queues(topic, read)
        if not found or found[0].offset != place.offset:
            raise ClusterFault(f"topic {topic} has no message {place.offset} in queue {place.broker}/{place.queue_id}")
        return _opened(found[0])

    async def _with_queues(self, topic: str, use: Callable[[list[StoredQueue]], Any]) -> list[StoredQueue]:
        tls, keys = self._asker.security
        uri = f"rocketmq://{','.join(self._nameservers)}"
        timeout_s = self._asker.timeout_s
        async with connect_rocketmq(uri, credentials=keys, tls=tls, timeout_s=timeout_s) as session:
            queues = await session.stored_queues(topic)
            await use(queues)
            return queues


async def _no_more(queues: list[StoredQueue]) -> None:
    """Read nothing of the queues."""


def name_of(text: str) -> str:
    """Check the name of a topic or a group. Raises `ClusterFault`."""
    if not _NAME.fullmatch(text):
        raise ClusterFault(f"{text[:100]!r} is no name of a topic or a group")
    return text


def _seek_of(action: str, words: Words) -> Seek:
    if action != "reset":
        raise ClusterFault(f"RocketMQ has no action {action[:40]}")
    return Seek(name_of(words["name"]), name_of(words["part"]), _time_of(words["to"]))


def _plan_of(wanted: Seek, moves: Sequence[Move]) -> Plan:
    again, skipped = sum(each.again for each in moves), sum(each.skipped for each in moves)
    brokers = len({each.broker for each in moves})
    return Plan(
        f"Reset the offsets of group {wanted.group}?",
        f"In topic {wanted.topic}, group {wanted.group} continues at {_place_text(wanted)}, in {len(moves):,} queues "
        f"of {brokers:,} brokers. As of now {_messages(again)} that it has consumed will come again, and "
        f"{_messages(skipped)} that it has not consumed will be skipped. Connected consumers continue there, "
        "too. The offsets that it has now are lost.",
        f"Reset {wanted.group}",
    )


def _place_text(wanted: Seek) -> str:
    match wanted.to:
        case "begin":
            return "the oldest stored message"
        case "end":
            return "the next message that is posted"
    return f"the first message stored at {wanted.to:%Y-%m-%d %H:%M:%S %Z} or later"


def _messages(count: int) -> str:
    return f"{count:,} message" + ("" if count == 1 else "s")


def _check_admission(look: Look) -> None:
    """Raise `LoginNeeded` if the brokers refuse these credentials."""
    brokers = look.heard.brokers.values()
    reasons = [each.reason for each in brokers if isinstance(each, Unheard) and _NO_PERMISSION in each.reason]
    refused = [each for each in look.sample.faults if _NO_PERMISSION in each]
    if (reasons or refused) and not look.sample.counted:
        raise LoginNeeded((reasons or refused)[0])


@contextmanager
def _for_people() -> Iterator[None]:
    try:
        yield
    except (NobodyAnswers, GroupUnknown, ClientError) as fault:
        text = str(fault)
        raise (LoginNeeded if _NO_PERMISSION in text else ClusterFault)(text) from None


def _number(words: Words, name: str) -> int:
    text = words.get(name, "0")
    if not re.fullmatch(r"-?[0-9]{1,9}", text, re.ASCII):
        raise ClusterFault(f"{name}: {text[:40]!r} is no number")
    return int(text)


def _place_of(text: str) -> _Place:
    found = re.fullmatch(r"([^:]{1,255}):([0-9]{1,9}):([0-9]{1,18})", text, re.ASCII)
    if found is None:
        raise ClusterFault(f"{text[:100]!r} is no place of a message")
    return _Place(found[1], int(found[2]), int(found[3]))


def _time_of(text: str) -> str | datetime:
    """Parse `begin`, `end` or a time; one without a zone is UTC. Raises `ClusterFault`."""
    if text in ("begin", "end"):
        return text
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ClusterFault(f"{text[:40]!r} is no time, such as 2026-11-25T12:00:00Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _queue_name(queue: StoredQueue) -> str:
    return f"{queue.broker}/{queue.queue_id}"


def _row(message: Content) -> dict[str, Any]:
    return {
        "id": f"{message.broker}:{message.queue_id}:{message.offset}",
        "where": str(message.offset),
        "size": message.size,
        "stored_at": moment(message.record.stored_ms).isoformat(),
        "note": " ".join([message.tag or "", *message.keys]).strip(),
    }


def _opened(message: Content) -> dict[str, Any]:
    stored = moment(message.record.stored_ms).isoformat()
    facts = [
        ("Stored", stored),
        ("Queue", f"{message.broker}/{message.queue_id}"),
        ("Offset", f"{message.offset:,}"),
        ("Size", f"{message.size:,} B"),
    ]
    try:
        received = of_topic(message)
    except UnreadableMessage as fault:
        raw = Contents(bytes(message.record.body), [], str(fault))
        return {"facts": [{"name": name, "value": value} for name, value in facts], **contents_value(raw)}
    facts += [("Message id", received.name), ("Born", str(received.place["born_at"]))]
    if received.tag is not None:
        facts.append(("Tag", received.tag))
    if received.keys:
        facts.append(("Keys", " ".join(received.keys)))
    properties = [Property(each.name, PropertyType.STRING, each.value) for each in received.properties]
    value = contents_value(Contents(received.payload, properties))
    return {"facts": [{"name": name, "value": text} for name, text in facts], **value}
