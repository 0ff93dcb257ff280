"""Repair of a damaged RocketMQ store: what is sound goes to a new folder, and the damaged store is only read."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bmqctl.stores.rocketmq.build_files import StoreSizes
from bmqctl.stores.rocketmq.check.check import check_log_store, old_tail_of
from bmqctl.stores.rocketmq.check.progress import read_topics
from bmqctl.stores.rocketmq.check.queues import QueueCheck
from bmqctl.stores.rocketmq.read.derived import QueueKeys
from bmqctl.stores.rocketmq.read.files import ABORT, StoreFiles, open_store
from bmqctl.stores.rocketmq.read.index_files import DEFAULT_LAYOUT, find_layout
from bmqctl.stores.rocketmq.read.topics import DELAY_TOPIC
from bmqctl.stores.rocketmq.repair.config import copy_others, write_checkpoint, write_epochs
from bmqctl.stores.rocketmq.repair.parts import Refused, RepairReport
from bmqctl.stores.rocketmq.repair.plan import make_plan
from bmqctl.stores.rocketmq.repair.write import derive, sizes_of, write_log
from formats.bmq.stores.faults import Fault
from formats.rocketmq.lite import is_lite_queue

__all__ = ["repair_log_store"]

Progress = Callable[[str, int, int], None]

_LOCK: Final = "lock"
_MS_MAX: Final = (1 << 63) - 1
# By default: 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h.
_LEVELS_S: Final[tuple[int, ...]] = (1, 5, 10, 30, *(60 * minutes for minutes in (*range(1, 11), 20, 30, 60, 120)))


def _ignore(found: Fault) -> None:
    """Drop a fault, which the report names by what was left out."""


def repair_log_store(path: Path, out: Path, sizes: StoreSizes | None, on_progress: Progress) -> RepairReport:
    """Write what is sound in the store at `path` to `out`. `sizes` are those of its files, if they are given.

    Raises `NotAStoreFile`, `Refused` and `OSError`; nothing was changed in the damaged store then.
    """
    store = open_store(path)
    _check_place(store.root, out)
    _check_unused(store.root)
    sizes = _sizes(store, sizes)
    report = RepairReport(str(store.root), str(out))
    may_lag = (store.root / ABORT).exists()
    keys = QueueKeys()
    end = old_tail_of(store, may_lag)
    queues = QueueCheck(store, keys, _ignore, may_lag, end is not None)
    bytes_ = sizes.commit_log_file_bytes
    plan = make_plan(store, bytes_, queues, keys, end, lambda done, total: on_progress("reading", done, total))
    report.left_out += plan.left_out
    report.restored += plan.restored
    report.begin, report.end = plan.begin, plan.end
    for name in ("commitlog", "consumequeue", "index"):
        (out / name).mkdir(parents=True, exist_ok=True)
    write_log(store, plan, out / "commitlog", bytes_, lambda done, total: on_progress("copying", done, total))
    derived = derive(
        out,
        sizes,
        _wanted(store),
        _due_ms(keys, queues),
        report,
        lambda done, total: on_progress("making queues and index", done, total),
    )
    report.records = derived.records
    write_checkpoint(store, out, derived, plan.end)
    write_epochs(store, out, plan.end, report)
    copy_others(store, out, derived.ends, report)
    checked = check_log_store(out, 0, lambda done, total: on_progress("checking the result", done, total))
    report.errors, report.warnings, report.counts = checked.errors, checked.warnings, dict(checked.counts)
    return report


def _check_place(root: Path, out: Path) -> None:
    inside, around = out.resolve(), root.resolve()
    if inside == around or around in inside.parents:
        raise Refused(f"{out} is inside the damaged store, which is not changed: name another directory")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Refused(f"{out} exists and is not empty: name a new directory")


def _check_unused(root: Path) -> None:
    """Raise `Refused` if a broker has the store."""
    try:
        descriptor = os.open(root / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        # No broker has it, or that cannot be determined.
        return
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    except OSError:
        raise Refused(f"{root} is in use by a broker: stop it first") from None
    finally:
        os.close(descriptor)


def _sizes(store: StoreFiles, given: StoreSizes | None) -> StoreSizes:
    if given is not None:
        return given
    log_bytes, queue_bytes = sizes_of(store)
    if any(file.begin % max(log_bytes, 1) for file in store.log):
        raise Refused(f"{store.root}: the files of the log do not show their size: give --config")
    layout = find_layout(store.index_files) or DEFAULT_LAYOUT
    default = StoreSizes()
    return StoreSizes(
        log_bytes or default.commit_log_file_bytes,
        queue_bytes or default.consume_queue_file_bytes,
        layout.slots,
        layout.entries,
    )


def _wanted(store: StoreFiles) -> Callable[[str, int], bool]:
    """Tell which queues the store is to have: those of topics that were deleted stay deleted."""
    topics = read_topics(store)
    there = {(queue.topic, queue.queue_id) for queue in store.queues()}

    def is_wanted(topic: str, queue_id: int) -> bool:
        if topic in ("", ".", "..") or "/" in topic or "\0" in topic or len(topic.encode()) > 255 or queue_id < 0:
            return False
        if (topic, queue_id) in there or not there or topics is None:
            return True
        return topic in topics and not is_lite_queue(topic)

    return is_wanted


def _due_ms(keys: QueueKeys, queues: QueueCheck) -> Callable[[int, int, int, int], int]:
    """Tell when delayed messages are due: as their old entries say, or by the default delay of their level."""

    def due_ms(queue_id: int, number: int, offset: int, stored_ms: int) -> int:
        code = queues.code(keys.key(DELAY_TOPIC, queue_id), number, offset)
        if code is not None and code >= stored_ms:
            return code
        return min(stored_ms + 1000 * _LEVELS_S[min(max(queue_id, 0), len(_LEVELS_S) - 1)], _MS_MAX)

    return due_ms
