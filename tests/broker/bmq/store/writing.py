"""A partition written record by record, as the reference or a node of another time may have left it."""

from __future__ import annotations

from dataclasses import dataclass, field

from crc32c import crc32c

from broker.bmq.store.partition_files import PartitionFiles, PartitionLimits
from broker.bmq.store.recovery import Recovered, recover
from formats.bmq.disk import journal_packing
from formats.bmq.disk.data import DATA_HEADER, data_record_size, write_data_record
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, group_file_sets
from formats.bmq.disk.journal import ConfirmReason, DeletionRecordFlag, QueueOpType, SyncPointType
from formats.bmq.disk.keys import NULL_KEY
from formats.bmq.disk.qlist import build_queue_record
from tests.broker.bmq.rig import START_S, guid
from tests.broker.fakes import MemoryDirectory

__all__ = ["APP_KEYS", "KEY", "Partition"]

KEY = b"queue"
APP_KEYS = {"foo": b"foo--", "bar": b"bar--", "baz": b"baz--"}
LIMITS = PartitionLimits(journal=16 << 10, data=32 << 10, qlist=4 << 10)


@dataclass
class Partition:
    """Three open files and the numbers of the next record."""

    directory: MemoryDirectory = field(default_factory=MemoryDirectory)
    lease: int = 1
    number: int = 0
    limits: PartitionLimits = LIMITS
    files: PartitionFiles = field(init=False)

    def __post_init__(self) -> None:
        limits = self.limits
        files = PartitionFiles.create(self.directory, 0, "20261121_051104", limits)
        assert files is not None
        self.files = files
        for file, size in ((files.journal, limits.journal), (files.data, limits.data), (files.qlist, limits.qlist)):
            assert file.reserve(size)
        self.sync_point()

    def _next(self) -> tuple[memoryview, int, int, int, int]:
        self.number += 1
        at = self.files.journal_end
        self.files.journal_end = at + JOURNAL_RECORD_SIZE
        return self.files.journal.buffer, at, self.lease, self.number, START_S

    def new_lease(self) -> Partition:
        self.lease, self.number = self.lease + 1, 0
        return self.sync_point()

    def sync_point(self) -> Partition:
        head = self._next()
        ends = (self.files.data_end // 8, self.files.qlist_end // 4)
        journal_packing.pack_sync_point(*head, SyncPointType.REGULAR, self.lease, self.number, 0, *ends)
        return self

    def create(self, key: bytes = KEY, apps: tuple[str, ...] = tuple(APP_KEYS), added: bool = False) -> Partition:
        """Create a queue, or add apps to it."""
        record = build_queue_record(f"bmq://fanout/{key.decode()}", key, [(app, APP_KEYS[app]) for app in apps])
        at = self.files.qlist_end
        self.files.qlist_end = at + len(record)
        self.files.qlist.buffer[at : self.files.qlist_end] = record
        kind = QueueOpType.ADDITION if added else QueueOpType.CREATION
        journal_packing.pack_queue_op(*self._next(), kind, key, NULL_KEY, at // 4)
        return self

    def operate(self, kind: QueueOpType, key: bytes = KEY, app: str = "", start: tuple[int, int] = (0, 0)) -> Partition:
        journal_packing.pack_queue_op(*self._next(), kind, key, APP_KEYS.get(app, NULL_KEY), 0, *start)
        return self

    def purge(self, key: bytes = KEY, *, refused: int) -> Partition:
        """Purge a queue; messages among the last records were never acknowledged."""
        return self.operate(QueueOpType.PURGE, key, start=(self.lease, max(1, self.number + 1 - refused)))

    def post(self, number: int, key: bytes = KEY, ref_count: int = 3, payload: bytes = b"") -> Partition:
        payload = payload or b"message %d" % number
        at = self.files.data_end
        self.files.data_end = write_data_record(self.files.data.buffer, at, payload)
        assert self.files.data_end == at + data_record_size(0, len(payload))
        journal_packing.pack_message(*self._next(), ref_count, 0, key, at // 8, guid(number), crc32c(payload))
        return self

    def confirm(self, number: int, app: str, key: bytes = KEY, reason: int = ConfirmReason.CONFIRMED) -> Partition:
        journal_packing.pack_confirm(*self._next(), reason, key, APP_KEYS[app], guid(number))
        return self

    def delete(self, number: int, key: bytes = KEY, flag: DeletionRecordFlag = DeletionRecordFlag.NONE) -> Partition:
        journal_packing.pack_deletion(*self._next(), flag, key, guid(number))
        return self

    def reopen(self) -> tuple[PartitionFiles, Recovered]:
        """Recover the files as a new process does after a crash."""
        directory = self.directory.after_crash()
        (file_set,) = group_file_sets(directory.names())
        files = PartitionFiles.open(directory, file_set, self.limits)
        return files, recover(files)

    def outstanding(self) -> dict[int, set[str]]:
        """Reopen the files and return the apps that still want each message, in order."""
        return outstanding(*self.reopen())


def outstanding(files: PartitionFiles, recovered: Recovered) -> dict[int, set[str]]:
    """Return the apps that still want each message, in order, after checking its payload."""
    names = {key: app for app, key in APP_KEYS.items()}
    found: dict[int, set[str]] = {}
    for message in recovered.messages:
        start = message.offset + DATA_HEADER.size
        text = bytes(files.data.buffer[start : start + message.size])
        assert text.startswith(b"message ")
        number = int(text.removeprefix(b"message ").split(b" ")[0])
        assert message.guid == guid(number)
        apps = {app.app_id for app in recovered.queues[message.queue_key].apps}
        found[number] = apps - {names[key] for key in message.confirmed}
    return found
