"""Judges a store: commit log, consume queues and index say the same, and hold what was promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from broker.rocketmq.store.message_store import MessageStore
from broker.rocketmq.tables import names
from formats.rocketmq.files.consume_queue import ConsumeQueueEntry
from formats.rocketmq.files.index import message_index_keys
from formats.rocketmq.files.record import Blank, Record, decode_record
from formats.rocketmq.java import string_hash
from formats.rocketmq.lite import QUEUE_ID, branch_of
from formats.rocketmq.properties import decode_properties
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.changes import CHANGING
from tests.simulator.rocketmq.process import DELAYS_MS
from tests.simulator.rocketmq.promises import Promises, is_judged
from tests.simulator.rocketmq.wire import name_of

__all__ = ["Judged", "Kept", "judge_store"]

LOOKED_UP = 60


class Kept(NamedTuple):
    """A message that consumers can see."""

    topic: str
    name: str
    times: int
    stored_ms: int
    queue_id: int = 0
    offset: int = 0


@dataclass(slots=True)
class Judged:
    """The part of a store that was judged: the log up to its `end`, and the first entries of each queue."""

    end: int | None = None
    entries: dict[tuple[str, int], list[ConsumeQueueEntry]] = field(default_factory=dict)
    compared: Counter[tuple[str, int]] = field(default_factory=Counter)
    keys: list[tuple[str, int]] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)


def judge_store(
    store: MessageStore, promises: Promises, random: Random, *, is_indexed: bool, judged: Judged | None = None
) -> list[Kept]:
    """Go through a store; the messages that consumers can see. `Violation` if anything is not as promised.

    `is_indexed`: there was room for the index all the time. With `judged`, which grows, only go through what the same
    process has added since.
    """
    judged = judged or Judged()
    is_first = judged.end is None
    for record, size in _records(store, store.log.begin if judged.end is None else judged.end):
        if record.topic == CHANGING:
            # Where it was deleted, its log has more than its queues.
            continue
        properties = decode_properties(record.properties)
        entry = ConsumeQueueEntry(record.physical_offset, size, _tags_code(record, properties))
        place = record.topic, record.queue_id, record.queue_offset
        _enter(judged, *place, entry)
        branch = branch_of(record.topic, properties)
        if branch is not None:
            place = branch.queue, QUEUE_ID, branch.offset
            _enter(judged, *place, entry)
        judged.keys += [(text, record.physical_offset) for text in message_index_keys(record.topic, properties)]
        topic, queue_id, offset = place
        if branch is not None or is_judged(topic):
            name = name_of(record.body)
            promises.see_in_store(*place, name, record.stored_ms)
            judged.kept.append(Kept(topic, name, record.reconsume_times, record.stored_ms, queue_id, offset))
    judged.end = store.log.end
    promises.judge_returns((each.topic, each.name, each.times) for each in judged.kept)
    _judge_queues(store, judged)
    _judge_places(promises, judged.entries)
    if is_indexed:
        some = random.sample(judged.keys, min(len(judged.keys), LOOKED_UP))
        _judge_index(store, [*(some if is_first else ()), *judged.keys[-LOOKED_UP:]])
    return judged.kept


def _enter(judged: Judged, topic: str, queue_id: int, offset: int, entry: ConsumeQueueEntry) -> None:
    """Note the next entry that a queue has to have."""
    queue = judged.entries.setdefault((topic, queue_id), [])
    if offset != len(queue):
        raise Violation(
            f"the log has offset {offset} of queue {queue_id} of {topic} behind {len(queue)} messages of it"
        )
    queue.append(entry)


def _records(store: MessageStore, offset: int) -> Iterator[tuple[Record, int]]:
    while offset < store.log.end:
        file, place = store.log.files.place(offset)
        record = decode_record(file.buffer, place)
        if isinstance(record, Blank):
            offset += record.size
            continue
        if record is None or record.physical_offset != offset or not record.is_body_sound:
            raise Violation(f"the log, which ends at {store.log.end}, has no sound record at {offset}")
        size = int.from_bytes(file.buffer[place : place + 4], "big")
        yield record, size
        offset += size


def _tags_code(record: Record, properties: dict[str, str]) -> int:
    if record.topic == names.DELAY_TOPIC:
        return record.stored_ms + DELAYS_MS[int(properties["DELAY"]) - 1]
    return string_hash(properties["TAGS"]) if properties.get("TAGS") else 0


def _judge_queues(store: MessageStore, judged: Judged) -> None:
    entries = judged.entries
    for key, queue in store.queues.items():
        if key[0] == CHANGING:
            continue
        first = judged.compared[key]
        wanted = entries.get(key, [])[first:]
        found = [queue.get(number) for number in range(max(queue.begin, first), queue.end)]
        if found != wanted:
            apart = next(
                (at for at, (one, other) in enumerate(zip(found, wanted, strict=False)) if one != other),
                min(len(found), len(wanted)),
            )
            raise Violation(
                f"queue {key} has {first + len(found)} entries, the log {first + len(wanted)} messages of it; "
                f"first apart: {first + apart}"
            )
        judged.compared[key] = first + len(found)
    if missing := [key for key in entries if key not in store.queues]:
        raise Violation(f"the log has messages of queues {missing}, which have no entries")


def _judge_places(promises: Promises, entries: dict[tuple[str, int], list[ConsumeQueueEntry]]) -> None:
    for key, known in promises.places.items():
        for offset, name in known.items():
            if offset >= len(entries.get(key, ())):
                raise Violation(f"{name} was at offset {offset} of {key}, and is lost")


def _judge_index(store: MessageStore, keys: list[tuple[str, int]]) -> None:
    """Look up some messages."""
    for text, offset in keys:
        if offset not in store.index.find_text(text, 0, 1 << 60, 1 << 30):
            raise Violation(f"the index does not know the message at {offset} by {text}")
