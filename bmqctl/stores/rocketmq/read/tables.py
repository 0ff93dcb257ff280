"""Tables of a RocketMQ store outside its log: progress of groups and delay levels, and epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from bmqctl.stores.rocketmq.read.files import StoreFiles, read_small
from formats.errors import FormatError
from formats.rocketmq.files.epochs import EpochEntry, decode_epochs
from formats.rocketmq.remoting.bodies.clients import CONSUMER_OFFSETS
from formats.rocketmq.remoting.bodies.delays import DELAY_OFFSETS

__all__ = ["EPOCHS", "CommonEpoch", "common_epoch", "read_delays", "read_epochs", "read_progress"]

EPOCHS: Final = "epochFileCheckpoint"

T = TypeVar("T")


class CommonEpoch(NamedTuple):
    """The last epoch common to two logs, and the offset up to which they agree."""

    epoch: int
    end: int


def read_progress(store: StoreFiles, faults: list[str]) -> dict[tuple[str, str], dict[int, int]]:
    """Next offsets by topic and group, then by queue. Adds a fault if they cannot be read."""
    found = _read(store.offsets, lambda body: CONSUMER_OFFSETS.read(body).all_offsets, faults)
    named = ((name.partition("@"), progress) for name, progress in sorted((found or {}).items()))
    return {(topic, group): progress for (topic, _, group), progress in named}


def read_delays(store: StoreFiles, faults: list[str]) -> dict[int, int]:
    """Next offsets by delay level. Adds a fault if they cannot be read."""
    return _read(store.config("delayOffset.json"), lambda body: DELAY_OFFSETS.read(body).offset_table, faults) or {}


def read_epochs(store: StoreFiles, faults: list[str]) -> list[EpochEntry] | None:
    """The epochs of the log; None if it has none. Adds a fault if they cannot be read."""
    return _read(store.root / EPOCHS, decode_epochs, faults) or None


def common_epoch(
    ours: Sequence[EpochEntry], our_end: int, theirs: Sequence[EpochEntry], their_end: int
) -> CommonEpoch | None:
    """The highest epoch that began at the same offset in both logs, with its earlier end; None if there is none."""
    starts = dict(theirs)
    for entry in reversed(ours):
        if starts.get(entry.epoch) == entry.start_offset:
            ends = (_end(ours, entry.epoch, our_end), _end(theirs, entry.epoch, their_end))
            return CommonEpoch(entry.epoch, min(ends))
    return None


def _end(epochs: Sequence[EpochEntry], epoch: int, log_end: int) -> int:
    return next((entry.start_offset for entry in epochs if entry.epoch > epoch), log_end)


def _read(path: Path, read: Callable[[bytes], T], faults: list[str]) -> T | None:
    """The content of a file. If unreadable, None, and a fault unless the file is missing."""
    try:
        data = read_small(path)
        return None if data is None else read(data)
    except (OSError, FormatError) as error:
        faults.append(f"{path}: {error}")
        return None
