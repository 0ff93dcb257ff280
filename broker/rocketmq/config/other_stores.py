"""Other kinds of stores than this broker keeps: the properties that request one, and its traces in a store's folder.

Such a store has messages or progress in files that this broker does not read. A start with the other files would number
messages from 0, or have groups begin again, so it is refused before anything is written.

Source: BrokerConfig, MessageStoreConfig, BrokerController, DLedgerCommitLog, PopConsumerService, TieredMessageStore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from broker.rocketmq.config.property_readers import PropertyError
from broker.shell.files.folders import FolderView

__all__ = ["ASKED", "asked_kinds", "stored_kinds"]

_DLEDGER: Final = "a commit log that brokers replicate by DLedger"
_ROCKSDB: Final = "RocksDB"


# Folders of queues that Apache's broker keeps besides the consume queues.
_QUEUES: Final = {
    ("consumequeue_ext",): "extends the consume queues",
    ("batchconsumequeue",): "has batch consume queues (topics with queue.type=BatchCQ)",
    ("compaction", "compactionCq"): "has compacted queues (topics with cleanup.policy=COMPACTION)",
}


class _Asked(NamedTuple):
    """The kind of store that a property requests unless its value is harmless, and how to do without it."""

    kind: str
    remedy: str
    is_harmless: Callable[[str], bool]


def _is_no(value: str) -> bool:
    """Return whether Java's `Boolean.parseBoolean` is false."""
    return value.lower() != "true"


def _is_none_of(name: str) -> Callable[[str], bool]:
    return lambda value: value.lower() in ("", name)


def _is_no_rocksdb(value: str) -> bool:
    """Return whether a type of store is not RocksDB's: the original takes all others for files."""
    return "defaultrocksdb" not in (each.strip().lower() for each in value.split(";"))


_INTO_FILES: Final = "have Apache's broker bring it back into files, and remove the property"
_REPLICAS: Final = "use masters and slaves, or controllers (enableControllerMode), with a store of their own"

# These have an effect, or none but the harmless one.
ASKED: Final[Mapping[str, _Asked]] = {
    "enableDLegerCommitLog": _Asked(_DLEDGER, _REPLICAS, _is_no),
    "storeType": _Asked(f"consume queues and progress in {_ROCKSDB}", "set storeType=default", _is_no_rocksdb),
    "rocksdbCQDoubleWriteEnable": _Asked(f"consume queues in {_ROCKSDB}, too", "remove the property", _is_no),
    "configManagerVersion": _Asked(f"topics, groups and progress in {_ROCKSDB}", _INTO_FILES, _is_none_of("v1")),
    "popConsumerKVServiceInit": _Asked(f"popped messages in {_ROCKSDB}", _INTO_FILES, _is_no),
    "popConsumerKVServiceEnable": _Asked(f"popped messages in {_ROCKSDB}", _INTO_FILES, _is_no),
    "timerRocksDBEnable": _Asked(f"timer messages in {_ROCKSDB}", _INTO_FILES, _is_no),
    "transRocksDBEnable": _Asked(f"half messages in {_ROCKSDB}", _INTO_FILES, _is_no),
    "indexRocksDBEnable": _Asked(f"the index in {_ROCKSDB}", _INTO_FILES, _is_no),
    "messageStorePlugIn": _Asked(
        "a store of another program, such as tiered storage", "remove the property", lambda value: not value
    ),
    "enableConsumeQueueExt": _Asked("consume queues with extension files", "remove the property", _is_no),
    "enabledAppendPropCRC": _Asked("records with a checksum of their properties", "remove the property", _is_no),
    "forceVerifyPropCRC": _Asked("records with a checksum of their properties", "remove the property", _is_no),
}


def asked_kinds(path: Path, properties: Mapping[str, str]) -> Iterator[PropertyError]:
    """Yield a fault for each property of a configuration file that requests a store of another kind."""
    for name, asked in ASKED.items():
        value = properties.get(name)
        if value is not None and not asked.is_harmless(value):
            yield PropertyError(f"{path}: {name}={value} asks for {asked.kind}, which is not kept here", asked.remedy)


def stored_kinds(root: FolderView) -> Iterator[PropertyError]:
    """Yield a fault for each part of a store that only Apache's broker reads."""
    for name in root.folders():
        # Source: io.openmessaging.storage.dledger.DLedgerConfig.getDataStorePath.
        if name.startswith("dledger-") and _has_files(root.folder(name).folder("data")):
            yield _other(root.folder(name), f"has {_DLEDGER}")
    config = root.folder("config")
    for folder in (root, config):
        for name in folder.folders():
            if _is_filled_database(folder.folder(name)):
                yield _other(folder.folder(name), f"is a database of {_ROCKSDB}")
    for names, what in _QUEUES.items():
        topics = root
        for name in names:
            topics = topics.folder(name)
        if any(_has_files(topics.folder(topic).folder(queue)) for topic, queue in _inner(topics)):
            yield _other(topics, what)
    if "tieredStoreMetadata.json" in config.names():
        yield _other(config, "has a file tieredStoreMetadata.json: older messages of the store are in tiered storage")


def _is_filled_database(folder: FolderView) -> bool:
    """Return whether a folder is a database of RocksDB with entries: in tables (*.sst), or in a log that is not empty.

    Apache's broker makes `rocksdbstore` in each store, and leaves it empty unless a property enables its use.
    """
    names = folder.names()
    # Each database has these two files.
    if "CURRENT" not in names or not any(each.startswith("MANIFEST-") for each in names):
        return False
    return any(
        each.endswith((".sst", ".blob")) or (each.endswith(".log") and folder.size_of(each) > 0) for each in names
    )


def _inner(topics: FolderView) -> Iterator[tuple[str, str]]:
    return ((topic, queue) for topic in topics.folders() for queue in topics.folder(topic).folders())


def _has_files(folder: FolderView) -> bool:
    return any(True for _ in folder.names())


def _other(folder: FolderView, what: str) -> PropertyError:
    return PropertyError(
        f"{folder.path}: {what}, which is not read here",
        "start Apache's broker with this store, or move that away to start without what it holds",
    )
