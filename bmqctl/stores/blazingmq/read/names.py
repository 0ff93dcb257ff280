"""Names of the keys in a journal's records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from formats.bmq.codes import DEFAULT_APP_ID
from formats.bmq.disk.journal import QueueOpRecord, QueueOpType
from formats.bmq.disk.keys import DEFAULT_APP_KEY, hex_of
from formats.bmq.disk.padding import WORD
from formats.bmq.disk.qlist import QueueRecord, parse_queue_record
from formats.bmq.stores.queues import NamedByLedgers, Queue, QueueCatalog
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["QueueNames"]


class QueueNames:
    """A partition's URIs by queue key, and app ids by queue key and app key.

    The initial names are those of QLIST and the ledgers, so that a walk may begin anywhere. The journal's CREATION and
    ADDITION records then replace them one by one: a key may be reused for another queue.
    """

    def __init__(self, partition_id: int, qlist: Buffer, in_ledgers: NamedByLedgers | None = None) -> None:
        self.uris: dict[bytes, str] = {}
        self.app_ids: dict[tuple[bytes, bytes], str] = {}
        self.version = 0
        """Counts the changes, for values derived from an older version."""
        self.partition_id = partition_id
        self._qlist = qlist
        self._in_ledgers = in_ledgers or {}
        for queue in QueueCatalog(partition_id, qlist).queues(in_ledgers or {}):
            if queue.uri is not None:
                self._name(
                    bytes.fromhex(queue.queue_key),
                    queue.uri,
                    ((bytes.fromhex(app.app_key), app.app_id) for app in queue.apps),
                )

    def queues(self, ops: Iterable[tuple[int, NDArray[Any]]]) -> list[Queue]:
        catalog = QueueCatalog(self.partition_id, self._qlist)
        for offset, record in ops:
            catalog.feed(offset, record)
        return catalog.queues(self._in_ledgers)

    def renames(self, record: QueueOpRecord) -> bool:
        found = self._named_by(record)
        return found is not None and self.uris.get(found.queue_key, found.uri) != found.uri

    def learn(self, record: QueueOpRecord) -> None:
        found = self._named_by(record)
        if found is not None:
            self._name(found.queue_key, found.uri, ((app.app_key, app.app_id) for app in found.apps))

    def apps(
        self, queue_key: bytes, queue_op_type: int, queue_uri_record_offset_words: int
    ) -> list[dict[str, str]] | None:
        found = self._at(queue_key, queue_op_type, queue_uri_record_offset_words)
        return None if found is None else [{"app_id": app.app_id, "app_key": hex_of(app.app_key)} for app in found.apps]

    def update(self, other: QueueNames) -> None:
        self._qlist = other._qlist
        if (self.uris, self.app_ids) != (other.uris, other.app_ids):
            self.uris |= other.uris
            self.app_ids |= other.app_ids
            self.version += 1

    def _named_by(self, record: QueueOpRecord) -> QueueRecord | None:
        return self._at(record.queue_key, record.queue_op_type, record.queue_uri_record_offset_words)

    def _at(self, queue_key: bytes, queue_op_type: int, offset_words: int) -> QueueRecord | None:
        if queue_op_type not in (QueueOpType.CREATION, QueueOpType.ADDITION):
            return None
        try:
            found = parse_queue_record(self._qlist, offset_words * WORD)
        except FormatError:
            return None
        return found if found.queue_key == queue_key else None

    def _name(self, queue_key: bytes, uri: str, apps: Iterable[tuple[bytes, str]]) -> None:
        before = len(self.uris) + len(self.app_ids)
        renamed = self.uris.get(queue_key, uri) != uri
        self.uris[queue_key] = uri
        self.app_ids.update({(queue_key, app_key): app_id for app_key, app_id in apps})
        self.app_ids.setdefault((queue_key, DEFAULT_APP_KEY), DEFAULT_APP_ID)
        self.version += renamed or len(self.uris) + len(self.app_ids) != before
