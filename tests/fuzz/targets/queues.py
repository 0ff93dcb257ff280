"""Any three files as a journal, a QLIST file and a ledger name queues, each key once, without an exception.

The first four bytes give the lengths of the journal and the QLIST file; the rest is the ledger, whose checksums are
corrected first. A journal that is refused names nothing; other damaged files name what precedes the damage.
"""

from __future__ import annotations

from formats.bmq.disk.files import FileType
from formats.bmq.disk.ledger import open_ledger
from formats.bmq.stores.queues import Queue, QueueCatalog, read_ledgers
from formats.bmq.stores.recover import journal_extent, scan_chunks
from formats.errors import FormatError
from tests.fuzz.seal import seal_ledger
from tests.fuzz.seeds import ledger, small_store

__all__ = ["decode", "seeds", "verify"]


def decode(data: bytes) -> list[Queue]:
    end_of_journal = 4 + int.from_bytes(data[:2], "big")
    end_of_qlist = end_of_journal + int.from_bytes(data[2:4], "big")
    journal, qlist, named = data[4:end_of_journal], data[end_of_journal:end_of_qlist], bytearray(data[end_of_qlist:])
    catalog = QueueCatalog(0, qlist)
    try:
        extent = journal_extent(journal)
        for index, records in scan_chunks(journal, extent, 16):
            catalog.feed(extent.first_record_offset + index * 60, records)
        seal_ledger(named, open_ledger(named)[1])
    except FormatError:
        pass
    return catalog.queues(read_ledgers([named]))


def verify(data: bytes, queues: list[Queue]) -> None:
    assert len({queue.queue_key for queue in queues}) == len(queues)
    for queue in queues:
        assert bytes.fromhex(queue.queue_key).hex().upper() == queue.queue_key
        assert all(app.until is None or app.until >= app.since for app in queue.apps)


def seeds() -> list[bytes]:
    out = []
    for messages in (1, 4):
        files = small_store(messages)
        journal, qlist = files[FileType.JOURNAL], files[FileType.QLIST]
        out.append(len(journal).to_bytes(2, "big") + len(qlist).to_bytes(2, "big") + journal + qlist + ledger(8))
    return out
