"""A store with a damaged journal."""

from __future__ import annotations

from pathlib import Path

from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from tests.bmqctl.pipeline.written import WrittenStore

Q, GUIDS = b"queue", [bytes(15) + bytes([number]) for number in range(9)]


def damaged(tmp_path: Path, *, journal: bool = True) -> Path:
    """Payloads have other checksums than their records say; of five records the third has no magic."""
    store = WrittenStore()
    store.queue(Q, "bmq://domain/queue", ("__default", b"0\0\0\0\0"))
    for number in range(3):
        store.message(Q, GUIDS[number])
    store.sync_point()
    store.data[:] = store.data.replace(b"payload", b"Payload")
    at = 44 + 2 * JOURNAL_RECORD_SIZE
    if journal:
        store.journal[at + 56 : at + 60] = b"xxxx"
    return store.save(tmp_path / "store")
