"""Dead letters in a cluster: reading them and their marks, and sending them again."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from bmqctl.carrying.bridge.carrying import CannotBegin as NoSuchTopic
from bmqctl.carrying.bridge.ends import RocketEnd
from bmqctl.carrying.bridge.mapping import Unfit
from bmqctl.carrying.dead_letters.letters import (
    DEAD_LETTER_PREFIX,
    MARKS_TOPIC,
    RETRY_PREFIX,
    Letter,
    Mark,
    groups_of,
    mark_message,
    read_mark,
    to_retry,
    to_topic,
)
from bmqctl.carrying.messages.ends import CannotBegin, Reach
from bmqctl.carrying.moving.security import security_of
from bmqctl.carrying.moving.stored import Part, find_parts
from bmqctl.carrying.options import LetterTarget
from bmqctl.client.remoting.client import Client, Queue
from bmqctl.client.remoting.consuming import QueuePuller
from bmqctl.client.remoting.faults import FAULTS, NotWritable, check_answer, words_of
from bmqctl.client.remoting.link import LinkLost
from bmqctl.client.remoting.sending import Sender, UniqueIds
from formats.rocketmq.files.record import Record
from formats.rocketmq.java import string_hash
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.batch import BatchMessage, CompressedMessage
from formats.rocketmq.remoting.bodies.routes import Permission
from formats.rocketmq.remoting.codes import RequestCode

__all__ = ["Group", "LetterTarget", "Letters", "Resent", "WantedLetters", "open_letters"]

_PULLED_MAX: Final = 256
_NAME: Final = "bmqctl-dead-letters"
_SHARDING_KEY: Final = "__SHARDINGKEY"


class Group(NamedTuple):
    """A group's dead letters: their number, the number sent again, and the time of the oldest."""

    group: str
    letters: int
    sent_again: int
    oldest_at: str | None


class WantedLetters(NamedTuple):
    """The letters to send again: those with these ids or all, at most `count_max`; with `again` also marked ones."""

    ids: frozenset[str] = frozenset()
    count_max: int | None = None
    again: bool = False


@dataclass(slots=True)
class Resent:
    """The result of a run. `skipped` have marks; `failures` name letters that could not be sent, with the reason."""

    sent: int = 0
    skipped: int = 0
    missing: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    ended_by: str = ""


@asynccontextmanager
async def open_letters(host: str, port: int, reach: Reach) -> AsyncIterator[Letters]:
    """Connect to a cluster. Raises `CannotBegin`."""
    has_begun = False
    try:
        async with Client.connect(host, port, reach.timeout_s, security_of(reach)) as client:
            has_begun = True
            yield Letters(client, f"{host}:{port}")
    except OSError as fault:
        if has_begun:
            raise
        raise CannotBegin(f"no nameserver at {host}:{port}: {words_of(fault)}") from None


class Letters:
    """The dead letters of a cluster's groups. Methods raise `CannotBegin` if a broker does not answer."""

    def __init__(self, client: Client, place: str) -> None:
        self._client = client
        self._place = place
        self._queues: dict[str, list[Queue]] = {}
        self._senders: dict[str, Sender] = {}
        self._ids = UniqueIds()

    async def groups(self) -> list[Group]:
        try:
            marks = await self.marks()
            return [await self._count(group, marks) for group in groups_of(await self._client.topics())]
        except FAULTS as fault:
            raise CannotBegin(words_of(fault)) from None

    async def letters(self, group: str) -> AsyncGenerator[Letter]:
        topic = DEAD_LETTER_PREFIX + group
        try:
            async with aclosing(self._records(topic)) as records:
                async for part, record in records:
                    yield Letter(group, part.place.broker_name, record)
        except NoSuchTopic:
            if await self._client.queues(topic, Permission.WRITE):
                raise CannotBegin(f"topic {topic} can be written only: set its permission to 6 first") from None
            raise CannotBegin(f"group {group} has no dead letters: {self._place} knows no topic {topic}") from None
        except FAULTS as fault:
            raise CannotBegin(words_of(fault)) from None

    async def marks(self) -> dict[str, list[Mark]]:
        found: dict[str, list[Mark]] = {}
        try:
            if await self._client.queues(MARKS_TOPIC, Permission.READ):
                async for _, record in self._records(MARKS_TOPIC):
                    mark = read_mark(bytes(record.body))
                    if mark is not None:
                        found.setdefault(mark.letter, []).append(mark)
        except FAULTS as fault:
            raise CannotBegin(words_of(fault)) from None
        return found

    async def resend(
        self,
        group: str,
        wanted: WantedLetters,
        target: LetterTarget,
        topic: str | None,
        on_sent: Callable[[str], None],
        *,
        is_dry: bool = False,
    ) -> Resent:
        """Send letters again, one by one, and mark each one stored.

        `topic` overrides the letters' original topic; `on_sent` gets each letter's destination topic. The run ends at
        the first letter that a broker refuses. With `is_dry` nothing is sent.
        """
        done = Resent()
        marks = await self.marks()
        missing = set(wanted.ids)
        async with aclosing(self.letters(group)) as letters:
            async for letter in letters:
                if done.ended_by or (wanted.count_max is not None and done.sent >= wanted.count_max):
                    break
                if wanted.ids and letter.message_id not in wanted.ids:
                    continue
                missing.discard(letter.message_id)
                if letter.key in marks and not wanted.again:
                    done.skipped += 1
                    continue
                name = letter.message_id or letter.key
                try:
                    on_sent(await self._resend(letter, target, topic, is_dry))
                    done.sent += 1
                except Unfit as fault:
                    done.failures.append(f"letter {name}: {fault}")
                except FAULTS as fault:
                    done.ended_by = f"letter {name}: {words_of(fault)}"
        done.missing = [] if wanted.count_max is not None else sorted(missing)
        return done

    # Parts

    async def _count(self, group: str, marks: dict[str, list[Mark]]) -> Group:
        count = sent = 0
        oldest: list[Letter] = []
        async for letter in self.letters(group):
            count += 1
            sent += letter.key in marks
            if not oldest or letter.record.stored_ms < oldest[0].record.stored_ms:
                oldest = [letter]
        return Group(group, count, sent, oldest[0].stored_at if oldest else None)

    async def _records(self, topic: str) -> AsyncGenerator[tuple[Part, Record]]:
        """Read the messages of a topic up to its present end. Raises one of `FAULTS`, and `NoSuchTopic`."""
        timeout_s = self._client.timeout_s
        parts = await find_parts(self._client, RocketEnd("", 0, topic), timeout_s)
        addresses = {
            (each.broker_name, each.queue_id): each.address
            for each in await self._client.queues(topic, Permission.READ)
        }
        for part in parts:
            _, broker, queue_id = part.place
            link = await self._client.link_to(addresses[broker, queue_id])
            puller = QueuePuller(link, _NAME, topic, queue_id, timeout_s)
            puller.offset = part.offset
            while puller.offset < part.end:
                before = puller.offset
                for record in await puller.pull_records(_PULLED_MAX):
                    if record.queue_offset < part.end:
                        yield part, record
                if puller.offset <= before:
                    raise LinkLost(f"broker {broker} does not give message {before} of topic {topic}")

    async def _resend(self, letter: Letter, target: LetterTarget, topic: str | None, is_dry: bool) -> str:
        """Send and mark a letter; return its destination topic. Raises `Unfit`, and one of `FAULTS`."""
        if not letter.record.is_body_sound:
            raise Unfit("the body's checksum differs")
        original = topic or letter.original_topic
        if original is None:
            raise Unfit("it does not say which topic it was posted to: name one with --to-topic")
        to = original if target is LetterTarget.TOPIC else RETRY_PREFIX + letter.group
        message = to_topic(letter) if target is LetterTarget.TOPIC else to_retry(letter, original)
        queue = await self._choose(to, letter)
        if is_dry:
            return to
        await self._send(queue, to, message)
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        await self._send(await self._marks_queue(letter), MARKS_TOPIC, mark_message(letter, to, at, self._ids.next()))
        return to

    async def _choose(self, topic: str, letter: Letter) -> Queue:
        """Choose a queue of a topic, by the sharding key or by the letter's place. Raises `Unfit` without one."""
        if topic not in self._queues:
            try:
                self._queues[topic] = await self._client.queues(topic, Permission.WRITE)
            except NotWritable as fault:
                raise Unfit(str(fault)) from None
        queues = self._queues[topic]
        if not queues:
            raise Unfit(f"{self._place} knows no topic {topic}")
        key = decode_properties(letter.record.properties).get(_SHARDING_KEY)
        number = letter.record.queue_offset if key is None else abs(string_hash(key))
        return queues[number % len(queues)]

    async def _marks_queue(self, letter: Letter) -> Queue:
        """Find the queue for a mark, on the letter's broker if possible: the mark must last as long as the letter."""
        if MARKS_TOPIC not in self._queues:
            found = await self._client.queues(MARKS_TOPIC, Permission.WRITE)
            self._queues[MARKS_TOPIC] = found or await self._client.create_topic(MARKS_TOPIC, 1)
        queues = self._queues[MARKS_TOPIC]
        return next((each for each in queues if each.broker_name == letter.broker), queues[0])

    async def _send(self, queue: Queue, topic: str, message: BatchMessage | CompressedMessage) -> None:
        """Have a broker store a message. Raises one of `FAULTS`."""
        sender = self._senders.setdefault(topic, Sender(_NAME, topic))
        link = await self._client.link_to(queue.address)
        fields, body = sender.encoded(queue.queue_id, time.time_ns() // 1_000_000, message)
        answer = await link.call(RequestCode.SEND_MESSAGE_V2, fields, self._client.timeout_s, body)
        check_answer(f"a message for {topic} at {queue.address}", answer)
