# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Usage of queues and domains, with alarms (source: mqbu::CapacityMeter, ResourceUsageMonitor).

Messages and bytes each have a state; the fuller one is the meter's:

    NORMAL          up to the high watermark, a part of the limit
    HIGH_WATERMARK  from there; NORMAL again at half of it
    FULL            from the limit; HIGH_WATERMARK again at the high watermark

A rise to a state raises an alarm. A limit may be exceeded by the one message that crosses it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import IntEnum
from typing import Final

from broker.bmq.core.alarms import alarm
from broker.bmq.core.messages import Full
from broker.bmq.core.pretty import pretty_bytes, pretty_number

__all__ = ["Fullness", "Usage"]

log: Final = logging.getLogger("broker.capacity")

WATERMARK_RATIO: Final = 0.8
LOW_PART_OF_HIGH: Final = 0.5

# Bounds that no value reaches: integers, which compare faster.
NEVER_RISES: Final = 1 << 62
NEVER_FALLS: Final = -1


class Fullness(IntEnum):
    """Source: mqbu::ResourceUsageMonitorState."""

    NORMAL = 0
    HIGH_WATERMARK = 1
    FULL = 2


class Gauge:
    """One amount with its limit, 0 for none: its state, and the values at which that changes.

    Invariant: the state stays for values below `rises_at` and above `falls_at`.
    """

    __slots__ = ("falls_at", "high", "limit", "low", "rises_at", "state")

    def __init__(self) -> None:
        self.state = Fullness.NORMAL
        self.set_limit(0, WATERMARK_RATIO)

    def set_limit(self, limit: int, ratio: float) -> None:
        self.limit = limit
        self.high = int(limit * ratio)
        self.low = int(limit * ratio * LOW_PART_OF_HIGH)
        self._enter(self.state if limit else Fullness.NORMAL)

    def _enter(self, state: Fullness) -> None:
        self.state = state
        self.rises_at = (self.high, self.limit, NEVER_RISES)[state] if self.limit else NEVER_RISES
        self.falls_at = (NEVER_FALLS, self.low, self.high)[state]

    def update(self, value: int) -> None:
        if value >= self.rises_at:
            self._enter(Fullness.FULL if value >= self.limit else Fullness.HIGH_WATERMARK)
        elif value <= self.falls_at:
            self._enter(Fullness.NORMAL if value <= self.low else Fullness.HIGH_WATERMARK)


class Usage:
    """The messages and bytes of a queue, or of all queues of a domain, with their limits.

    `details` returns additional text of an alarm. A message needs a check before it is taken only while the queue or
    its domain is `at_limit`.
    """

    __slots__ = (
        "_bytes_gauge",
        "_messages_gauge",
        "at_limit",
        "bytes",
        "bytes_fall_at",
        "bytes_rise_at",
        "details",
        "messages",
        "messages_fall_at",
        "messages_rise_at",
        "name",
        "parent",
        "state",
    )

    def __init__(self, name: str = "", parent: Usage | None = None, details: Callable[[], str] | None = None) -> None:
        self.name = name
        self.parent = parent
        self.details = details
        self.messages = 0
        self.bytes = 0
        self.state = Fullness.NORMAL
        self._messages_gauge = Gauge()
        self._bytes_gauge = Gauge()
        self._take_bounds()

    @property
    def messages_max(self) -> int:
        return self._messages_gauge.limit

    @property
    def bytes_max(self) -> int:
        return self._bytes_gauge.limit

    def set_limits(
        self,
        messages_max: int,
        bytes_max: int,
        messages_ratio: float = WATERMARK_RATIO,
        bytes_ratio: float = WATERMARK_RATIO,
    ) -> None:
        """Set the limits; a ratio is the high watermark as a part of a limit."""
        self._messages_gauge.set_limit(messages_max, messages_ratio)
        self._bytes_gauge.set_limit(bytes_max, bytes_ratio)
        self._messages_gauge.update(self.messages)
        self._bytes_gauge.update(self.bytes)
        self._take_bounds()

    def _take_bounds(self) -> None:
        messages, size = self._messages_gauge, self._bytes_gauge
        self.messages_rise_at, self.messages_fall_at = messages.rises_at, messages.falls_at
        self.bytes_rise_at, self.bytes_fall_at = size.rises_at, size.falls_at
        self.state = max(messages.state, size.state)
        self.at_limit = self.state is Fullness.FULL

    def check(self) -> None:
        """Raise `Full` if no more messages may be taken."""
        usage: Usage | None = self
        while usage is not None:
            limit = usage.messages_max
            if limit and usage.messages > limit:
                raise Full("LIMIT_MESSAGES", f"{usage.name} holds {usage.messages} messages of {limit}")
            limit = usage.bytes_max
            if limit and usage.bytes > limit:
                raise Full("LIMIT_BYTES", f"{usage.name} holds {usage.bytes} bytes of {limit}")
            usage = usage.parent

    def add(self, size: int, messages: int = 1) -> None:
        usage: Usage | None = self
        while usage is not None:
            usage.messages = count = usage.messages + messages
            usage.bytes = held = usage.bytes + size
            if count >= usage.messages_rise_at or held >= usage.bytes_rise_at:
                usage._update()
            usage = usage.parent

    def has_ease(self, messages: int, size: int) -> bool:
        usage: Usage | None = self
        while usage is not None:
            if usage.messages + messages >= usage.messages_rise_at or usage.bytes + size >= usage.bytes_rise_at:
                return False
            usage = usage.parent
        return True

    def restore(self, size: int) -> None:
        """Count a restored message, without an alarm."""
        usage: Usage | None = self
        while usage is not None:
            usage.messages = messages = usage.messages + 1
            usage.bytes = held = usage.bytes + size
            if messages >= usage.messages_rise_at or held >= usage.bytes_rise_at:
                usage._messages_gauge.update(messages)
                usage._bytes_gauge.update(held)
                usage._take_bounds()
            usage = usage.parent

    def remove(self, size: int, messages: int = 1) -> None:
        usage: Usage | None = self
        while usage is not None:
            usage.messages = left = usage.messages - messages
            usage.bytes = held = usage.bytes - size
            if left <= usage.messages_fall_at or held <= usage.bytes_fall_at:
                usage._update()
            usage = usage.parent

    def _update(self) -> None:
        before = self.state
        self._messages_gauge.update(self.messages)
        self._bytes_gauge.update(self.bytes)
        self._take_bounds()
        if self.state > before:
            details = self.details() if self.details else ""
            alarm(log, f"CAPACITY_STATE_{self.state.name}", self._line() + details)
        elif before > self.state is Fullness.NORMAL:
            log.info("[CAPACITY_STATE_NORMAL] %s", self._line())

    def _line(self) -> str:
        messages, size = self._messages_gauge, self._bytes_gauge
        return (
            f"for '{self.name}': [Messages (STATE_{messages.state.name}): {pretty_number(self.messages)} "
            f"(limit: {pretty_number(messages.limit)}), Bytes (STATE_{size.state.name}): {pretty_bytes(self.bytes)} "
            f"(limit: {pretty_bytes(size.limit)})]"
        )

    def summary(self) -> str:
        return (
            f"Messages [current: {pretty_number(self.messages)} / {pretty_number(self.messages_max)}], "
            f"Bytes [current: {pretty_bytes(self.bytes)} / {pretty_bytes(self.bytes_max)}]"
        )
