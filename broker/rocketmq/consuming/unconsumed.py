"""The search for unconsumed messages at the beginning of the log, in pieces of a few milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from broker.rocketmq.tables.names import is_system_group
from broker.rocketmq.tables.services import Services

__all__ = ["first_unconsumed"]

# Queues and offsets that one piece examines.
PIECE: Final = 5_000


def first_unconsumed(services: Services, given_out: Iterable[tuple[str, Mapping[int, int]]], end: int) -> Iterator[str]:
    """Search for a message before offset `end` of the log that a group has not consumed.

    Yields "" after each piece of work and then, if there is such a message, its description. `given_out` has, for the
    broker's own topics, the offsets by queue before which all messages were delivered; later ones count as unconsumed.
    A group counts in the topics in which it has committed an offset; in their queues without one, it has consumed
    nothing. Groups without a configuration do not count.
    """
    store, groups = services.store, services.groups.table
    steps = 0
    queues: dict[str, list[int]] = {}
    for (topic, queue_id), queue in list(store.queues.items()):
        steps += 1
        if steps % PIECE == 0:
            yield ""
        if store.queues.get((topic, queue_id)) is queue and _is_before(services, topic, queue_id, 0, end):
            queues.setdefault(topic, []).append(queue_id)
    positions = [*((topic, "", offsets) for topic, offsets in given_out), *services.offsets.all()]
    for topic, group, offsets in positions:
        if group and group not in groups and not is_system_group(group):
            continue
        for queue_id in queues.get(topic, ()):
            steps += 1
            if steps % PIECE == 0:
                yield ""
            if _is_before(services, topic, queue_id, offsets.get(queue_id, 0), end):
                what = f"group {group} has not consumed" if group else "are not due yet"
                yield f"messages of topic {topic} that {what}"
                return


def _is_before(services: Services, topic: str, queue_id: int, offset: int, end: int) -> bool:
    """Return whether a queue has a message at `offset` or later that is before `end` of the log."""
    queue = services.store.queues.get((topic, queue_id))
    if queue is None:
        return False
    first = max(offset, queue.begin)
    return first < queue.end and queue.get(first).physical_offset < end
