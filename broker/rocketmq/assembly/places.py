"""The places of a store's files, as far as the configuration names them (source: MessageStoreConfig)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from broker.rocketmq.assembly.property_readers import read_path, read_paths

__all__ = ["PLACES", "StorePlaces"]


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


# By property: what reads it, and the field that it sets.
PLACES: Final[dict[str, tuple[Callable[[str], Any], str]]] = {
    "storePathCommitLog": (read_paths, "log"),
    "readOnlyCommitLogStorePaths": (read_paths, "read_only_log"),
    "storePathEpochFile": (read_path, "epochs"),
    "storePathBrokerIdentity": (read_path, "identity"),
    "storePathConsumeQueue": (read_path, "queues"),
    "storePathIndex": (read_path, "index"),
    "storeCheckpoint": (read_path, "checkpoint"),
    "abortFile": (read_path, "abort"),
}
