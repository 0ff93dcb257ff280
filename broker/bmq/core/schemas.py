# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Message-property schemas on their way through a queue (source: bmqp::SchemaLearner).

A producer numbers the shapes of its property lists so that a reader need not parse the same shape twice: the wire id is
`id << 1 | recycled`, and `recycled` says that the number now means a new shape. Producers may use the same numbers for
different shapes, so a queue gives each (producer, id) a number of its own.

A recycled id gets another number, and no number of the queue is used twice: of the consumers that know its first shape,
only some would get the message that announces the second one. (The reference's readers misread messages then.)
"""

from __future__ import annotations

from typing import Final

__all__ = ["UPSTREAM", "SchemaMultiplexer"]

# The largest id that 15 bits carry (bmqp::MessagePropertiesInfo::k_MAX_SCHEMA).
SCHEMA_ID_MAX: Final = 0x7FFF
# The upstream of a relay, as the producer of the messages that arrive there.
UPSTREAM: Final = -(1 << 31) + 1


class SchemaMultiplexer:
    """Maps (producer, wire id) to the queue's wire ids, as long as there are numbers.

    `_next` is the lowest number never used, and above those of messages in the log when the node started.
    """

    __slots__ = ("_capacity", "_ids", "_next")

    def __init__(self, capacity: int = SCHEMA_ID_MAX) -> None:
        self._capacity = capacity
        self._ids: dict[tuple[int, int], int] = {}
        self._next = 1

    def keep(self, wire_id: int) -> None:
        """Reserve the number of a stored message, whose shape is unknown after a restart."""
        self._next = max(self._next, (wire_id >> 1) + 1)

    def forget(self, producer: int) -> None:
        """Forget a producer's ids: it may use them for other shapes from now on."""
        self._ids = {source: number for source, number in self._ids.items() if source[0] != producer}

    def translate(self, producer: int, wire_id: int) -> int:
        """Return the queue's wire id for a producer's `wire_id`; 0 (old encoding) and 1 (no number) are kept."""
        if wire_id < 2:
            return wire_id
        source = (producer, wire_id >> 1)
        known = self._ids.get(source)
        if known is not None and not wire_id & 1:
            return known << 1
        number = self._next
        if number > self._capacity:
            self._ids.pop(source, None)
            return 1  # no number is left: readers parse the shape each time
        self._next += 1
        self._ids[source] = number
        return number << 1 | 1
