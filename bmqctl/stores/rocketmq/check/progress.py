"""The state of a stopped store, and the progress of brokers and groups, checked against the log and its queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from bmqctl.stores.rocketmq.faults import fault
from bmqctl.stores.rocketmq.read.files import StoreFiles, read_small
from bmqctl.stores.rocketmq.read.tables import EPOCHS
from bmqctl.stores.rocketmq.read.topics import DELAY_TOPIC, TIMER_TOPIC
from formats.bmq.stores.faults import Fault
from formats.errors import FormatError
from formats.rocketmq.files.checkpoints import CHECKPOINT_BYTES, STORE_CHECKPOINT, TIMER_CHECKPOINT, StoreCheckpoint
from formats.rocketmq.files.epochs import EpochEntry, decode_epochs
from formats.rocketmq.files.flush_mark import MARK_NAME, decode_mark
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.clients import CONSUMER_OFFSETS
from formats.rocketmq.remoting.bodies.delays import DELAY_OFFSETS

__all__ = [
    "CHECKPOINT",
    "check_checkpoint",
    "check_config",
    "check_epochs",
    "read_checkpoint",
    "read_epochs",
    "read_topics",
]

CHECKPOINT: Final = "checkpoint"
_TIMER_CHECKPOINT: Final = "timercheck"

Note = Callable[[Fault], None]
Ends = Mapping[tuple[str, int], int]


def _read(path: Path, note: Note, code: str) -> bytes | None:
    """Read a small file; None if there is none, or, with a fault, if it is unreadable."""
    try:
        return read_small(path)
    except OSError as error:
        note(fault(code, str(path), 0, error.strerror or str(error)))
        return None


def _ignore(found: Fault) -> None:
    """Drop a fault that is reported elsewhere."""


def read_checkpoint(store: StoreFiles) -> StoreCheckpoint | None:
    """The checkpoint; None if it cannot be read."""
    data = _read(store.root / CHECKPOINT, _ignore, "checkpoint")
    return None if data is None or len(data) != CHECKPOINT_BYTES else STORE_CHECKPOINT.unpack(data)


def read_epochs(store: StoreFiles) -> list[EpochEntry]:
    data = _read(store.root / EPOCHS, _ignore, "epoch-file")
    try:
        return [] if data is None else decode_epochs(data)
    except FormatError:
        return []


def check_checkpoint(store: StoreFiles, log_end: int, last_ms: int, note: Note) -> None:
    """Check the checkpoint, and our mark beside it, against a log whose last message was stored at `last_ms`."""
    path = store.root / CHECKPOINT
    data = _read(path, note, "checkpoint")
    if data is None:
        if not path.exists():
            note(fault("checkpoint", str(path), 0, "is missing"))
        return
    if len(data) != CHECKPOINT_BYTES:
        note(fault("checkpoint", str(path), 0, f"has {len(data)} bytes, not {CHECKPOINT_BYTES}"))
        return
    found = STORE_CHECKPOINT.unpack(data)
    for at, name in enumerate(("commit_log_ms", "consume_queue_ms", "index_ms")):
        said = found[at]
        if said < 0:
            note(fault("checkpoint", str(path), 8 * at, f"{name} is {said}"))
        elif said > last_ms:
            reason = f"{name} is {said}, later than the log's last message, stored at {last_ms}"
            note(fault("checkpoint-ahead", str(path), 8 * at, reason))
    for at, name in ((3, "master_flushed_offset"), (4, "confirm_offset")):
        if found[at] > log_end and not (name == "master_flushed_offset" and found[at] == (1 << 63) - 1):
            note(fault("checkpoint-ahead", str(path), 8 * at, f"{name} is {found[at]}, after the log's end {log_end}"))
    data = _read(store.root / MARK_NAME, note, "checkpoint")
    mark = None if data is None else decode_mark(data)
    if mark is not None and mark.stored_ms >= found.commit_log_ms and mark.log_end > log_end:
        reason = f"everything before {mark.log_end} had been flushed, but the log ends at {log_end}"
        note(fault("checkpoint-ahead", str(store.root / MARK_NAME), 8, reason))


def check_epochs(store: StoreFiles, log_end: int, note: Note) -> None:
    path = store.root / EPOCHS
    data = _read(path, note, "epoch-file")
    if data is None:
        return
    try:
        entries = decode_epochs(data)
    except FormatError as error:
        note(fault("epoch-file", str(path), 0, str(error)))
        return
    line = len(data.split(b"\n", 2)[0]) + len(data.split(b"\n", 2)[1]) + 2
    for entry in entries:
        if entry.start_offset > log_end:
            reason = f"epoch {entry.epoch} begins at {entry.start_offset}, after the log's end {log_end}"
            note(fault("epoch-offset", str(path), line, reason))
        line += len(f"{entry.epoch}-{entry.start_offset}\n")


def read_topics(store: StoreFiles) -> set[str] | None:
    """The topics that the broker knows; None if the files do not show them."""
    table = _table(store.config("topics.json"), "topicConfigTable", _ignore)
    return None if table is None else {name for name in table if isinstance(name, str)}


def check_config(store: StoreFiles, ends: Ends, note: Note) -> list[str]:
    """Check the files of the folder `config`, and their offsets against the queues; return the files read."""
    folder = store.root / "config"
    try:
        names = sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        note(fault("config-file", str(folder), 0, error.strerror or str(error)))
        return []
    read = [name for name in names if name.endswith(".json")]
    for name in read:
        _check_json(folder / name, note)
    _check_offsets(store, ends, note)
    _check_levels(store, ends, note)
    if _TIMER_CHECKPOINT in names:
        read.append(_TIMER_CHECKPOINT)
        _check_timers(folder / _TIMER_CHECKPOINT, ends, note)
    return [str(folder / name) for name in read]


def _check_json(path: Path, note: Note) -> None:
    data = _read(path, note, "config-file")
    if data is None:
        return
    try:
        text = data.decode()
        if text.strip():
            fastjson.loads_file(text)
    except UnicodeDecodeError as error:
        note(fault("config-file", str(path), error.start, "is not UTF-8"))
    except FormatError as error:
        note(fault("config-file", str(path), 0, str(error)))


def _table(path: Path, name: str, note: Note) -> dict[Any, Any] | None:
    data = _read(path, note, "config-file")
    try:
        found = None if data is None else fastjson.loads_file(data.decode())
    except (UnicodeDecodeError, FormatError):
        return None
    table = found.get(name) if isinstance(found, dict) else None
    return table if isinstance(table, dict) else None


def _check_offsets(store: StoreFiles, ends: Ends, note: Note) -> None:
    path = store.offsets
    data = _read(path, _ignore, "config-file")
    if not data:
        return
    try:
        table = CONSUMER_OFFSETS.read(data).all_offsets
    except FormatError as error:
        note(fault("config-file", str(path), 0, str(error)))
        return
    for name, progress in sorted(table.items()):
        topic, _, group = name.partition("@")
        for queue_id, offset in sorted(progress.items()):
            end = ends.get((topic, queue_id), 0)
            if offset < 0:
                reason = f"group {group} is at {offset} in {topic}/{queue_id}"
                note(fault("offset-invalid", str(path), 0, reason))
            elif offset > end:
                reason = f"group {group} is at {offset} in {topic}/{queue_id}, which ends at {end}"
                note(fault("offset-ahead", str(path), 0, reason))


def _check_levels(store: StoreFiles, ends: Ends, note: Note) -> None:
    path = store.config("delayOffset.json")
    data = _read(path, _ignore, "config-file")
    if not data:
        return
    try:
        table = DELAY_OFFSETS.read(data).offset_table
    except FormatError as error:
        note(fault("config-file", str(path), 0, str(error)))
        return
    for level, offset in sorted(table.items()):
        end = ends.get((DELAY_TOPIC, level - 1), 0)
        if offset > end:
            reason = f"level {level} is given out up to {offset}, its queue ends at {end}"
            note(fault("offset-ahead", str(path), 0, reason))


def _check_timers(path: Path, ends: Ends, note: Note) -> None:
    data = _read(path, note, "config-file")
    if data is None:
        return
    if len(data) < TIMER_CHECKPOINT.size:
        note(fault("config-file", str(path), 0, f"has {len(data)} bytes, and the front alone {TIMER_CHECKPOINT.size}"))
        return
    offset, end = TIMER_CHECKPOINT.unpack(data).queue_offset, ends.get((TIMER_TOPIC, 0), 0)
    if offset > end:
        reason = f"timer messages are taken in up to {offset}, their queue ends at {end}"
        note(fault("offset-ahead", str(path), 16, reason))
