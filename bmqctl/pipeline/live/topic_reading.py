"""Reading of a topic by offsets: the bounds of its queues, and the messages between two offsets.

Each call makes and ends its connections. While a nameserver or a broker is away, it tries again for the options'
`patience_s`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

import trio

from bmqctl.client.remoting.client import Client
from bmqctl.client.remoting.client import Queue as Place
from bmqctl.client.remoting.consuming import QueuePuller
from bmqctl.client.remoting.faults import FAULTS, words_of
from bmqctl.client.remoting.link import LinkLost
from bmqctl.pipeline.live.topic_options import Start, TopicOptions
from formats.rocketmq.files.record import Record
from formats.rocketmq.remoting.bodies.routes import Permission

__all__ = ["Bounds", "Range", "TopicFailed", "bounds_of", "commit_offsets", "read_piece", "read_range"]

_PAUSE_S: Final = 0.5
# Messages read at once: a task holds no more than these and one answer.
_PIECE_MESSAGES: Final = 4096
_PIECE_BYTES: Final = 16 << 20
_PULLED_MAX: Final = 1024
# Empty answers accepted: a broker answers at once for offsets that it has, and redirects from deleted ones.
_EMPTY_MAX: Final = 3

T = TypeVar("T")


class TopicFailed(RuntimeError):
    """Failure to read a topic; one line."""


class Bounds(NamedTuple):
    """The offsets of a queue: of its first message, after its last, and where a query begins."""

    first: int
    end: int
    start: int


class Range(NamedTuple):
    """Messages [`begin`, `end`) of one queue."""

    broker_name: str
    queue_id: int
    begin: int
    end: int

    @property
    def queue(self) -> str:
        return f"{self.broker_name}/{self.queue_id}"


def bounds_of(options: TopicOptions, start: Start | None) -> dict[str, Bounds]:
    """The bounds of all queues, by BROKER/NUMBER; `start` is where a query begins, None for one that has begun.

    Raises `TopicFailed`, also if there is no such topic.
    """

    async def ask(client: Client) -> dict[str, Bounds]:
        found = {}
        for place in await _places(client, options):
            puller = await _puller(client, options, place)
            await puller.seek_end()
            end = puller.offset
            await puller.seek_begin()
            first = puller.offset
            if start is Start.LATEST:
                begin = end
            elif start is Start.GROUP and await puller.seek_committed():
                begin = min(max(puller.offset, first), end)
            else:
                begin = first
            found[f"{place.broker_name}/{place.queue_id}"] = Bounds(first, end, begin)
        return found

    return _patiently(options, ask)


def commit_offsets(options: TopicOptions, offsets: Mapping[str, int]) -> None:
    """Commit a group's offsets to show its progress; a query itself begins at its checkpoint."""

    async def commit(client: Client) -> None:
        for place in await _places(client, options):
            offset = offsets.get(f"{place.broker_name}/{place.queue_id}")
            if offset is not None:
                await (await _puller(client, options, place)).commit(offset)

    _patiently(options, commit)


def read_range(options: TopicOptions, wanted: Range) -> Iterator[list[Record]]:
    """Yield the messages of a range, piece by piece. Raises `TopicFailed`, also for deleted messages.

    Without `fails_on_loss`, missing messages are skipped.
    """
    at = wanted.begin
    while at < wanted.end:
        begin = at

        async def read(client: Client, begin: int = begin) -> tuple[list[Record], int]:
            places = await _places(client, options)
            place = next((each for each in places if each[:2] == (wanted.queue_id, wanted.broker_name)), None)
            if place is None:
                raise LinkLost(f"no master has queue {wanted.queue} of topic {options.topic}")
            puller = await _puller(client, options, place)
            # A broker that has just started may still be entering messages in its queues.
            await puller.seek_end()
            if puller.offset >= wanted.end:
                return await read_piece(puller, begin, wanted.end)
            if options.fails_on_loss:
                raise LinkLost(f"queue {wanted.queue} ends with message {puller.offset}, and {wanted.end} were there")
            there = max(begin, puller.offset)
            records, read_to = await read_piece(puller, begin, there)
            return records, wanted.end if read_to == there else read_to

        records, at = _patiently(options, read)
        if options.fails_on_loss and [record.queue_offset for record in records] != [*range(begin, at)]:
            held = {record.queue_offset for record in records}
            missing = next(offset for offset in range(begin, at) if offset not in held)
            raise TopicFailed(
                f"topic {options.topic}: message {missing} of queue {wanted.queue} is not there any more; "
                "with failOnDataLoss=false the query goes on without it"
            )
        yield records


async def read_piece(puller: QueuePuller, begin: int, end: int) -> tuple[list[Record], int]:
    """Read from an offset; return the messages, and the offset up to which they are complete."""
    puller.offset = begin
    found: list[Record] = []
    size = empty = 0
    while puller.offset < end and len(found) < _PIECE_MESSAGES and size < _PIECE_BYTES:
        before = puller.offset
        records = await puller.pull_records(min(_PULLED_MAX, end - before))
        if puller.offset < before:
            raise LinkLost(f"the broker has messages up to {puller.offset}, and was asked for {before}")
        # Each once and in order, whatever the answer contains.
        at = before
        for record in records:
            if at <= record.queue_offset < min(puller.offset, end):
                found.append(record)
                size += len(record.body) + len(record.properties)
                at = record.queue_offset + 1
        empty = 0 if puller.offset > before else empty + 1
        if empty > _EMPTY_MAX:
            raise LinkLost(f"the broker has no message at {before}")
    return found, min(puller.offset, end)


async def _places(client: Client, options: TopicOptions) -> list[Place]:
    places = await client.queues(options.topic, Permission.READ)
    if not places:
        raise LinkLost(f"the nameserver knows no topic {options.topic}, or no master of it")
    return places


async def _puller(client: Client, options: TopicOptions, place: Place) -> QueuePuller:
    link = await client.link_to(place.address)
    return QueuePuller(link, options.group, options.topic, place.queue_id, options.timeout_s)


def _patiently(options: TopicOptions, work: Callable[[Client], Awaitable[T]]) -> T:
    """Do the work with a client, and repeat it after failures until patience ends. Raises `TopicFailed`."""

    async def main() -> T:
        deadline_s = trio.current_time() + options.patience_s
        while True:
            try:
                async with Client.connect(options.host, options.port, options.timeout_s) as client:
                    return await work(client)
            except FAULTS as fault:
                reason = words_of(fault)
            if trio.current_time() >= deadline_s:
                raise TopicFailed(f"rocketmq://{options.host}:{options.port}/{options.topic}: {reason}")
            await trio.sleep(min(_PAUSE_S, options.patience_s))

    return trio.run(main)
