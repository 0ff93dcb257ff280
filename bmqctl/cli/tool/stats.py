"""Statistics of messages and events: a line for every second and one at the end.

Source of the lines: `m_bmqtool::Application::printStats` and `printFinalStats`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from bmqctl.cli.tool.printing import pretty_bytes, pretty_interval, pretty_number

__all__ = ["Stats", "header"]


@dataclass(slots=True)
class Stats:
    """Counts of consumed or produced messages; event sizes include the protocol's overhead."""

    messages: int = 0
    message_bytes: int = 0
    events: int = 0
    event_bytes: int = 0
    # Latencies since the last line, in nanoseconds.
    recent: list[int] = field(default_factory=list)
    latency_min: int | None = None
    latency_max: int | None = None

    def add(self, messages: int, message_bytes: int, events: int, event_bytes: int) -> None:
        self.messages += messages
        self.message_bytes += message_bytes
        self.events += events
        self.event_bytes += event_bytes

    def add_latency(self, latency_ns: int) -> None:
        self.recent.append(latency_ns)
        self.latency_min = latency_ns if self.latency_min is None else min(self.latency_min, latency_ns)
        self.latency_max = latency_ns if self.latency_max is None else max(self.latency_max, latency_ns)

    def copy(self) -> Stats:
        """Copy the current counts, for `line` later."""
        return replace(self, recent=[])

    def line(self, before: Stats, seconds: float, mode: str, *, latency: bool) -> str:
        """Format the changes since `before`, `seconds` ago, and clear the recent latencies."""
        recent, self.recent = self.recent, []
        parts = [f"{mode} "]
        for bar, count, size in (
            ("|", self.messages - before.messages, self.message_bytes - before.message_bytes),
            (" ||", self.events - before.events, self.event_bytes - before.event_bytes),
        ):
            rate = pretty_number(int(count / seconds))
            parts.append(f"{bar}{rate:>14} |{pretty_number(count):>14} |{pretty_bytes(int(size / seconds)):>14}")
        if latency:
            low, high = min(recent, default=0), max(recent, default=0)
            average = sum(recent) // len(recent) if recent else 0
            parts.append(" ||" + " < ".join(f"{pretty_interval(value):>14}" for value in (low, average, high)))
        return "".join(parts)

    def final(self, mode: str, *, latency: bool) -> str:
        text = (
            f"{mode} {pretty_number(self.messages)} messages [{pretty_bytes(self.message_bytes)}] in "
            f"{pretty_number(self.events)} events [{pretty_bytes(self.event_bytes)}]"
        )
        if self.message_bytes and self.event_bytes:
            overhead = (self.event_bytes - self.message_bytes) * 100 / self.event_bytes
            text += f" (Protocol: {overhead:.4g}%)"
        if latency:
            low, high = self.latency_min or 0, self.latency_max or 0
            text += f" ~ latency {{ {pretty_interval(low)} < {pretty_interval(high)} }}"
        return f"\nFinal stats: {text}"


def header(*, latency: bool) -> str:
    titles = ("Msg/s", "Delta", "Bytes/s", "", "Evt/s", "Delta", "Bytes/s")
    first = "Mode     |" + "|".join(f" {title:<14}" if title else "" for title in titles)
    second = "---------+" + "+".join("-" * 15 if title else "" for title in titles)
    if latency:
        first += "||Latency"
        second += "++" + "-" * 48
    return f"{first}\n{second}"
