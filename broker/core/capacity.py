"""How full queues and domains are, and when that is worth an alarm (source: mqbu::CapacityMeter, ResourceUsageMonitor).

Messages and bytes each have a state; the fuller one is the meter's:

    NORMAL          up to the high watermark, a part of the limit
    HIGH_WATERMARK  from there; NORMAL again at half of it
    FULL            from the limit; HIGH_WATERMARK again at the high watermark

What rises to a state raises an alarm. A limit may be exceeded by the one message that reaches beyond it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import IntEnum

from broker.core.alarms import alarm
from broker.core.messages import Full
from broker.core.pretty import pretty_bytes, pretty_number

__all__ = ["Fullness", "Usage"]

log = logging.getLogger("broker.capacity")

WATERMARK_RATIO = 0.8
LOW_PART_OF_HIGH = 0.5
INFINITE = float("inf")


class Fullness(IntEnum):
    """Source: mqbu::ResourceUsageMonitorState."""

    NORMAL = 0
    HIGH_WATERMARK = 1
    FULL = 2


class Gauge:
    """One amount against its limit, 0 for none.

    Invariant: below `rises_at` and above `falls_at` its state stays as it is.
    """

    __slots__ = ("falls_at", "high", "limit", "low", "rises_at", "state", "value")

    def __init__(self) -> None:
        self.value = 0
        self.state = Fullness.NORMAL
        self.set_limit(0, WATERMARK_RATIO)

    def set_limit(self, limit: int, ratio: float) -> None:
        """Take up a limit; the state follows with the next change of the value."""
        self.limit = limit
        self.high = int(limit * ratio)
        self.low = int(limit * ratio * LOW_PART_OF_HIGH)
        self._enter(self.state if limit else Fullness.NORMAL)

    def _enter(self, state: Fullness) -> None:
        self.state = state
        self.rises_at: float = (self.high, self.limit, INFINITE)[state] if self.limit else INFINITE
        self.falls_at: float = (-INFINITE, self.low, self.high)[state]

    def update(self) -> None:
        """Take up the state that the value calls for: it is at one of the bounds, or beyond."""
        if self.value >= self.rises_at:
            self._enter(Fullness.FULL if self.value >= self.limit else Fullness.HIGH_WATERMARK)
        elif self.value <= self.falls_at:
            self._enter(Fullness.NORMAL if self.value <= self.low else Fullness.HIGH_WATERMARK)


class Usage:
    """Messages and bytes that a queue holds, or a domain's queues together, against its limits.

    `name` is as it stands in alarms; `parent` is the domain's; `details` gives what an alarm says beyond the figures.
    """

    __slots__ = ("_bytes", "_messages", "details", "name", "parent")

    def __init__(self, name: str = "", parent: Usage | None = None, details: Callable[[], str] | None = None) -> None:
        self.name = name
        self.parent = parent
        self.details = details
        self._messages = Gauge()
        self._bytes = Gauge()

    @property
    def messages(self) -> int:
        return self._messages.value

    @property
    def bytes(self) -> int:
        return self._bytes.value

    @property
    def messages_max(self) -> int:
        return self._messages.limit

    @property
    def bytes_max(self) -> int:
        return self._bytes.limit

    @property
    def state(self) -> Fullness:
        return max(self._messages.state, self._bytes.state)

    def set_limits(
        self,
        messages_max: int,
        bytes_max: int,
        messages_ratio: float = WATERMARK_RATIO,
        bytes_ratio: float = WATERMARK_RATIO,
    ) -> None:
        """Take up limits, now or later; a ratio is where the high watermark is."""
        self._messages.set_limit(messages_max, messages_ratio)
        self._bytes.set_limit(bytes_max, bytes_ratio)

    def check(self) -> None:
        """Whether one more message may come. `Full` if it may not."""
        usage: Usage | None = self
        while usage is not None:
            messages, size = usage._messages, usage._bytes
            if messages.limit and messages.value > messages.limit:
                raise Full("LIMIT_MESSAGES", f"{usage.name} holds {messages.value} messages of {messages.limit}")
            if size.limit and size.value > size.limit:
                raise Full("LIMIT_BYTES", f"{usage.name} holds {size.value} bytes of {size.limit}")
            usage = usage.parent

    def add(self, size: int, messages: int = 1) -> None:
        """A message has come, or with `messages` 0 or more as many, of `size` bytes together."""
        count, volume = self._messages, self._bytes
        count.value += messages
        volume.value += size
        if count.value >= count.rises_at or volume.value >= volume.rises_at:
            self._update()
        if self.parent is not None:
            self.parent.add(size, messages)

    def remove(self, size: int, messages: int = 1) -> None:
        """A message has gone, or as many as `messages`, of `size` bytes together."""
        count, volume = self._messages, self._bytes
        count.value -= messages
        volume.value -= size
        if count.value <= count.falls_at or volume.value <= volume.falls_at:
            self._update()
        if self.parent is not None:
            self.parent.remove(size, messages)

    def _update(self) -> None:
        before = self.state
        self._messages.update()
        self._bytes.update()
        if self.state > before:
            details = self.details() if self.details else ""
            alarm(log, f"CAPACITY_STATE_{self.state.name}", self._line() + details)
        elif before > self.state is Fullness.NORMAL:
            log.info("[CAPACITY_STATE_NORMAL] %s", self._line())

    def _line(self) -> str:
        messages, size = self._messages, self._bytes
        return (
            f"for '{self.name}': [Messages (STATE_{messages.state.name}): {pretty_number(messages.value)} "
            f"(limit: {pretty_number(messages.limit)}), Bytes (STATE_{size.state.name}): {pretty_bytes(size.value)} "
            f"(limit: {pretty_bytes(size.limit)})]"
        )

    def summary(self) -> str:
        """The figures in short, as they stand in other alarms."""
        messages, size = self._messages, self._bytes
        return (
            f"Messages [current: {pretty_number(messages.value)} / {pretty_number(messages.limit)}], "
            f"Bytes [current: {pretty_bytes(size.value)} / {pretty_bytes(size.limit)}]"
        )
