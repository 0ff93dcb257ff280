"""Opening of a set of files whose QLIST is missing: it is rebuilt if the cluster's ledger determines its contents."""

from __future__ import annotations

import logging

from broker.bmq.store.lost_qlist import LedgerNames, NotTold, make_qlist, read_names
from broker.bmq.store.partition_files import PartitionLimits, readable
from broker.common.files import Directory
from formats.bmq.disk.files import MAGIC_SIZE, FileSet, FileType, StoreFileName
from formats.bmq.disk.ledger import parse_ledger_file_name
from formats.errors import FormatError

__all__ = ["with_qlist"]

log = logging.getLogger("broker.opening")


def with_qlist(directory: Directory, file_set: FileSet, limits: PartitionLimits, *, synced: bool) -> FileSet:
    """Return the set with a rebuilt QLIST; unchanged if another file is missing, or if the ledger does not suffice.

    A QLIST without its magic was left unfinished. With `synced`, the new one is flushed to the disk.
    """
    partition_id = file_set.partition_id
    if file_set.journal is None or file_set.data is None:
        return file_set
    if file_set.qlist is not None and _has_magic(directory, file_set.qlist, limits.qlist):
        return file_set
    content = b""
    reason = "no disk space"
    names = _ledger_names(directory)
    journal = directory.open(file_set.journal, limits.journal)
    try:
        content = make_qlist(readable(journal), partition_id, names)
    except (NotTold, FormatError) as error:
        reason = str(error)
    # Only now: the traceback of an exception has views of the file.
    journal.close()
    name = str(StoreFileName(partition_id, file_set.timestamp, FileType.QLIST))
    if not content or not _write(directory, name, content, max(limits.qlist, len(content)), synced=synced):
        if content and file_set.qlist is None:
            directory.remove(name)
        log.error("partition %d: %s is missing and cannot be recreated: %s", partition_id, name, reason)
        return file_set
    log.warning("partition %d: %s was missing; recreated from the cluster-state ledger", partition_id, name)
    return file_set._replace(qlist=name)


def _has_magic(directory: Directory, name: str, size: int) -> bool:
    file = directory.open(name, size)
    try:
        return any(file.buffer[:MAGIC_SIZE])
    finally:
        file.close()


def _ledger_names(directory: Directory) -> dict[bytes, LedgerNames]:
    ledgers = []
    for name in sorted(name for name in directory.names() if parse_ledger_file_name(name)):
        file = directory.open(name, 0)
        ledgers.append(bytes(readable(file)))
        file.close()
    return read_names(ledgers)


def _write(directory: Directory, name: str, content: bytes, size: int, *, synced: bool) -> bool:
    """Write a file, its magic last; return False, leaving no file, if the disk is full."""
    file = directory.open(name, size)
    if not file.reserve(len(content)):
        file.close()
        return False
    file.buffer[MAGIC_SIZE : len(content)] = content[MAGIC_SIZE:]
    if synced:
        file.flush()
    file.buffer[:MAGIC_SIZE] = content[:MAGIC_SIZE]
    if synced:
        file.flush()
        directory.flush()
    file.close()
    return True
