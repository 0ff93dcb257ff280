"""The domains and queues of the nodes that scripts/benchmark-steps measures, and the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from broker.bmq.core.config import DomainConfig, Mode
from broker.shell.files.mapped_files import DataDirectory

__all__ = [
    "ATTEMPTS",
    "DOMAINS",
    "FANOUT",
    "OTHER",
    "PAYLOAD",
    "POISON",
    "POSTS_A_TICK",
    "QUEUE",
    "STRONG",
    "STRONG_FANOUT",
    "TTL_S",
    "Outcome",
    "do_nothing",
    "open_directory",
]

PAYLOAD = b"x" * 64
OTHER = "bmq://other/q"
QUEUE, FANOUT = "bmq://steps/q", "bmq://fanout/q"
STRONG, STRONG_FANOUT = "bmq://strong/q", "bmq://strong-fanout/q"
POISON = "bmq://poison/q"
ATTEMPTS = 5
TTL_S = 3600
# Number of posts between two simulated seconds.
POSTS_A_TICK = 50_000

DOMAINS = (
    DomainConfig("steps", Mode.PRIORITY, message_ttl_s=TTL_S),
    DomainConfig("fanout", Mode.FANOUT, ("foo", "bar")),
    DomainConfig("other", Mode.PRIORITY),
    DomainConfig("poison", Mode.PRIORITY, delivery_attempts_max=ATTEMPTS),
    DomainConfig("strong", Mode.PRIORITY, strong=True),
    DomainConfig("strong-fanout", Mode.FANOUT, ("foo", "bar"), strong=True),
)


class Outcome(NamedTuple):
    """The result of a case; times are in milliseconds."""

    case: str
    first_ms: float  # the step that begins it
    longest_ms: float
    longest_cpu_ms: float
    steps: int
    total_ms: float
    delay_ms: float  # another client's longest wait for an acknowledgment


def open_directory(folder: Path) -> Any:
    folder.mkdir()
    return DataDirectory(folder, folder / "archive")


def do_nothing() -> None:
    """Do nothing: the node continues by itself."""
