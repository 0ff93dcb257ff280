"""The stamp at the head of each payload, from which a consumer takes the message's age and position, and its source."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from formats.schema import Layout, u32, u64

__all__ = ["STAMP", "STAMP_SIZE", "Source", "Stamp", "filler"]


class Stamp(NamedTuple):
    """A message's stamp. `run` identifies this run among other messages; `sequence` counts from 0 in each producer.

    `due_ns` is the CLOCK_MONOTONIC time at which the message was due, not sent: a latency computed from it includes the
    time that a slow broker kept the producer waiting.
    """

    magic: Annotated[int, u32]
    run: Annotated[int, u32]
    producer: Annotated[int, u32]
    sequence: Annotated[int, u32]
    due_ns: Annotated[int, u64]


class Source(NamedTuple):
    """The place from which a consumer reads: a queue, by its number, and a group, which gets each message once."""

    queue: int
    group: int


MAGIC = 0x424E4348
STAMP = Layout(Stamp, size=24, upstream="bmqctl bench")
STAMP_SIZE = STAMP.size

_TEXT = b"The quick brown fox jumps over the lazy dog. "


def filler(size: int) -> bytes:
    """The rest of a payload of `size` bytes, the same in every message."""
    rest = size - STAMP_SIZE
    return (_TEXT * (rest // len(_TEXT) + 1))[:rest]
