# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Packing of a queue's waiting messages, of which there may be very many.

Consecutive messages are packed (see `broker.bmq.queue.backlog`) if they are in the `pending` of every app that wants
them, and no consumer, task or other holder refers to one of them, which their reference counts tell. The part then
replaces them in each `pending`.

While an app has consumers, its first messages stay unpacked, and messages that have waited for less than
`Work.packed_after_ms`. If nothing could be packed, the next try is after the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from sys import getrefcount
from typing import Final, Protocol

from broker.bmq.core.config import DomainConfig
from broker.bmq.core.messages import Log, Message
from broker.bmq.core.packed import producers_to_pack
from broker.bmq.core.work import Task, Work
from broker.bmq.queue.backlog import Backlog, Part
from broker.bmq.queue.delivery import Delivery
from broker.bmq.queue.queue_ports import UpkeepState
from broker.bmq.queue.routing import App
from broker.common.clock import Now

__all__ = ["pack", "pack_restored"]

PACKED_PER_UNIT: Final = 2

# Limits of a step's search for messages to pack: messages looked at, and tries.
SEARCHED_MAX: Final = 1 << 16
TRIES_MAX: Final = 32

# Divisor of a part's usual size: smaller parts between others are not packed.
LEAST_PART: Final = 4


class PackedQueue(Protocol):
    """The queue whose messages are packed."""

    config: DomainConfig
    apps: dict[str, App]
    messages: Backlog
    ghosts: dict[int, int]
    log: Log
    delivery: Delivery
    upkeep: UpkeepState

    @property
    def now(self) -> Now: ...

    @property
    def work(self) -> Work: ...

    @property
    def is_root(self) -> bool: ...


def _references(messages: Sequence[Message]) -> list[int]:
    return list(map(getrefcount, messages))


def _own_references() -> int:
    """Return the references that `_references` counts of a message in one dictionary and the list that it is given."""
    entries = {b"": Message(b"", 0, 0, 0, False, 0, 0)}
    messages = list(entries.values())
    (count,) = _references(messages)
    # Compiled code frees objects after their last use.
    assert entries[b""] is messages[0]
    return count


OWN_REFERENCES: Final = _own_references()


def pack(queue: PackedQueue) -> None:
    """Pack waiting messages in slices, if it is time to; to be called a few times a second."""
    messages = queue.messages
    if (
        queue.upkeep.is_packing
        or not queue.is_root
        or queue.now.ms < queue.upkeep.packs_at_ms
        or not (messages.unpacked or messages.loose or len(messages.newest) >= queue.work.part)
    ):
        return
    queue.upkeep.is_packing = queue.work.start(_pack(queue))


def pack_restored(queue: PackedQueue) -> None:
    _pack_more(queue)


def _pack(queue: PackedQueue) -> Task:
    work = queue.work
    queue.delivery.forget_properties()
    is_any = False
    for part in list(queue.messages.unpacked):
        while not work.may_go_on():
            yield
        if not _may_pack(queue):
            break
        work.left -= 1
        if _pack_again(queue, part):
            is_any = True
            work.left -= part.size // PACKED_PER_UNIT
    while _may_pack(queue):
        while not work.may_go_on():
            yield
        count = _pack_more(queue) if _may_pack(queue) else 0
        work.left -= 1 + count // PACKED_PER_UNIT
        if not count:
            break
        is_any = True
    queue.messages.tidy()
    if not is_any:
        queue.upkeep.packs_at_ms = queue.now.ms + queue.work.packed_after_ms
    queue.upkeep.is_packing = False


def _may_pack(queue: PackedQueue) -> bool:
    """Return True unless messages are asked for one by one, or have bits of no app."""
    return not (queue.delivery.is_over or queue.ghosts or queue.log.is_rolling_over)


def _pack_again(queue: PackedQueue, part: Part) -> bool:
    if part not in queue.messages.unpacked or len(part.entries) < max(1, queue.work.part // LEAST_PART):
        return False
    if part.is_fresh:
        part.is_fresh = False
        return False
    if queue.config.message_ttl_s is not None and part is queue.messages.older[0]:
        # They are about to expire.
        return False
    messages = list(part.entries.values())
    if _count_free(messages, waits=False) < len(messages):
        return False
    wanted = 0
    for message in messages:
        wanted |= message.outstanding
    for app in queue.apps.values():
        if wanted & app.bit and not _waits_for(app, part):
            return False
    return _pack_part(queue, part, messages)


def _waits_for(app: App, part: Part) -> bool:
    for at, item in enumerate(islice(app.pending, SEARCHED_MAX)):
        if item is part:
            return at > 0 or not app.streams
    return False


def _pack_more(queue: PackedQueue) -> int:
    tried: set[bytes] = set()
    for app in sorted(queue.apps.values(), key=_pending_of, reverse=True):
        behind = None
        while len(tried) < TRIES_MAX:
            guid = _next_waiting(queue, app, behind)
            if guid is None or guid in tried:
                break
            tried.add(guid)
            count, behind = _pack_from(queue, guid)
            if count:
                return count
            if behind is None:
                break
    return 0


def _pending_of(app: App) -> int:
    return len(app.pending)


def _next_waiting(queue: PackedQueue, app: App, behind: int | None) -> bytes | None:
    """Return the first message, after the offset `behind` if given, for which an app waits by itself.

    A message that is about to be delivered does not count.
    """
    ahead, ahead_min = 0, queue.work.part if app.streams else 0
    for item in islice(app.pending, SEARCHED_MAX):
        if isinstance(item, Part):
            ahead += item.size
        elif ahead >= ahead_min and (behind is None or item.offset > behind):
            return item.guid
        else:
            ahead += 1
    return None


def _pack_from(queue: PackedQueue, guid: bytes) -> tuple[int, int | None]:
    """Pack consecutive messages from one on; return their number.

    If it is 0, the second value is the offset after which others may be packed; None if there are not enough.
    """
    backlog, part_max = queue.messages, queue.work.part
    source = _unpacked_with(backlog, guid)
    if source is None and guid not in backlog.newest:
        return 0, None
    if source is not None and source.producers:
        # Another app waits for all of it.
        return 0, next(reversed(source.entries.values())).offset
    entries = backlog.newest if source is None else source.entries
    at = _place_of(entries, guid)
    messages = list(islice(entries.values(), at, at + part_max))
    if source is None and len(messages) < part_max:
        return 0, None
    count = _count_free(messages, waits=True)
    if count < part_max:
        others = len(entries) - at - count
        if count * LEAST_PART < part_max or (source is None and others < 2 * part_max):
            return 0, messages[min(count, len(messages) - 1)].offset
        del messages[count:]
    if _is_wanted_soon(queue, messages):
        return 0, None
    producers = producers_to_pack(messages)
    places = _places(queue, messages)
    if producers is None or places is None:
        return 0, messages[-1].offset
    part = backlog.cut(source, list(islice(entries.values(), at)), messages)
    _fold(places, part)
    backlog.pack(part, messages, producers)
    return part.size, None


def _unpacked_with(backlog: Backlog, guid: bytes) -> Part | None:
    for part in (*backlog.loose, *backlog.unpacked):
        if guid in part.entries:
            return part
    return None


def _place_of(entries: dict[bytes, Message], guid: bytes) -> int:
    at = 0
    for key in entries:
        if key == guid:
            break
        at += 1
    return at


def _fold(places: Sequence[tuple[App, int, int]], part: Part) -> None:
    for app, first, number in places:
        pending = app.pending
        pending.rotate(-first)
        for _ in range(number):
            pending.popleft()
        pending.appendleft(part)
        pending.rotate(first)
        part.waits += 1


def _pack_part(queue: PackedQueue, part: Part, messages: Sequence[Message]) -> bool:
    producers = producers_to_pack(messages)
    if producers is None:
        return False
    queue.messages.pack(part, messages, producers)
    return True


def _is_wanted_soon(queue: PackedQueue, messages: Sequence[Message]) -> bool:
    if messages[-1].arrived_ms <= queue.now.ms - queue.work.packed_after_ms:
        return False
    bits = 0
    for app in queue.apps.values():
        if app.streams:
            bits |= app.bit
    return any(each.outstanding & bits for each in messages)


def _count_free(messages: Sequence[Message], *, waits: bool) -> int:
    """Count the first messages that only this list, one dictionary and, if `waits`, the apps' `pending` refer to."""
    for at, (count, message) in enumerate(zip(_references(messages), messages, strict=True)):
        if count != OWN_REFERENCES + (message.outstanding.bit_count() if waits else 0):
            return at
    return len(messages)


def _places(queue: PackedQueue, messages: Sequence[Message]) -> list[tuple[App, int, int]] | None:
    """Return the messages' place and number in each app's `pending`; None if they must not be packed."""
    places: list[tuple[App, int, int]] = []
    for app in queue.apps.values():
        bit = app.bit
        wanted = [each for each in messages if each.outstanding & bit]
        if not wanted:
            continue
        first = _find(app, wanted[0], queue.work.part)
        if first is None or list(islice(app.pending, first, first + len(wanted))) != wanted:
            return None
        places.append((app, first, len(wanted)))
    return places


def _find(app: App, message: Message, ahead_min: int) -> int | None:
    """Return a message's place in an app's `pending`; None if it is not there, or about to be delivered."""
    ahead = 0
    for at, item in enumerate(islice(app.pending, SEARCHED_MAX)):
        if item is message:
            return at if ahead >= ahead_min or not app.streams else None
        ahead += item.size if isinstance(item, Part) else 1
    return None
