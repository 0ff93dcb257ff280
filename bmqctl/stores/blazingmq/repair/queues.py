"""A partition's queues according to QLIST and the ledger; each completes the other where that is damaged.

QLIST has no checksums, but the ledger has: where they disagree, the ledger is right.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from formats.bmq.disk.padding import WORD
from formats.bmq.disk.qlist import QUEUE_RECORD_MAGIC, QueueRecord, build_queue_record, parse_queue_record
from formats.bmq.stores.check_ledger import LedgerState
from formats.bmq.uri import parse_uri
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["Entry", "QueueWitnesses"]

_MAGIC = struct.pack(">I", QUEUE_RECORD_MAGIC)


class Entry(NamedTuple):
    """A queue's entry for QLIST; `restored` is True if its journal record points elsewhere."""

    uri: str
    apps: dict[str, bytes]
    content: bytes
    restored: bool


class QueueWitnesses:
    """A partition's QLIST entries by offset and by key, and its queues in the ledger by key."""

    def __init__(self, partition_id: int, qlist: Buffer, first_record_offset: int, ledger: LedgerState) -> None:
        """`qlist` is empty if there is no file."""
        self._qlist = bytes(qlist)
        self._by_key: dict[bytes, QueueRecord] = {}
        self._by_ledger = {key: queue for key, queue in ledger.named.items() if queue.partition_id == partition_id}
        self.end = first_record_offset
        # An entry begins at the end of the previous one, which that one's last word states, whatever else is damaged.
        start = first_record_offset
        while 0 <= start < len(self._qlist):
            entry = self._parse(start)
            if entry is not None:
                self._by_key.setdefault(entry.queue_key, entry)
                start = self.end = entry.end
                continue
            found = self._qlist.find(_MAGIC, start)
            start = -1 if found < 0 else found + WORD

    def is_in_ledger(self, queue_key: bytes) -> bool:
        return queue_key in self._by_ledger

    def uri(self, queue_key: bytes) -> str | None:
        recorded, entry = self._by_ledger.get(queue_key), self._by_key.get(queue_key)
        return recorded.uri if recorded is not None else entry.uri if entry is not None else None

    def key_at(self, offset: int) -> bytes | None:
        entry = self._parse(offset)
        return None if entry is None else entry.queue_key

    def entry(self, queue_key: bytes, offset: int | None) -> Entry | None:
        """Return the entry for a CREATION or ADDITION of a queue that points to `offset` (None: it is lost)."""
        there = None if offset is None else self._parse(offset)
        if there is not None and there.queue_key != queue_key:
            there = None
        recorded = self._by_ledger.get(queue_key)
        if recorded is not None and (there is None or not _agree(there, recorded.uri, recorded.apps)):
            content = build_queue_record(recorded.uri, queue_key, list(recorded.apps.items()))
            return Entry(recorded.uri, dict(recorded.apps), content, True)
        found = there or self._by_key.get(queue_key)
        if found is None:
            return None
        apps = {app.app_id: app.app_key for app in found.apps}
        return Entry(found.uri, apps, self._qlist[found.offset : found.end], there is None)

    def adopt(self, queue_key: bytes, offset: int) -> Entry | None:
        entry = self._parse(offset)
        if entry is None:
            return None
        apps = {app.app_id: app.app_key for app in entry.apps}
        return Entry(entry.uri, apps, build_queue_record(entry.uri, queue_key, list(apps.items())), True)

    def _parse(self, offset: int) -> QueueRecord | None:
        try:
            entry = parse_queue_record(self._qlist, offset)
            parse_uri(entry.uri)
        except FormatError:
            return None
        return entry


def _agree(entry: QueueRecord, uri: str, apps: dict[str, bytes]) -> bool:
    """Return True if an entry and the ledger's queue can both be right: apps may differ, but keep their keys."""
    ids = {key: app_id for app_id, key in apps.items()}
    return entry.uri == uri and all(
        apps.get(app.app_id, app.app_key) == app.app_key and ids.get(app.app_key, app.app_id) == app.app_id
        for app in entry.apps
    )
