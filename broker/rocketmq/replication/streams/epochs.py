"""The epochs of a commit log, and where two logs with epochs diverge (source: EpochFileCache).

Each master begins an epoch at the end of its log. An epoch has one master, so all logs that have an epoch's record at
an offset have the same one. All functions take entries in order, as `formats.rocketmq.files.epochs` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from formats.rocketmq.files.epochs import EpochEntry, decode_epochs, encode_epochs

__all__ = [
    "EpochBook",
    "LogSpan",
    "begin_epoch",
    "consistent_point",
    "cut_epochs",
    "drop_epochs",
    "epoch_end",
    "epoch_of",
    "last_epoch",
]


class LogSpan(NamedTuple):
    """The epochs and the end of a log."""

    epochs: Sequence[EpochEntry]
    end: int


class EpochBook:
    """The epochs of one log, as in its file, which `write` replaces. `write` may raise `OSError`."""

    def __init__(self, data: bytes, write: Callable[[bytes], None]) -> None:
        self.entries = decode_epochs(data) if data else []
        self._write = write

    def replace(self, entries: Sequence[EpochEntry]) -> None:
        """Replace the entries, in the file first."""
        if self.entries != list(entries):
            self._write(encode_epochs(entries))
            self.entries = list(entries)


def last_epoch(epochs: Sequence[EpochEntry]) -> int:
    """Return the number of the last epoch; -1 without one."""
    return epochs[-1].epoch if epochs else -1


def begin_epoch(epochs: Sequence[EpochEntry], epoch: int, offset: int) -> list[EpochEntry]:
    """Return the entries with another epoch, which begins at an offset, the end of the log.

    An epoch without any record stays: a slave of the original may know it, and no later one. (The original drops the
    new epoch instead, and its records count as the old one's.) Raises `ValueError` for an epoch that is not later than
    all with records.
    """
    if last_epoch(cut_epochs(epochs, offset)) >= epoch:
        raise ValueError(f"epoch {epoch} cannot follow {last_epoch(cut_epochs(epochs, offset))}")
    return [
        *(entry for entry in epochs if entry.start_offset <= offset and entry.epoch < epoch),
        EpochEntry(epoch, offset),
    ]


def cut_epochs(epochs: Sequence[EpochEntry], offset: int) -> list[EpochEntry]:
    return [entry for entry in epochs if entry.start_offset < offset]


def drop_epochs(epochs: Sequence[EpochEntry], begin: int) -> list[EpochEntry]:
    """Return the entries of a log without its records before `begin`: all that end later, and the last."""
    last = len(epochs) - 1
    return [entry for at, entry in enumerate(epochs) if at == last or epochs[at + 1].start_offset > begin]


def epoch_of(epochs: Sequence[EpochEntry], offset: int) -> EpochEntry | None:
    """Return the epoch of an offset of the log; None before the first. The last epoch has no end."""
    found = None
    for entry in epochs:
        if entry.start_offset > offset:
            break
        found = entry
    return found


def epoch_end(epochs: Sequence[EpochEntry], epoch: int) -> int | None:
    """Return the offset at which the next epoch begins; None for the last one."""
    return next((entry.start_offset for entry in epochs if entry.epoch > epoch), None)


def consistent_point(ours: LogSpan, theirs: LogSpan) -> int | None:
    """Return the offset up to which two logs are the same; None if they have no known part in common.

    It is the earlier end of the highest epoch that began at the same offset in both.
    """
    starts = dict(theirs.epochs)
    for entry in reversed(ours.epochs):
        if starts.get(entry.epoch) == entry.start_offset:
            return min(_end(ours, entry.epoch), _end(theirs, entry.epoch))
    return None


def _end(span: LogSpan, epoch: int) -> int:
    end = epoch_end(span.epochs, epoch)
    return span.end if end is None else end
