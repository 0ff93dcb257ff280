"""A copy of a captured store, with files left over in it."""

from __future__ import annotations

from pathlib import Path

from broker.rocketmq.store.message_store import MessageStore, StoreOptions
from broker.rocketmq.store.opening import open_store
from broker.shell.files.folders import FileFolder
from formats.rocketmq.files.checkpoints import STORE_CHECKPOINT, StoreCheckpoint
from formats.rocketmq.files.record import Record
from tests.golden.rocketmq.stores import records, unpack

GOLDEN = StoreOptions(4194304, 6_000_000, 500, 2000)
CUT, END = 1305, 2088
FIRST = "00000000000000000000"


class Golden:
    """Broker c1 of `ha-truncate` as it was between steps D4 and D5: its log is cut at 1305, and ends at 2088.

    That is what the original's log says of it. The bytes are those of its store before and after. Three records of the
    new master are where five longer ones were.
    """

    def __init__(self, folder: Path) -> None:
        (self.root,) = unpack("ha-truncate/before-c1-diverged", folder / "before")
        self.after, _ = unpack("ha-truncate/after", folder / "after")
        self.log = bytearray((self.root / "commitlog" / FIRST).read_bytes())
        self.log[CUT:END] = (self.after / "commitlog" / FIRST).read_bytes()[CUT:END]
        self.new_ms = {at: record.stored_ms for at, record in records(self.after) if isinstance(record, Record)}
        for queue_id in (0, 1):
            path = self.root / "consumequeue/THa" / str(queue_id) / FIRST
            old, new = path.read_bytes(), (self.after / path.relative_to(self.root)).read_bytes()
            count = sum(
                int.from_bytes(new[at : at + 8], "big") < END for at in range(0, 200, 20) if any(new[at : at + 20])
            )
            # The fifth entry of each is that of a record which was cut off.
            assert any(old[20 * count : 20 * count + 20])
            path.write_bytes(new[: 20 * count] + old[20 * count :])

    def open(
        self, *, crashed: bool, dispatched_ms: int | None = None, begins: tuple[int, ...] = (0, CUT)
    ) -> MessageStore:
        (self.root / "commitlog" / FIRST).write_bytes(self.log)
        last_ms = self.new_ms[1827] if dispatched_ms is None else dispatched_ms
        checkpoint = STORE_CHECKPOINT.pack(StoreCheckpoint(last_ms, last_ms, 0, 0, END))
        (self.root / "checkpoint").write_bytes(checkpoint.ljust(4096, b"\0"))
        (self.root / "abort").unlink()
        if crashed:
            (self.root / "abort").write_bytes(b"")
        return open_store(FileFolder(self.root), GOLDEN, lambda ms: f"{ms:017d}", epoch_begins=begins)

    def check(self, store: MessageStore) -> None:
        """Check that a store has the messages of the log that it has now, and nothing else."""
        assert store.log.end == END
        expected = [(at, record) for at, record in records(self.after) if at < END]
        assert [(found.offset, found.record._replace(body=b"")) for found in store.log.records(0)] == [
            (at, record._replace(body=b"")) for at, record in expected if isinstance(record, Record)
        ]
        assert {key: queue.end for key, queue in store.queues.items()} == {("THa", 0): 4, ("THa", 1): 4}
        for queue in store.queues.values():
            for number in range(queue.end):
                record = store.log.read(queue.get(number).physical_offset).record
                assert record.queue_offset == number
                del record
        store.close()
        assert not any((self.root / "commitlog" / FIRST).read_bytes()[END:])
