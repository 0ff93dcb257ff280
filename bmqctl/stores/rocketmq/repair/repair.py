"""Repair of a damaged RocketMQ store: writes its sound parts to a new folder, and only reads the damaged store."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from bmqctl.stores.rocketmq.build_files import StoreSizes
from bmqctl.stores.rocketmq.check.check import check_log_store, old_tail_of
from bmqctl.stores.rocketmq.check.progress import CHECKPOINT, read_checkpoint, read_epochs, read_topics
from bmqctl.stores.rocketmq.check.queues import QueueCheck
from bmqctl.stores.rocketmq.read.derived import QueueKeys
from bmqctl.stores.rocketmq.read.files import ABORT, StoreFiles, open_store
from bmqctl.stores.rocketmq.read.index_files import DEFAULT_LAYOUT, find_layout
from bmqctl.stores.rocketmq.read.tables import EPOCHS
from bmqctl.stores.rocketmq.read.topics import DELAY_TOPIC, TIMER_TOPIC
from bmqctl.stores.rocketmq.repair.parts import Note, Refused, RepairReport
from bmqctl.stores.rocketmq.repair.plan import make_plan
from bmqctl.stores.rocketmq.repair.write import Derived, derive, sizes_of, write_log
from formats.bmq.stores.faults import Fault
from formats.errors import FormatError
from formats.rocketmq.files.checkpoints import CHECKPOINT_BYTES, STORE_CHECKPOINT, TIMER_CHECKPOINT, StoreCheckpoint
from formats.rocketmq.files.epochs import encode_epochs
from formats.rocketmq.files.flush_mark import MARK_NAME
from formats.rocketmq.lite import is_lite_queue
from formats.rocketmq.numbers import read_int
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.clients import CONSUMER_OFFSETS, OFFSET_FILES
from formats.rocketmq.remoting.bodies.delays import DELAY_OFFSETS

__all__ = ["repair_log_store"]

Progress = Callable[[str, int, int], None]

_LOCK: Final = "lock"
_MS_MAX: Final = (1 << 63) - 1
# The default: 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h.
_LEVELS_S: Final[tuple[int, ...]] = (1, 5, 10, 30, *(60 * minutes for minutes in (*range(1, 11), 20, 30, 60, 120)))

_MADE_ANEW: Final = frozenset(
    {
        "commitlog",
        "consumequeue",
        "index",
        ABORT,
        CHECKPOINT,
        EPOCHS,
        EPOCHS + ".bak",
        MARK_NAME,
        "bmqctl.cut",
        "bmqctl.deleted",
        "lock",
    }
)
_BACKUP: Final = ".bak"


def write_checkpoint(store: StoreFiles, out: Path, derived: Derived, end: int) -> None:
    old = read_checkpoint(store) or StoreCheckpoint(0, 0, 0, 0, 0)
    new = StoreCheckpoint(
        derived.last_ms,
        derived.last_ms,
        derived.full_ms,
        min(max(old.master_flushed_offset, 0), end),
        min(max(old.confirm_offset, 0), end),
    )
    (out / CHECKPOINT).write_bytes(STORE_CHECKPOINT.pack(new).ljust(CHECKPOINT_BYTES, b"\0"))


def write_epochs(store: StoreFiles, out: Path, end: int, report: RepairReport) -> None:
    path = store.root / EPOCHS
    if not path.exists():
        return
    entries = read_epochs(store)
    kept = [entry for entry in entries if entry.start_offset <= end]
    for entry in entries[len(kept) :]:
        reason = f"epoch {entry.epoch} began after the end of the log"
        report.left_out.append(Note(entry.start_offset, 0, EPOCHS, reason))
    if not entries:
        reason = "cannot be read: as a replica of others, the store has to be emptied instead"
        report.left_out.append(Note(0, path.stat().st_size, EPOCHS, reason))
        return
    (out / EPOCHS).write_bytes(encode_epochs(kept))


def copy_others(store: StoreFiles, out: Path, ends: Mapping[tuple[str, int], int], report: RepairReport) -> None:
    """Copy all files that do not follow from the log; set back offsets beyond the ends of queues."""
    for path in sorted(store.root.iterdir()):
        if path.name in _MADE_ANEW or path.is_symlink() or path.resolve() == out.resolve():
            continue
        if path.is_dir():
            shutil.copytree(path, out / path.name, symlinks=True, dirs_exist_ok=True)
        elif path.is_file():
            shutil.copy2(path, out / path.name)
    folder = out / "config"
    if not folder.is_dir():
        return
    for path in sorted(folder.glob("*.json")):
        _check_json(path, report)
    for name in OFFSET_FILES:
        _set_back(folder / name, "offsetTable", _by_group, _group_end, ends, report)
        _set_back(folder / name, "lmqOffsetTable", _by_name, _lmq_end, ends, report)
    _set_back(folder / "delayOffset.json", "offsetTable", _by_name, _level_end, ends, report)
    _set_timers_back(folder / "timercheck", ends.get((TIMER_TOPIC, 0), 0), report)


def _is_sound(path: Path) -> bool:
    try:
        text = path.read_bytes().decode()
        found = fastjson.loads_file(text) if text.strip() else {}
        if path.name.startswith(OFFSET_FILES):
            CONSUMER_OFFSETS.read(path.read_bytes())
        elif path.name.startswith("delayOffset"):
            DELAY_OFFSETS.read(path.read_bytes())
    except (OSError, UnicodeDecodeError, FormatError):
        return False
    return isinstance(found, dict)


def _check_json(path: Path, report: RepairReport) -> None:
    """Replace an unreadable file by its previous version, or leave it out."""
    if _is_sound(path):
        return
    backup = path.with_name(path.name + _BACKUP)
    size = path.stat().st_size
    if _is_sound(backup):
        shutil.copy2(backup, path)
        report.restored.append(Note(0, size, f"config/{path.name}", "cannot be read: the file before it is used"))
    else:
        path.unlink()
        report.left_out.append(Note(0, size, f"config/{path.name}", "cannot be read, nor can the file before it"))


def _by_group(table: dict[Any, Any]) -> dict[Any, dict[Any, Any]]:
    return {name: offsets for name, offsets in table.items() if isinstance(offsets, dict)}


def _by_name(table: dict[Any, Any]) -> dict[Any, dict[Any, Any]]:
    return {"": table}


def _group_end(name: Any, number: Any, ends: Mapping[tuple[str, int], int]) -> int:
    queue_id = read_int(str(number))
    return 0 if queue_id is None else ends.get((str(name).partition("@")[0], queue_id), 0)


def _lmq_end(name: Any, number: Any, ends: Mapping[tuple[str, int], int]) -> int:
    return ends.get((str(number).partition("@")[0], 0), 0)


def _level_end(name: Any, number: Any, ends: Mapping[tuple[str, int], int]) -> int:
    level = read_int(str(number))
    return 0 if level is None else ends.get((DELAY_TOPIC, level - 1), 0)


def _set_back(
    path: Path,
    member: str,
    tables_of: Callable[[dict[Any, Any]], dict[Any, dict[Any, Any]]],
    end_of: Callable[[Any, Any, Mapping[tuple[str, int], int]], int],
    ends: Mapping[tuple[str, int], int],
    report: RepairReport,
) -> None:
    if not path.exists():
        return
    data = fastjson.loads_file(path.read_bytes().decode() or "{}")
    table = data.get(member)
    if not isinstance(table, dict):
        return
    changed = False
    for group, offsets in tables_of(table).items():
        for number, offset in offsets.items():
            # Brokers ignore an offset without a value, whatever its name.
            if not isinstance(offset, int):
                continue
            end = end_of(group, number, ends)
            if 0 <= offset <= end:
                continue
            reason = f"{group} was at {offset} in {number}, which ends at {end}".lstrip()
            report.restored.append(Note(0, 0, f"config/{path.name}", reason))
            offsets[number] = min(max(offset, 0), end)
            changed = True
    if changed:
        path.write_text(fastjson.dumps_pretty(data))


def _set_timers_back(path: Path, end: int, report: RepairReport) -> None:
    if not path.exists():
        return
    data = path.read_bytes()
    if len(data) < TIMER_CHECKPOINT.size:
        path.unlink()
        report.left_out.append(Note(0, len(data), "config/timercheck", "is too short"))
        return
    found = TIMER_CHECKPOINT.unpack(data)
    if found.queue_offset > end:
        reason = f"timer messages were taken in up to {found.queue_offset}, their queue ends at {end}"
        report.restored.append(Note(0, 0, "config/timercheck", reason))
        path.write_bytes(TIMER_CHECKPOINT.pack(found._replace(queue_offset=end)) + data[TIMER_CHECKPOINT.size :])


def _ignore(found: Fault) -> None:
    """Drop a fault, which the report of parts left out covers."""


def repair_log_store(path: Path, out: Path, sizes: StoreSizes | None, on_progress: Progress) -> RepairReport:
    """Write the sound parts of the store at `path` to `out`. `sizes` overrides its file sizes.

    Raises `NotAStoreFile`, `Refused` and `OSError`. The damaged store is never changed.
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
        # No broker has it, or the system does not show.
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
    """Tell which queues to rebuild: deleted topics stay deleted."""
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
    """Tell when delayed messages are due: by their old entries, or by the default delay of their level."""

    def due_ms(queue_id: int, number: int, offset: int, stored_ms: int) -> int:
        code = queues.code(keys.key(DELAY_TOPIC, queue_id), number, offset)
        if code is not None and code >= stored_ms:
            return code
        return min(stored_ms + 1000 * _LEVELS_S[min(max(queue_id, 0), len(_LEVELS_S) - 1)], _MS_MAX)

    return due_ms
