"""Posting by the clock: batches of events, in the interactive and in the automatic mode.

Source: `m_bmqtool::PostingContext`.
"""

from __future__ import annotations

import itertools
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Final

from bmqctl.cli.tool.session import ToolQueue, ToolSession, next_number
from formats.bmq.wire.properties import Property, PropertyType

__all__ = ["AUTO_PUB_SUB_PROPERTY", "HIGH_WATERMARK", "Latency", "Plan", "Poster", "clock_of"]

AUTO_PUB_SUB_PROPERTY: Final = "AUTO_PUBSUB_PROPERTY"
_STAMP = struct.Struct(">q")
HIGH_WATERMARK: Final = 4 << 20

Latency = Callable[[], int]


def clock_of(method: str) -> Latency | None:
    """Return the clock in nanoseconds of a `method` of measurement (none, hires, epoch)."""
    return {"hires": time.perf_counter_ns, "epoch": time.time_ns}.get(method)


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan of `rate` events of `event_size` messages every `interval_ms`, `events` of them (0: unlimited)."""

    events: int
    event_size: int
    rate: int
    interval_ms: int
    msg_size: int = 1024
    payloads: tuple[bytes, ...] = ()
    pattern: str = ""
    properties: tuple[Property, ...] = ()
    auto_incremented: str = ""
    modulo: int = 0
    clock: Latency | None = None


class Poster:
    """Posts to `queue` as planned; `on_put` is called for each message with its number, GUID and payload."""

    def __init__(
        self,
        session: ToolSession,
        queue: ToolQueue,
        plan: Plan,
        on_put: Callable[[int | None, bytes, bytes], None] | None = None,
    ) -> None:
        self._session = session
        self._queue = queue
        self._plan = plan
        self._on_put = on_put
        self._left = plan.events
        self._count = itertools.count()
        repeats = -(-plan.msg_size // len(ascii_uppercase))
        self._letters = (ascii_uppercase * repeats).encode()[: plan.msg_size]
        if plan.clock is not None:
            self._letters = self._letters[: max(plan.msg_size - _STAMP.size, 0)]

    @property
    def pending(self) -> bool:
        return self._plan.events == 0 or self._left > 0

    def post_round(self) -> int:
        """Post the events of one interval; return their number. Raises `PackError` if a message cannot be posted."""
        plan = self._plan
        posted = 0
        if plan.event_size == 0:
            return 0
        for _ in range(plan.rate):
            if not self.pending:
                break
            for _ in range(plan.event_size):
                self._post(next(self._count))
            posted += 1
            self._left -= plan.events > 0
        return posted

    def _post(self, index: int) -> None:
        plan = self._plan
        number = None
        if self._queue.ack:
            # The time of posting is the number, for measuring ack latency.
            number = next_number() if plan.clock is None else plan.clock()
        payload = self._payload(index)
        guid = self._session.post(self._queue, payload, self._properties(index), number=number)
        if self._on_put is not None:
            self._on_put(number, guid, payload)

    def _payload(self, index: int) -> bytes:
        plan = self._plan
        if plan.payloads:
            return plan.payloads[index % len(plan.payloads)]
        if plan.pattern:
            return f"{plan.pattern}{index:09d}".encode()
        if plan.clock is not None:
            return _STAMP.pack(plan.clock()) + self._letters
        return self._letters

    def _properties(self, index: int) -> Sequence[Property]:
        plan = self._plan
        properties = list(plan.properties)
        if plan.auto_incremented:
            properties.append(Property(plan.auto_incremented, PropertyType.INT64, index))
        if plan.modulo:
            properties.append(Property(AUTO_PUB_SUB_PROPERTY, PropertyType.INT64, index % plan.modulo))
        return properties
