"""The places of a store's files, as far as the configuration names them (source: MessageStoreConfig)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["StorePlaces"]


@dataclass(frozen=True)
class StorePlaces:
    """The paths of parts of a store; None for those in its folder.

    The commit log is in the folders `log` and `read_only_log`; no file is created in the latter. Apache's broker does
    not know the last four of these properties, and keeps these files in the store's folder whatever they say.
    `root` is the store's folder by the configuration file, which an option may replace.
    """

    log: tuple[Path, ...] | None = None
    read_only_log: tuple[Path, ...] | None = None
    epochs: Path | None = None
    identity: Path | None = None
    queues: Path | None = None
    index: Path | None = None
    checkpoint: Path | None = None
    abort: Path | None = None
    root: Path | None = None
