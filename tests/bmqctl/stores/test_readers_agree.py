"""Readers of one damaged store: the same account of what is read, damaged and missing, and the same exit code."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Final

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.pipeline.reading import read_task, tables_of
from bmqctl.pipeline.source.options import ReadOptions, Table
from bmqctl.pipeline.source.stores import StoreError
from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.blazingmq.read.losses import record_losses
from bmqctl.stores.rocketmq.read.files import log_files, open_store
from bmqctl.stores.rocketmq.read.losses import find_losses
from bmqctl.stores.rocketmq.read.queues import count_gone, read_queues
from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY
from tests.bmqctl.stores.blazingmq.losses_rig import store_of_two_partitions
from tests.bmqctl.stores.rocketmq.check.broker_stores import change, write_store
from tests.bmqctl.stores.rocketmq.journal.losses_rig import entry_of, whole_store
from tests.bmqctl.stores.rocketmq.journal.test_queues import write_queue
from tests.bmqctl.stores.rocketmq.logs import message, write_log

COMMANDS: Final = (("summary",), ("queues",), ("dump", "--payload", "auto"))
TABLES: Final = (Table.RECORDS, Table.MESSAGES, Table.PAYLOADS)
DATA_BYTES: Final = 232
QLIST_BYTES: Final = 128
ENTRY_BYTES: Final = CONSUME_QUEUE_ENTRY.size
Damage = Callable[[Path], object]


def _codes(store: Path) -> set[int]:
    results = [CliRunner().invoke(app, ["journal", *words, str(store)]) for words in COMMANDS]
    assert all(isinstance(result.exception, SystemExit | None) for result in results)
    return {result.exit_code for result in results}


def _exported(store: Path, table: Table) -> Account:
    """Account for a table like `spark-export`, without Spark."""
    options = ReadOptions(paths=(str(store),), table=table)
    tables = tables_of(options.paths)
    accounts = [tables.lost_files(options)]
    for task in tables.plan(options):
        accounts.append(Account(compares=True))
        for _ in read_task(task, options, tables.columns(options), (), accounts[-1]):
            pass
    return Account.total(accounts)


def _counts(account: Account) -> tuple[int, ...]:
    return account.records, account.damaged, account.damaged_bytes, account.missing, account.missing_bytes


def _cut(size: int) -> Damage:
    return lambda path: os.truncate(path, size)


def _zeros(begin: int) -> Damage:
    def damage(path: Path) -> None:
        content = path.read_bytes()
        path.write_bytes(content[:begin] + bytes(len(content) - begin))

    return damage


def _ones(begin: int, size: int) -> Damage:
    def damage(path: Path) -> None:
        content = path.read_bytes()
        path.write_bytes(content[:begin] + b"\xff" * size + content[begin + size :])

    return damage


def _rename(path: Path) -> None:
    path.rename(path.with_name(f"{path.name}.bak"))


# Of 20 records, ten in each partition: the account of a store with a damaged file.
BLAZINGMQ: Final[dict[str, tuple[str, Damage, tuple[int, ...]]]] = {
    "DATA that is gone": ("data", Path.unlink, (20, 0, 0, 1, DATA_BYTES)),
    "DATA with another name": ("data", _rename, (20, 0, 0, 1, DATA_BYTES)),
    "DATA of no bytes": ("data", _cut(0), (20, 0, 0, 1, DATA_BYTES)),
    "DATA cut in its headers": ("data", _cut(20), (20, 0, 0, 1, DATA_BYTES - 20)),
    "DATA cut in the header of a message": ("data", _cut(116), (20, 0, 0, 1, 116)),
    "DATA cut between messages": ("data", _cut(DATA_BYTES - 24), (20, 0, 0, 1, 24)),
    "DATA cut in a message": ("data", _cut(DATA_BYTES - 1), (20, 0, 0, 1, 1)),
    "QLIST that is gone": ("qlist", Path.unlink, (20, 0, 0, 1, QLIST_BYTES)),
    "QLIST of no bytes": ("qlist", _cut(0), (20, 0, 0, 1, QLIST_BYTES)),
    "QLIST cut in its headers": ("qlist", _cut(30), (20, 0, 0, 1, QLIST_BYTES - 30)),
    "QLIST cut in the header of a record": ("qlist", _cut(40), (20, 0, 0, 1, QLIST_BYTES - 40)),
    "QLIST cut in a record": ("qlist", _cut(QLIST_BYTES - 8), (20, 0, 0, 1, 8)),
    "a journal that is gone": ("journal", Path.unlink, (10, 0, 0, 1, 0)),
    "a journal of no bytes": ("journal", _cut(0), (10, 1, 0, 0, 0)),
    "records that are overwritten": ("journal", _ones(164, 70), (18, 2, 120, 0, 0)),
    "the end of a journal": ("journal", _cut(600), (19, 0, 0, 0, 0)),
}


@pytest.fixture(params=BLAZINGMQ)
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, tuple[int, ...]]:
    store_of_two_partitions(tmp_path)
    kind, damage, counts = BLAZINGMQ[request.param]
    damage(tmp_path / f"bmq_1.20270115_080000.bmq_{kind}")
    return tmp_path, counts


def test_readers_of_blazingmq_agree(damaged: tuple[Path, tuple[int, ...]]) -> None:
    store, counts = damaged
    assert _counts(record_losses(store)) == counts
    for table in TABLES:
        assert _counts(_exported(store, table)) == counts, table
    # A dump of payloads needs DATA.
    has_data = any(store.glob("bmq_1.*.bmq_data"))
    assert _codes(store) == ({int(any(counts[1:]))} | (set() if has_data else {2}))


@pytest.mark.parametrize(
    ("kind", "damage", "lost"),
    [
        ("qlist", _zeros(0), QLIST_BYTES),
        ("qlist", _zeros(36), QLIST_BYTES - 36),
        ("qlist", _ones(40, 4), QLIST_BYTES - 36),
    ],
)
def test_qlist_is_read_by_queues_and_exports(kind: str, damage: Damage, lost: int, tmp_path: Path) -> None:
    store_of_two_partitions(tmp_path)
    damage(tmp_path / f"bmq_1.20270115_080000.bmq_{kind}")
    counts = (20, 1, lost, 0, 0)
    assert _counts(record_losses(tmp_path)) == counts
    assert _counts(_exported(tmp_path, Table.MESSAGES)) == counts
    assert CliRunner().invoke(app, ["journal", "queues", str(tmp_path)]).exit_code == 1


@pytest.mark.parametrize(
    ("size", "damaged", "missing"), [(None, 1, 0), (DATA_BYTES + 4, 0, 1), (DATA_BYTES + 12, 1, 0)]
)
def test_messages_after_the_last_sync_point(size: int | None, damaged: int, missing: int, tmp_path: Path) -> None:
    _, store = store_of_two_partitions(tmp_path)
    store.message(b"queue", bytes(16))
    if size is None:
        store.data[-24:] = b"\xff" * 24
    store.save(tmp_path)
    if size is not None:
        os.truncate(tmp_path / "bmq_1.20270115_080000.bmq_data", size)
    for table in TABLES:
        account = _exported(tmp_path, table)
        assert (account.damaged, account.missing) == (damaged, missing), table


def _last_file(root: Path) -> Path:
    return log_files(root)[-1].path


def _link_to_nowhere(root: Path) -> None:
    shutil.rmtree(root / "commitlog")
    (root / "commitlog").symlink_to(root / "nowhere")


# Of 600 records: the account of the log, and the messages that queues name outside it, damaged and missing.
ROCKETMQ: Final[dict[str, tuple[Damage, tuple[int, ...], tuple[int, int]]]] = {
    "a sound store": (lambda root: None, (600, 0, 0, 0, 0), (0, 0)),
    "a middle file that is gone": (lambda root: log_files(root)[1].path.unlink(), (458, 0, 0, 1, 65536), (0, 0)),
    "the last file is gone": (lambda root: _last_file(root).unlink(), (569, 0, 0, 0, 0), (0, 31)),
    "the last file has another name": (lambda root: _rename(_last_file(root)), (569, 0, 0, 0, 0), (0, 31)),
    "the log is gone": (lambda root: shutil.rmtree(root / "commitlog"), (0, 0, 0, 0, 0), (0, 600)),
    "the log is a link to nowhere": (_link_to_nowhere, (0, 0, 0, 0, 0), (0, 600)),
    "the last file is zeros": (lambda root: _zeros(0)(_last_file(root)), (569, 0, 0, 0, 0), (31, 0)),
    "a body that is overwritten": (
        lambda root: _ones(200, 10)(log_files(root)[1].path),
        (599, 1, 459, 0, 0),
        (0, 0),
    ),
    "the head of a record": (lambda root: _ones(0, 4)(log_files(root)[1].path), (599, 1, 459, 0, 0), (0, 0)),
}


def _queue(root: Path) -> Path:
    return root / "consumequeue/orders/1/00000000000000000000"


def _repeat(entry: int, at: int, count: int = 1) -> Damage:
    """Write an entry over those from number `at` on."""

    def damage(root: Path) -> None:
        data = bytearray(_queue(root).read_bytes())
        data[at * ENTRY_BYTES : (at + count) * ENTRY_BYTES] = data[entry * ENTRY_BYTES :][:ENTRY_BYTES] * count
        _queue(root).write_bytes(data)

    return damage


def _insert(entry: int) -> Damage:
    """Write an entry twice, and the following ones one place later."""

    def damage(root: Path) -> None:
        data, end = _queue(root).read_bytes(), (entry + 1) * ENTRY_BYTES
        _queue(root).write_bytes(data[:end] + data[end - ENTRY_BYTES : -ENTRY_BYTES])

    return damage


def _swap(one: int, other: int) -> Damage:
    def damage(root: Path) -> None:
        data = bytearray(_queue(root).read_bytes())
        a, b = (slice(at * ENTRY_BYTES, (at + 1) * ENTRY_BYTES) for at in (one, other))
        data[a], data[b] = data[b], data[a]
        _queue(root).write_bytes(data)

    return damage


def _exchange(root: Path) -> None:
    other = root / "consumequeue/orders/2/00000000000000000000"
    ours, theirs = _queue(root).read_bytes(), other.read_bytes()
    _queue(root).write_bytes(theirs)
    other.write_bytes(ours)


def _without_first_file(root: Path) -> None:
    """Write entries in files of ten, without the first file."""
    data = _queue(root).read_bytes()
    size = 10 * ENTRY_BYTES
    _queue(root).unlink()
    for at in range(size, len(data), size):
        _queue(root).with_name(f"{at:020}").write_bytes(data[at : at + size])


def _both(*damages: Damage) -> Damage:
    def damage(root: Path) -> None:
        for each in damages:
            each(root)

    return damage


# Of 150 messages in queue 1: how many its entries do not name, since they are damaged and since they are missing.
QUEUES: Final[dict[str, tuple[Damage, tuple[int, int]]]] = {
    "a queue without entries": (lambda root: shutil.rmtree(root / "consumequeue/orders/1"), (0, 150)),
    "an entry that is doubled in place of the next": (_repeat(20, 21), (1, 0)),
    "the first entry in place of all others": (_repeat(0, 1, 149), (149, 0)),
    "the last entry in place of all others": (_repeat(149, 0, 149), (149, 0)),
    # There is an entry more than there are messages.
    "an entry that is doubled in front of the next": (_insert(20), (130, 0)),
    "an entry after the last message's": (_repeat(149, 150), (1, 0)),
    "entries in another order": (_swap(7, 8), (2, 0)),
    "entries of another size": (lambda root: _ones(48 * ENTRY_BYTES + 9, 1)(_queue(root)), (1, 0)),
    "an entry with another tag": (lambda root: _ones(30 * ENTRY_BYTES + 12, 8)(_queue(root)), (1, 0)),
    "the entries of another queue": (_exchange, (300, 0)),
    "a queue that is cut": (lambda root: _cut(100 * ENTRY_BYTES)(_queue(root)), (0, 50)),
    "a queue that is cut in an entry": (lambda root: _cut(100 * ENTRY_BYTES + 7)(_queue(root)), (0, 50)),
    "a queue that ends in zeros": (lambda root: _zeros(100 * ENTRY_BYTES)(_queue(root)), (0, 50)),
    "a queue without its first file": (_without_first_file, (0, 10)),
    "a queue that is cut after a doubled entry": (
        _both(_repeat(3, 4), lambda root: _cut(100 * ENTRY_BYTES)(_queue(root))),
        (1, 50),
    ),
    "a queue of one doubled entry": (
        _both(_repeat(3, 0), lambda root: _cut(ENTRY_BYTES)(_queue(root))),
        (1, 149),
    ),
}


@pytest.mark.parametrize("name", ROCKETMQ)
def test_readers_of_rocketmq_agree(name: str, tmp_path: Path) -> None:
    damage, counts, gone = ROCKETMQ[name]
    whole_store(tmp_path)
    damage(tmp_path)
    losses = find_losses(open_store(tmp_path))
    assert _counts(losses.account) == counts
    assert count_gone(open_store(tmp_path), losses.end) == gone
    records, *lost = counts
    expected = (records, lost[0] + gone[0], lost[1], lost[2] + gone[1], lost[3])
    for table in (Table.MESSAGES, Table.PAYLOADS):
        assert _counts(_exported(tmp_path, table)) == expected, table
    assert _codes(tmp_path) == {int(any(expected[1:]))}
    replayed = CliRunner().invoke(app, ["replay", "--dry-run", "--to", "rocketmq://127.0.0.1:1/t", str(tmp_path)])
    assert replayed.exit_code == int(any(expected[1:])), replayed.output
    assert (f"{sum(gone)} messages that its queues name are not there" in replayed.output) == (sum(gone) > 0)
    for table in (Table.QUEUES, Table.TOPICS, Table.GROUPS):
        account = _exported(tmp_path, table)
        assert (account.damaged + account.missing == 0) == (not any(expected[1:])), table


@pytest.mark.parametrize("name", QUEUES)
def test_readers_of_queues_agree(name: str, tmp_path: Path) -> None:
    damage, lost = QUEUES[name]
    whole_store(tmp_path)
    damage(tmp_path)
    store = open_store(tmp_path)
    queues = read_queues(store, find_losses(store))
    assert (sum(queue.damaged for queue in queues), sum(queue.missing for queue in queues)) == lost
    # An entry after the last message's is damaged, and no message.
    surplus = sum(queue.end for queue in queues) - 600
    assert sum(queue.entries for queue in queues) == 600 + surplus - sum(lost)
    for table in (Table.QUEUES, Table.TOPICS, Table.GROUPS):
        account = _exported(tmp_path, table)
        assert (account.damaged, account.missing) == lost, table
    assert CliRunner().invoke(app, ["journal", "validate", str(tmp_path)]).exit_code == 1
    # A dump and an export of messages read the log, which has all of them.
    assert count_gone(store, store.end) == (0, 0)
    for table in (Table.MESSAGES, Table.PAYLOADS):
        assert _counts(_exported(tmp_path, table)) == (600, 0, 0, 0, 0), table
    assert _codes(tmp_path) == {0, 1}


@pytest.mark.parametrize(
    ("queue", "damage", "lost"),
    [
        ("%LMQ%$parent$lite/0", partial(change, at=7), (1, 0)),
        ("%LMQ%$parent$lite/0", partial(change, at=11), (1, 0)),
        ("%LMQ%$parent$lite/0", partial(change, at=19), (1, 0)),
        ("%LMQ%$parent$lite/0", _cut(ENTRY_BYTES), (0, 4)),  # of five entries
        ("SCHEDULE_TOPIC_XXXX/1", partial(change, at=12), (1, 0)),
        ("a/0", partial(change, at=19), (1, 0)),
    ],
)
def test_entries_of_queues_of_all_kinds_are_compared(
    queue: str, damage: Damage, lost: tuple[int, int], tmp_path: Path
) -> None:
    root = write_store(tmp_path / "store")
    assert _codes(root) == {0}
    damage(root / "consumequeue" / queue / f"{0:020}")
    store = open_store(root)
    queues = read_queues(store, find_losses(store))
    assert (sum(each.damaged for each in queues), sum(each.missing for each in queues)) == lost
    for table in (Table.QUEUES, Table.TOPICS, Table.GROUPS):
        account = _exported(root, table)
        assert (account.damaged, account.missing) == lost, table
    assert CliRunner().invoke(app, ["journal", "validate", str(root)]).exit_code == 1
    # Only a dump is of the log, which has all messages.
    assert _codes(root) == {0, 1}


@pytest.mark.parametrize("name", QUEUES)
def test_entries_that_a_broker_may_yet_write_are_not_missing(name: str, tmp_path: Path) -> None:
    damage, (damaged, _) = QUEUES[name]
    whole_store(tmp_path)
    damage(tmp_path)
    (tmp_path / "abort").touch()
    store = open_store(tmp_path)
    queues = read_queues(store, find_losses(store))
    assert (sum(queue.damaged for queue in queues), sum(queue.missing for queue in queues)) == (damaged, 0)


def test_a_topic_that_was_made_once_more_is_sound(tmp_path: Path) -> None:
    """Number the messages of two topics with one name from 0 each; only the later ones have entries."""
    numbers = [*range(40), *range(24)]
    written = write_log(tmp_path, (message(number) for number in numbers))
    for queue_id in range(4):
        write_queue(written, queue_id, [entry_of(each) for each in written.records[40:] if each.queue_id == queue_id])
    store = open_store(tmp_path)
    queues = read_queues(store, find_losses(store))
    assert [(queue.entries, queue.damaged, queue.missing) for queue in queues] == [(6, 0, 0)] * 4


@contextmanager
def _without_rights(path: Path, store: Path) -> Iterator[None]:
    """Take the rights to a file of a sound store away, also from root, by acting as another user."""
    # It also loads the modules, which another user may not read.
    assert _codes(store) == {0}
    path.chmod(0)
    user = os.geteuid()
    if user == 0:
        store.chmod(0o777)
        # The other user passes through the folders of this run, which are the owner's alone.
        for above in store.parents:
            if above.is_relative_to(gettempdir()) and above != Path(gettempdir()):
                above.chmod(above.stat().st_mode | 0o011)
        os.seteuid(54321)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("file", ["journal", "data", "qlist"])
def test_a_file_without_rights_is_refused_and_is_no_damage(file: str, tmp_path: Path) -> None:
    store_of_two_partitions(tmp_path)
    path = tmp_path / f"bmq_1.20270115_080000.bmq_{file}"
    with _without_rights(path, tmp_path):
        with pytest.raises(StoreError, match=f"{path}: Permission denied"):
            _exported(tmp_path, Table.RECORDS)
        # Names of queues and lengths take no DATA.
        assert _codes(tmp_path) == ({0, 2} if file == "data" else {2})


@pytest.mark.parametrize("place", ["commitlog", "consumequeue/orders/1"])
def test_a_file_of_rocketmq_without_rights_is_refused(place: str, tmp_path: Path) -> None:
    whole_store(tmp_path)
    path = min((tmp_path / place).iterdir())
    with _without_rights(path, tmp_path):
        with pytest.raises(StoreError, match=f"{path}: Permission denied"):
            _exported(tmp_path, Table.MESSAGES)
        assert _codes(tmp_path) == {2}


@pytest.mark.parametrize("file", ["journal", "data", "qlist"])
def test_file_that_is_not_regular_is_refused(file: str, tmp_path: Path) -> None:
    store_of_two_partitions(tmp_path)
    path = tmp_path / f"bmq_1.20270115_080000.bmq_{file}"
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreError, match=f"{path}: is not a regular file"):
        _exported(tmp_path, Table.RECORDS)
    assert _codes(tmp_path) == {2}
