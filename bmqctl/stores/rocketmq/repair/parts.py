"""The parts of a repair: places of the log to rewrite, the messages lost there, and the report."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

__all__ = ["Area", "Lost", "Note", "Patch", "Refused", "RepairReport"]


class Refused(Exception):
    """Refusal of a repair; the text is the reason, in one line."""


class Lost(NamedTuple):
    """A lost message of which only the queue offset is known."""

    topic: str
    queue_id: int
    number: int


@dataclass
class Area:
    """Bytes of the log without a sound record, in one file.

    `lost` are the messages that get a record in it. With `is_record` it is a record of which only the body is damaged.
    """

    begin: int
    end: int
    reason: str
    stored_ms: int = 0
    lost: list[Lost] = field(default_factory=list)
    is_record: bool = False


class Patch(NamedTuple):
    """Bytes to put at a log offset: a number that follows from others."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Note:
    """A part that was left out or restored; `offset` is in the log, or in a file that `what` names."""

    offset: int
    size: int
    what: str
    reason: str
    topic: str | None = None
    queue_id: int | None = None
    number: int | None = None


@dataclass
class RepairReport:
    """The report of a repair; `errors`, `warnings` and `counts` concern the result."""

    source: str
    out: str
    records: int = 0
    begin: int = 0
    end: int = 0
    queues: int = 0
    index_files: int = 0
    left_out: list[Note] = field(default_factory=list)
    restored: list[Note] = field(default_factory=list)
    errors: int = 0
    warnings: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
