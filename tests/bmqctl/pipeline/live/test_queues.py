from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bmqctl.pipeline.source.options import ReadOptions
from bmqctl.pipeline.source.plan import open_store
from bmqctl.pipeline.source.stores import find_ledgers
from formats.bmq.control import ber
from formats.bmq.control.messages_cluster import (
    AppIdInfo,
    ClusterMessage,
    LeaderMessageSequence,
    QueueAssignmentAdvisory,
    QueueInfo,
    QueueInfoUpdate,
    QueueUpdateAdvisory,
)
from formats.bmq.disk.journal import QueueOpType
from formats.bmq.disk.ledger import LedgerRecordType, build_ledger_record, initial_ledger_bytes, ledger_file_name
from formats.bmq.stores.queues import ALWAYS, App, Event, Purge, Queue
from tests.bmqctl.pipeline.written import TIME, WrittenStore

KEY, OTHER = b"\xabqueu", b"other"
FOO, BAR = b"foooo", b"baaar"
URI = "bmq://domain/queue"


def write_ledger(directory: Path, *advisories: QueueAssignmentAdvisory | QueueUpdateAdvisory) -> None:
    log_id = b"\1\2\3\4\5"
    content = initial_ledger_bytes(log_id)
    for number, advisory in enumerate(advisories, 1):
        body = ber.encode(ClusterMessage(choice=advisory))
        content += build_ledger_record(LedgerRecordType.UPDATE, 1, number, TIME, body)
    (directory / ledger_file_name(datetime(2027, 1, 15, tzinfo=UTC), log_id)).write_bytes(content)


def load(directory: Path) -> list[Queue]:
    """List the queues of a store; their offsets count positions in the partition, so that the first record is at 0."""
    store = open_store(ReadOptions.parse({"path": str(directory)}))
    return [queue for partition in store.partitions for queue in store.queues(partition)]


def test_queues_of_a_golden_store(golden: Callable[[str], Path]) -> None:
    queues = {queue.uri: queue for queue in load(golden("single-clean"))}
    assert set(queues) == {
        "bmq://bmq.gold.ttl/short-1",
        "bmq://bmq.test.mem.broadcast/ticks-1",
        "bmq://bmq.test.persistent.fanout/prices-1",
        "bmq://bmq.test.persistent.priority/late-1",
        "bmq://bmq.test.persistent.priority/orders-1",
        "bmq://bmq.test.persistent.priority/orders-zlib-1",
    }
    fanout = queues["bmq://bmq.test.persistent.fanout/prices-1"]
    assert fanout.queue_key == "619A217B8B"
    assert [(app.app_id, app.since) for app in fanout.apps] == [("foo", 15900), ("bar", 15900), ("baz", 15900)]


def test_apps_have_the_places_between_which_they_are_there(tmp_path: Path) -> None:
    written = WrittenStore()
    written.queue(KEY, URI, ("foo", FOO))
    written.queue(KEY, URI, ("foo", FOO), ("bar", BAR), kind=QueueOpType.ADDITION)
    written.queue_op(QueueOpType.DELETION, KEY, FOO)
    (queue,) = load(written.save(tmp_path))
    assert queue.apps == (App(FOO.hex().upper(), "foo", 0, 120), App(BAR.hex().upper(), "bar", 60, None))
    assert queue.purges == ()


def test_purges_of_apps_and_queues(tmp_path: Path) -> None:
    written = WrittenStore()
    written.queue(KEY, URI)
    written.queue_op(QueueOpType.PURGE, KEY, FOO, start=17)
    written.queue_op(QueueOpType.PURGE, KEY)
    written.queue_op(QueueOpType.DELETION, KEY)
    (queue,) = load(written.save(tmp_path))
    assert queue.queue_key == "AB71756575"
    assert queue.purges == (
        Purge(60, TIME + 2, FOO.hex().upper(), 1, 17),
        Purge(120, TIME + 3, None, 0, 0),
        Purge(180, TIME + 4, None, 0, 0),
    )
    assert [app.app_id for app in queue.apps] == ["__default"]
    assert (queue.created, queue.deleted) == (Event(0, TIME + 1), Event(180, TIME + 4))


def test_without_qlist_the_ledger_names_queues_and_apps(tmp_path: Path) -> None:
    written = WrittenStore(partition_id=3)
    written.queue(KEY, "bmq://domain/ignored")
    written.save(tmp_path)
    (tmp_path / "bmq_3.20270115_080000.bmq_qlist").unlink()
    number = LeaderMessageSequence(elector_term=1, sequence_number=1)
    foo, bar = AppIdInfo(app_id="foo", app_key=FOO), AppIdInfo(app_id="bar", app_key=BAR)
    infos = (
        QueueInfo(uri=URI, key=KEY, partition_id=3, app_ids=(foo,)),
        QueueInfo(uri="bmq://domain/elsewhere", key=KEY, partition_id=4),
        QueueInfo(uri="bmq://domain/unused", key=OTHER, partition_id=3),
    )
    update = QueueInfoUpdate(uri=URI, key=KEY, partition_id=3, added_app_ids=(bar,), domain="domain")
    write_ledger(
        tmp_path,
        QueueAssignmentAdvisory(sequence_number=number, queues=infos),
        QueueUpdateAdvisory(sequence_number=number, queue_updates=(update,)),
    )
    queue, other = load(tmp_path)
    assert queue.uri == URI
    assert [(app.app_id, app.since) for app in queue.apps] == [("foo", ALWAYS), ("bar", ALWAYS)]
    assert (other.uri, other.created) == ("bmq://domain/unused", None)


def test_unreadable_queue_list_names_nothing(tmp_path: Path) -> None:
    written = WrittenStore()
    written.queue(KEY, URI)
    written.queue(OTHER, "bmq://domain/other")
    written.qlist[36:] = bytes(len(written.qlist) - 36)
    written.save(tmp_path)
    write_ledger(tmp_path)
    (ledger,) = find_ledgers(tmp_path)
    ledger.write_bytes(ledger.read_bytes() + b"\xff" * 64)
    assert [(queue.uri, len(queue.apps)) for queue in load(tmp_path)] == [(None, 1), (None, 1)]
