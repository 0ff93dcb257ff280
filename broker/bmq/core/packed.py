# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Consecutive messages, packed into columns: a fifth of the memory of message objects."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from broker.bmq.core.messages import Message
from formats.bmq.guid import GUID_SIZE

__all__ = ["PRODUCER_AT", "TICKS_AT", "Packed", "producers_to_pack"]

# The parts of a GUID (see `formats.bmq.guid`): it ends with its producer, after the tick.
TICKS_AT: Final = 3
PRODUCER_AT: Final = 10

# Producers take memory, too: messages are not packed with more producers than this, and than one in this many messages.
PRODUCERS: Final = 8
MESSAGES_PER_PRODUCER: Final = 4


class Column:
    """An integer of each message: the minimum and each difference from it, in as few bytes as the largest needs.

    If all are equal, only the minimum is stored.
    """

    __slots__ = ("_above", "_count", "_least")

    def __init__(self, values: Sequence[int]) -> None:
        least, greatest = min(values), max(values)
        spread = greatest - least
        self._count = len(values)
        self._least = least
        self._above: array[int] | list[int] | None = None
        if not spread:
            return
        above = [value - least for value in values]
        if spread < 1 << 8:
            self._above = array("B", above)
        elif spread < 1 << 16:
            self._above = array("H", above)
        elif spread < 1 << 32:
            self._above = array("I", above)
        else:
            # The bits of more apps than a machine integer has.
            self._above = array("Q", above) if spread < 1 << 64 else above

    @property
    def values(self) -> list[int]:
        above, least = self._above, self._least
        if above is None:
            return [least] * self._count
        return [least + each for each in above]

    @property
    def first(self) -> int:
        return self._least + (0 if self._above is None else self._above[0])


class Packed:
    """Messages that are not in use, oldest first."""

    __slots__ = (
        "_arrived",
        "_checksums",
        "_compression",
        "_guids",
        "_offsets",
        "_outstanding",
        "_payloads",
        "_properties",
        "_schemas",
        "_sent",
        "_sizes",
        "count",
    )

    def __init__(self, messages: Sequence[Message]) -> None:
        self.count = len(messages)
        self._guids = b"".join([each.guid for each in messages])
        self._sizes = Column([each.size for each in messages])
        self._checksums = Column([each.checksum for each in messages])
        self._compression = Column([each.compression for each in messages])
        self._properties = Column([1 if each.has_properties else 0 for each in messages])
        self._schemas = Column([each.schema_id for each in messages])
        self._outstanding = Column([each.outstanding for each in messages])
        self._arrived = Column([each.arrived_ms for each in messages])
        # Most were never sent.
        self._sent = Column([each.sent_ms - each.arrived_ms for each in messages])
        self._offsets = Column([each.offset for each in messages])
        payloads = [each.payload for each in messages]
        self._payloads = payloads if any(each is not None for each in payloads) else None

    @property
    def first_arrived_ms(self) -> int:
        return self._arrived.first

    @property
    def guids(self) -> list[bytes]:
        guids = self._guids
        return [guids[at : at + GUID_SIZE] for at in range(0, len(guids), GUID_SIZE)]

    def has(self, guid: bytes) -> bool:
        at = self._guids.find(guid)
        while at >= 0 and at % GUID_SIZE:
            at = self._guids.find(guid, at + 1)
        return at >= 0

    def count_of(self, bits: int) -> int:
        return sum([1 for each in self._outstanding.values if each & bits])

    def unpack(self) -> list[Message]:
        messages: list[Message] = []
        for guid, size, checksum, compression, properties, schema_id, outstanding, arrived_ms, sent, offset in zip(
            self.guids,
            self._sizes.values,
            self._checksums.values,
            self._compression.values,
            self._properties.values,
            self._schemas.values,
            self._outstanding.values,
            self._arrived.values,
            self._sent.values,
            self._offsets.values,
            strict=True,
        ):
            message = Message(guid, size, checksum, compression, properties != 0, schema_id, outstanding, arrived_ms)
            message.sent_ms = arrived_ms + sent
            message.offset = offset
            messages.append(message)
        if self._payloads is not None:
            for message, payload in zip(messages, self._payloads, strict=True):
                message.payload = payload
        return messages


def producers_to_pack(messages: Sequence[Message]) -> dict[bytes, tuple[bytes, bytes]] | None:
    """Return the producers of messages, with the least and the greatest tick of each; None if there are too many."""
    found: dict[bytes, tuple[bytes, bytes]] = {}
    producer, least, greatest = b"", b"", b""
    for message in messages:
        guid = message.guid
        ticks = guid[TICKS_AT:PRODUCER_AT]
        if guid[PRODUCER_AT:] != producer:
            if producer:
                found[producer] = least, greatest
            producer = guid[PRODUCER_AT:]
            known = found.get(producer)
            least, greatest = (ticks, ticks) if known is None else known
        if ticks > greatest:
            greatest = ticks
        elif ticks < least:
            least = ticks
    if producer:
        found[producer] = least, greatest
    return None if len(found) > PRODUCERS + len(messages) // MESSAGES_PER_PRODUCER else found
