# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Message-property schemas on their way through a queue (source: bmqp::SchemaLearner).

A producer numbers the shapes of its property lists so that a reader need not parse the same shape twice: the
wire id is `id << 1 | recycled`, and `recycled` says that the number now means a new shape. Two producers use
the same numbers for different shapes, so a queue gives each (producer, id) a number of its own.

A recycled id gets another number. (The reference keeps the number, whose readers then misread messages of the old shape
that come again, and may miss the first message of the new one.)
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

__all__ = ["SchemaMultiplexer"]

# The largest id that 15 bits carry (bmqp::MessagePropertiesInfo::k_MAX_SCHEMA).
SCHEMA_ID_MAX: Final = 0x7FFF


class SchemaMultiplexer:
    """Maps (producer, wire id) to the queue's wire ids; the least recently used number is recycled.

    `_next` is the lowest number never used; numbers below it are in `_ids` or belong to messages that the
    log held when the node started, which keep theirs.
    """

    __slots__ = ("_capacity", "_ids", "_next")

    def __init__(self, capacity: int = SCHEMA_ID_MAX) -> None:
        self._capacity = capacity
        self._ids: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._next = 1

    def keep(self, wire_id: int) -> None:
        """Reserve the number of a stored message, whose shape is unknown after a restart: it is not reused."""
        number = wire_id >> 1
        if number >= self._next:
            self._next = number + 1

    def translate(self, producer: int, wire_id: int) -> int:
        """Return the queue's wire id for the `wire_id` of a producer; 0 (old encoding) and 1 (no number) are kept."""
        if wire_id < 2:
            return wire_id
        source = (producer, wire_id >> 1)
        known = self._ids.get(source)
        if known is not None and not wire_id & 1:
            self._ids.move_to_end(source)
            return known << 1
        if known is not None:
            # No id is negative: the old number is recycled in its turn.
            self._ids[producer, -known] = self._ids.pop(source)
        if self._next <= self._capacity:
            number = self._next
            self._next += 1
        elif self._ids:
            _, number = self._ids.popitem(last=False)
        else:
            return 1  # no number is free: readers parse the shape each time
        self._ids[source] = number
        return number << 1 | 1
