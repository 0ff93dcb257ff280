"""The small files of a repaired store: copied, and brought into line with its log and queues."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from bmqctl.stores.rocketmq.check.progress import CHECKPOINT, read_checkpoint, read_epochs
from bmqctl.stores.rocketmq.read.files import ABORT, StoreFiles
from bmqctl.stores.rocketmq.read.tables import EPOCHS
from bmqctl.stores.rocketmq.read.topics import DELAY_TOPIC, TIMER_TOPIC
from bmqctl.stores.rocketmq.repair.parts import Note, RepairReport
from bmqctl.stores.rocketmq.repair.write import Derived
from formats.errors import FormatError
from formats.rocketmq.files.checkpoints import CHECKPOINT_BYTES, STORE_CHECKPOINT, TIMER_CHECKPOINT, StoreCheckpoint
from formats.rocketmq.files.epochs import encode_epochs
from formats.rocketmq.files.flush_mark import MARK_NAME
from formats.rocketmq.numbers import read_int
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.clients import CONSUMER_OFFSETS
from formats.rocketmq.remoting.bodies.delays import DELAY_OFFSETS

__all__ = ["copy_others", "write_checkpoint", "write_epochs"]

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
    """Write the checkpoint of a store that was stopped."""
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
    """Write the epochs that begin in the log, if the store had any."""
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
    """Copy all files that do not follow from the log; offsets beyond the ends of queues are set back."""
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
    _set_back(folder / "consumerOffset.json", _by_group, _group_end, ends, report)
    _set_back(folder / "delayOffset.json", _by_level, _level_end, ends, report)
    _set_timers_back(folder / "timercheck", ends.get((TIMER_TOPIC, 0), 0), report)


def _is_sound(path: Path) -> bool:
    try:
        text = path.read_bytes().decode()
        found = fastjson.loads_file(text) if text.strip() else {}
        if path.name.startswith("consumerOffset"):
            CONSUMER_OFFSETS.read(path.read_bytes())
        elif path.name.startswith("delayOffset"):
            DELAY_OFFSETS.read(path.read_bytes())
    except (OSError, UnicodeDecodeError, FormatError):
        return False
    return isinstance(found, dict)


def _check_json(path: Path, report: RepairReport) -> None:
    """Replace a file that cannot be read by the one before it, or leave it out."""
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


def _by_level(table: dict[Any, Any]) -> dict[Any, dict[Any, Any]]:
    return {"": table}


def _group_end(name: Any, number: Any, ends: Mapping[tuple[str, int], int]) -> int:
    queue_id = read_int(str(number))
    return 0 if queue_id is None else ends.get((str(name).partition("@")[0], queue_id), 0)


def _level_end(name: Any, number: Any, ends: Mapping[tuple[str, int], int]) -> int:
    level = read_int(str(number))
    return 0 if level is None else ends.get((DELAY_TOPIC, level - 1), 0)


def _set_back(
    path: Path,
    tables_of: Callable[[dict[Any, Any]], dict[Any, dict[Any, Any]]],
    end_of: Callable[[Any, Any, Mapping[tuple[str, int], int]], int],
    ends: Mapping[tuple[str, int], int],
    report: RepairReport,
) -> None:
    if not path.exists():
        return
    data = fastjson.loads_file(path.read_bytes().decode() or "{}")
    table = data.get("offsetTable")
    if not isinstance(table, dict):
        return
    changed = False
    for group, offsets in tables_of(table).items():
        for number, offset in offsets.items():
            # Brokers ignore an offset without a value, and do not read its name as a number.
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
