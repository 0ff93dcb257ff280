"""The options of the runs that carry messages, without what carries: commands have their values as defaults."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

__all__ = ["DEFAULT_GROUP", "CarryOptions", "LetterTarget", "PostOptions"]

DEFAULT_GROUP: Final = "bmqctl-post"


class PostOptions(NamedTuple):
    """`rate` is in messages a second, None as fast as possible; `patience_s` bounds the time without an answer."""

    rate: float | None = None
    window: int = 4096
    compress: bool = False
    patience_s: float = 30.0


@dataclass(frozen=True, slots=True)
class CarryOptions:
    """Options of a run, which with `moves` removes from the source what was carried.

    `expression` is in the language of the source's system. The run ends after `count_max` messages; for a source that
    is consumed, when none has come for `idle_s`; and at a refused message, unless it is a copy and `skip_refused`.
    """

    moves: bool
    expression: str | None = None
    tags: str | None = None
    count_max: int | None = None
    idle_s: float = 2.0
    patience_s: float = 30.0
    window: int = 4096
    batch: int = 512
    skip_refused: bool = False


class LetterTarget(StrEnum):
    """The places that letters are sent to: the topic that they were posted to, or their group's retry topic."""

    TOPIC = "topic"
    RETRY = "retry"
