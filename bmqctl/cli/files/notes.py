"""Rows of what a repair left out or restored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from typing import Any

from bmqctl.stores.blazingmq.repair.report import Note
from bmqctl.stores.rocketmq.repair.parts import Note as LogNote

__all__ = ["note_keys", "note_rows"]


def note_rows(
    left_out: Iterable[Note] | Iterable[LogNote], restored: Iterable[Note] | Iterable[LogNote]
) -> Iterator[dict[str, Any]]:
    for outcome, notes in (("left_out", left_out), ("restored", restored)):
        for note in notes:
            yield {"outcome": outcome, **asdict(note)}


def note_keys(kind: type[Note] | type[LogNote]) -> list[str]:
    return ["outcome", *(field.name for field in fields(kind))]
