"""`bmqctl journal diff` on stores of RocketMQ: where two replicas of a broker part."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer

from bmqctl.cli.files.printing import size_text, stopped_by
from bmqctl.common.refusal import say
from bmqctl.common.render import (
    EXIT_FAULTS,
    Column,
    LateProgress,
    OutputFormat,
    print_report,
    print_table,
    until_reader_leaves,
)
from bmqctl.common.tables import ResultConsole
from bmqctl.stores.blazingmq.read.columns import Row
from bmqctl.stores.rocketmq.diff import StoreDiff, compare_stores
from bmqctl.stores.rocketmq.dump.rows import TABLE, shown_row
from bmqctl.stores.rocketmq.log_diff import Beyond, Difference, Replica, Status
from bmqctl.stores.rocketmq.queue_diff import QueueDiff, QueueSide
from bmqctl.stores.rocketmq.read.files import StoreFiles, open_store
from formats.rocketmq.files.epochs import EpochEntry

__all__ = ["diff"]

COMMAND: Final = "journal diff"
_MEANING: Final = {
    Status.EQUAL: "equal",
    Status.A_AHEAD: "A is ahead: B can catch up by receiving the records beyond its end from A",
    Status.B_AHEAD: "B is ahead: A can catch up by receiving the records beyond its end from B",
    Status.DIVERGED: "they diverge: one of them must drop its records beyond the last common one",
    Status.APART: "one begins after the end of the other: there is nothing to compare",
}


class _Side(NamedTuple):
    """A store with its name here."""

    name: str
    root: Path
    replica: Replica
    beyond: Beyond
    epochs: list[EpochEntry] | None


def diff(a: Path, b: Path, wanted: OutputFormat, limit: int) -> None:
    """Compare the stores that the paths name or lie in; exit with code 1 if they differ."""
    with stopped_by(COMMAND, a):
        stores = open_store(a), open_store(b)
        with LateProgress("comparing logs") as on_progress:
            found = compare_stores(*stores, limit, on_progress)
    sides = _sides(stores, found)
    with until_reader_leaves():
        if wanted is OutputFormat.TABLE:
            _print(found, sides, limit)
        else:
            report = _as_json(found, sides)
            print_report(report, [report], report, wanted)
    for side in sides:
        if side.replica.faults:
            say(
                COMMAND,
                f"{side.root}: {side.replica.faults} places hold no record and were skipped; "
                f"see bmqctl journal dump {side.root}",
            )
    for fault in found.faults:
        say(COMMAND, f"left out: {fault}")
    if not found.is_equal or found.faults or any(side.replica.faults for side in sides):
        raise typer.Exit(EXIT_FAULTS)


def _sides(stores: tuple[StoreFiles, StoreFiles], found: StoreDiff) -> list[_Side]:
    parts = zip("AB", stores, found.log.replicas, found.log.beyond, found.epochs, strict=True)
    return [_Side(name, store.root, replica, beyond, epochs) for name, store, replica, beyond, epochs in parts]


def _as_json(found: StoreDiff, sides: Iterable[_Side]) -> dict[str, Any]:
    log, parted = found.log, found.log.first_difference
    return {
        "equal": found.is_equal,
        "status": log.status.value,
        "compared_from": log.compared_from,
        "common_end": log.common_end,
        "last_common": log.last_common,
        "common_epoch": None if found.common_epoch is None else found.common_epoch._asdict(),
        "contradicts_epochs": found.contradicts_epochs,
        "first_difference": None if parted is None else _difference_json(parted),
        **{side.name.lower(): _side_json(side) for side in sides},
        "queues": [_queue_json(queue) for queue in found.queues],
        "progress": [
            {"group": each.group, "topic": each.topic, "queue_id": each.queue_id, **_named(each.offsets)}
            for each in found.progress
        ],
        "delays": [{"level": each.level, **_named(each.offsets)} for each in found.delays],
        "faults": found.faults,
    }


def _named(values: Iterable[Any]) -> dict[str, Any]:
    return dict(zip("ab", values, strict=True))


def _difference_json(parted: Difference) -> dict[str, Any]:
    return {
        "offset": parted.offset,
        "files": _named(None if path is None else str(path) for path in parted.files),
        "byte": parted.byte,
        "fields": {name: _named(values) for name, values in parted.fields.items()},
        **_named(parted.records),
    }


def _side_json(side: _Side) -> dict[str, Any]:
    beyond = side.beyond
    return {
        "store": str(side.root),
        "begin": side.replica.begin,
        "end": side.replica.end,
        "places_without_record": side.replica.faults,
        "epochs": None if side.epochs is None else [entry._asdict() for entry in side.epochs],
        "beyond": {
            "records": beyond.records,
            "size": beyond.size,
            "different": beyond.different,
            "same": beyond.same,
            "first": beyond.first,
            "last": beyond.last,
            "queues": [
                {"topic": topic, "queue_id": queue_id, "records": records, "size": size}
                for (topic, queue_id), (records, size) in sorted(beyond.queues.items())
            ],
            "records_of_other_queues": beyond.others,
            "samples": beyond.samples,
        },
    }


def _queue_json(queue: QueueDiff) -> dict[str, Any]:
    return {
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "different": queue.different,
        "first": queue.first,
        **_named(
            None
            if side is None
            else {**side._asdict(), "entry": None if entry is None else dict(zip(_ENTRY, entry, strict=True))}
            for side, entry in zip(queue.sides, queue.entries, strict=True)
        ),
    }


_ENTRY: Final = ("physical_offset", "size", "tags_code")
_SAMPLE_COLUMNS: Final = [Column("side", "side", 4), *TABLE]
_FIELD_COLUMNS: Final = [Column("field", "field", 28), Column("a", "A", 40), Column("b", "B")]
_BEYOND_COLUMNS: Final = [
    Column("side", "side", 4),
    Column("topic", "topic", 36),
    Column("queue_id", "queue", 5, right=True),
    Column("records", "records", 10, right=True),
    Column("size", "stored", 10, right=True),
]
_QUEUE_COLUMNS: Final = [
    Column("topic", "topic", 36),
    Column("queue_id", "queue", 5, right=True),
    Column("a", "entries of A", 20),
    Column("b", "entries of B", 20),
    Column("alone", "only in A, B", 16),
    Column("different", "different", 9, right=True),
    Column("first", "first", 10, right=True),
]
_PROGRESS_COLUMNS: Final = [
    Column("group", "group", 28),
    Column("topic", "topic", 36),
    Column("queue_id", "queue", 5, right=True),
    Column("a", "A", 12, right=True),
    Column("b", "B", 12, right=True),
]


def _print(found: StoreDiff, sides: list[_Side], limit: int) -> None:
    console = ResultConsole()
    console.print(_MEANING[found.log.status])
    for side in sides:
        epochs = ", ".join(f"{entry.epoch} from {entry.start_offset}" for entry in side.epochs or ())
        console.print(
            f"  {side.name} {side.root}: offsets {side.replica.begin} to {side.replica.end}"
            + (f"; epochs {epochs}" if epochs else "")
            + f"; {_beyond(side.beyond)}",
            soft_wrap=True,
        )
    console.print(f"  {_common(found)}", soft_wrap=True)
    if found.common_epoch is not None:
        epoch, end = found.common_epoch
        console.print(f"  last common point by the epochs: {end}, in epoch {epoch}", soft_wrap=True)
    if found.contradicts_epochs:
        console.print("  they part before it: one of them was written by other means than replication")
    if found.log.first_difference is not None:
        _print_difference(console, found.log.first_difference)
    _print_beyond(console, sides, limit)
    _print_tables(console, found, limit)


def _beyond(beyond: Beyond) -> str:
    if not beyond.records:
        return "nothing beyond"
    different = f"; {beyond.different} at offsets of other records on the other side" if beyond.different else ""
    same = f"; {beyond.same} records after the divergence are equal" if beyond.same else ""
    return f"{beyond.records} records beyond, {size_text(beyond.size)}{different}{same}"


def _common(found: StoreDiff) -> str:
    last = found.log.last_common
    if last is None:
        return "no record in common"
    place = f"of {last['topic']}, queue {last['queue_id']}, number {last['queue_offset']}"
    stored = f", stored at {last['stored']}" if "stored" in last else ""
    return f"last common record: at {last['offset']}, {place}{stored}; both are the same up to {found.log.common_end}"


def _print_difference(console: ResultConsole, parted: Difference) -> None:
    missing = [name for name, record in zip("AB", parted.records, strict=True) if record is None]
    if missing:
        console.print(f"  first difference: at {parted.offset}, where {missing[0]} has no record", soft_wrap=True)
    else:
        console.print(f"  first difference: at {parted.offset}, from byte {parted.byte} of the record", soft_wrap=True)
    for name, path in zip("AB", parted.files, strict=True):
        if path is not None:
            console.print(f"    {name} {path}", soft_wrap=True)
    if parted.fields:
        console.print()
        rows = ({"field": name, **_named(map(_text, values))} for name, values in parted.fields.items())
        print_table(rows, _FIELD_COLUMNS, console)


def _text(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value


def _print_beyond(console: ResultConsole, sides: list[_Side], limit: int) -> None:
    rows = [
        {"side": side.name, "topic": topic, "queue_id": queue_id, "records": records, "size": size_text(size)}
        for side in sides
        for (topic, queue_id), (records, size) in sorted(side.beyond.queues.items())
    ]
    _print_rows(console, rows, _BEYOND_COLUMNS, "queues with records beyond", limit)
    samples: list[Row] = [{**shown_row(row), "side": side.name} for side in sides for row in side.beyond.samples]
    if samples:
        console.print()
        print_table(samples, _SAMPLE_COLUMNS, console)
        hidden = sum(side.beyond.records for side in sides) - len(samples)
        if hidden:
            console.print(f"  {hidden} more records beyond are not shown (--limit)")


def _print_tables(console: ResultConsole, found: StoreDiff, limit: int) -> None:
    queues = [
        {
            **queue._asdict(),
            **_named(map(_span, queue.sides)),
            "alone": ", ".join(str(0 if side is None else side.alone) for side in queue.sides),
        }
        for queue in found.queues
    ]
    _print_rows(console, queues, _QUEUE_COLUMNS, "consume queues that differ", limit)
    progress: list[dict[str, Any]] = [{**each._asdict(), **_named(each.offsets)} for each in found.progress]
    progress += [{"group": "", "topic": f"delay level {each.level}", **_named(each.offsets)} for each in found.delays]
    _print_rows(console, progress, _PROGRESS_COLUMNS, "progress that differs", limit)


def _span(side: QueueSide | None) -> str:
    return "none" if side is None else f"{side.begin} to {side.end}"


def _print_rows(
    console: ResultConsole, rows: list[dict[str, Any]], columns: list[Column], title: str, limit: int
) -> None:
    if rows:
        console.print()
        print_table(rows[:limit], columns, console, title)
        if len(rows) > limit:
            console.print(f"  {len(rows) - limit} more are not shown (--limit)")
