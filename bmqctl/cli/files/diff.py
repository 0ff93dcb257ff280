"""`bmqctl journal diff`: where the replicas of a partition part."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bmqctl.common.render import (
    EXIT_FAULTS,
    Column,
    LateProgress,
    Output,
    OutputFormat,
    print_report,
    print_table,
    refuse,
    until_reader_leaves,
    wanted_format,
)
from bmqctl.stores.blazingmq.diff import Beyond, PartitionDiff, Replica, Status, compare, journals_of, open_replica
from bmqctl.stores.blazingmq.read.files import NotAStoreFile
from bmqctl.stores.blazingmq.read.times import shown_time
from bmqctl.stores.rocketmq.read.files import is_store
from formats.bmq.disk.journal import JournalOpRecord, QueueOpRecord, QueueOpType, Record, RecordType
from formats.bmq.disk.numbers import RecordNumber

__all__ = ["diff"]

MEANING = {
    Status.EQUAL: "equal",
    Status.A_AHEAD: "A is ahead: B can catch up by receiving the records beyond its end from A",
    Status.B_AHEAD: "B is ahead: A can catch up by receiving the records beyond its end from B",
    Status.DIVERGED: "they diverge: one of them must drop its records beyond the last common one",
    Status.ONLY_A: "only A has this partition",
    Status.ONLY_B: "only B has this partition",
}


def diff(
    a: Annotated[Path, typer.Argument(help="A store's directory, or a JOURNAL file.", show_default=False)],
    b: Annotated[
        Path,
        typer.Argument(
            help="The store or JOURNAL file of another node of the same cluster, or a copy.", show_default=False
        ),
    ],
    output: Output = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output json: one object.")] = False,
    limit: Annotated[
        int, typer.Option(min=0, help="Show at most this many records beyond the last common one, for each side.")
    ] = 10,
) -> None:
    """Compare two replicas of a store: the last record that they have in common, and what each has beyond it.

    Records are compared by their numbers (primary lease id and sequence number), in the newest journal of each
    partition. The offsets of payloads differ between nodes and are ignored; their checksums are compared. Records that
    a rollover dropped from one of the journals are not a difference.

    Stores of RocketMQ, two replicas of a broker or a broker and its copy, are compared by the bytes at the offsets of
    their commit logs; files that one of them has deleted already are not a difference. Their epochs, consume queues and
    the progress of groups are compared, too.

    With --output jsonl or csv each partition is a row, of RocketMQ the whole report.

    Examples:

        bmqctl journal diff node0/storage node1/storage

        bmqctl journal diff --json node0/storage node1/storage | jq '.partitions[] | select(.status == "diverged")'

        bmqctl journal diff broker-a/store broker-a-copy/store

        bmqctl journal diff --json master/store slave/store | jq '.first_difference.fields'

    Exit codes: 0 if the replicas are equal; 1 if not, or if a journal has slots, or a commit log places, that hold no
    record; 2 if one of them is not a store.
    """
    from bmqctl.cli.files import rocketmq_diff

    if _is_of_rocketmq(a, b):
        rocketmq_diff.diff(a, b, wanted_format(output, as_json), limit)
        return
    found = _compare(a, b, limit)
    equal = all(each.status is Status.EQUAL for each in found)
    damaged = [replica for each in found for replica in each.replicas if replica is not None and replica.unreadable]
    with until_reader_leaves():
        wanted = wanted_format(output, as_json)
        if wanted is OutputFormat.TABLE:
            _print(found)
        else:
            rows = [_as_json(each) for each in found]
            print_report({"equal": equal, "partitions": rows}, rows, _KEYS, wanted)
    for replica in damaged:
        typer.echo(
            f"bmqctl journal diff: {replica.path}: {replica.unreadable} slots hold no record and were skipped; "
            f"see bmqctl journal validate {replica.path}",
            err=True,
        )
    if not equal or damaged:
        raise typer.Exit(EXIT_FAULTS)


def _is_of_rocketmq(a: Path, b: Path) -> bool:
    """Return whether both paths are stores of RocketMQ; exit with one line if one of them is."""
    is_ours, is_theirs = is_store(a), is_store(b)
    if is_ours != is_theirs:
        store, rest = (a, b) if is_ours else (b, a)
        refuse("journal diff", f"{store} is a store of RocketMQ, and {rest} is none: nothing to compare")
    return is_ours


def _compare(a: Path, b: Path, limit: int) -> list[PartitionDiff]:
    found = []
    try:
        ours, theirs = journals_of(a), journals_of(b)
        if a.is_file() and b.is_file() and ours.keys() != theirs.keys():
            (one,), (other,) = ours, theirs
            refuse("journal diff", f"{a} is of partition {one}, {b} of partition {other}: nothing to compare")
        with LateProgress("comparing records") as on_progress:
            for partition_id in sorted(ours.keys() | theirs.keys()):
                pair = [open_replica(side[partition_id]) if partition_id in side else None for side in (ours, theirs)]
                one_, other_ = pair
                if one_ is not None and other_ is not None:
                    found.append(compare(one_, other_, limit, on_progress))
                else:
                    found.append(PartitionDiff(partition_id, (one_, other_), (Beyond(0), Beyond(0))))
    except NotAStoreFile as error:
        refuse("journal diff", str(error))
    except OSError as error:
        refuse("journal diff", f"{error.filename}: {error.strerror or error}")
    return found


def _as_json(found: PartitionDiff) -> dict[str, Any]:
    common = found.last_common
    offsets = found.last_common_offsets
    return {
        "partition_id": found.partition_id,
        "status": found.status.value,
        "common_records": found.common,
        "last_common": None
        if common is None or offsets is None
        else {
            **common._asdict(),
            "timestamp": found.last_common_timestamp,
            "a_offset": offsets[0],
            "b_offset": offsets[1],
        },
        **{
            name: None if replica is None else _side_json(replica, beyond)
            for name, replica, beyond in zip(("a", "b"), found.replicas, found.beyond, strict=True)
        },
    }


def _side_json(replica: Replica, beyond: Beyond) -> dict[str, Any]:
    return {
        "file": str(replica.path),
        "complete_from": _number(replica.complete_from) if replica.complete_from.primary_lease_id else None,
        "unreadable": replica.unreadable,
        "beyond": {
            "records": beyond.records,
            "different": beyond.different,
            "same": beyond.same,
            "types": dict(beyond.types),
            "messages": {replica.queue_names.get(key, key.hex().upper()): n for key, n in beyond.queues.items()},
            "first": _number(beyond.first),
            "last": _number(beyond.last),
            "samples": [_row(replica, offset, record) for offset, record in beyond.samples],
        },
    }


def _number(number: RecordNumber | None) -> dict[str, int] | None:
    return None if number is None else number._asdict()


def _row(replica: Replica, offset: int, record: Record) -> dict[str, Any]:
    row: dict[str, Any] = {
        "offset": offset,
        "type": RecordType(record.type).name,
        "primary_lease_id": record.primary_lease_id,
        "sequence_number": record.sequence_number,
        "timestamp": record.timestamp,
    }
    if not isinstance(record, JournalOpRecord):
        row["queue_key"] = record.queue_key.hex().upper()
        if record.queue_key in replica.queue_names:
            row["queue_uri"] = replica.queue_names[record.queue_key]
        if not isinstance(record, QueueOpRecord):
            row["guid"] = record.guid.hex().upper()
        elif record.queue_op_type in QueueOpType._value2member_map_:
            row["queue_op_type"] = QueueOpType(record.queue_op_type).name
    return row


_KEYS = ("partition_id", "status", "common_records", "last_common", "a", "b")
_COLUMNS = [
    Column("side", "side", 4),
    Column("offset", "offset", 12, right=True),
    Column("type", "type", 10),
    Column("number", "lease-sequence", 16, right=True),
    Column("time", "time", 20),
    Column("guid", "guid", 32),
    Column("queue", "queue"),
]


def _print(found: list[PartitionDiff]) -> None:
    from bmqctl.common.tables import ResultConsole

    console = ResultConsole()
    for each in found:
        console.print(f"partition {each.partition_id}: {MEANING[each.status]}")
        for name, replica, beyond in zip("AB", each.replicas, each.beyond, strict=True):
            if replica is not None:
                console.print(f"  {name} {replica.path}: {_beyond(replica, beyond, each)}", soft_wrap=True)
        if each.last_common is not None and each.last_common_offsets is not None:
            a, b = each.last_common_offsets
            console.print(
                f"  last common record: {each.last_common} of {shown_time(each.last_common_timestamp or 0)}, "
                f"at {a} in A and {b} in B; {each.common} in common",
                soft_wrap=True,
            )
        elif None not in each.replicas:
            console.print("  no record in common")
        rows = [
            {
                **_row(replica, offset, record),
                "side": name,
                "number": f"{record.primary_lease_id}-{record.sequence_number}",
                "time": shown_time(record.timestamp),
                "queue": _queue(replica, record),
            }
            for name, replica, beyond in zip("AB", each.replicas, each.beyond, strict=True)
            if replica is not None
            for offset, record in beyond.samples
        ]
        if rows:
            print_table(rows, _COLUMNS, console)
            hidden = sum(beyond.records for beyond in each.beyond) - len(rows)
            if hidden:
                console.print(f"  {hidden} more records beyond are not shown (--limit)")


def _beyond(replica: Replica, beyond: Beyond, found: PartitionDiff) -> str:
    if None in found.replicas:
        return "not compared"
    rolled_over = f", rolled over at {replica.complete_from}" if replica.complete_from.primary_lease_id else ""
    if not beyond.records:
        return f"nothing beyond{rolled_over}"
    kinds = ", ".join(f"{count} {kind}" for kind, count in beyond.types.items())
    different = (
        f"; {beyond.different} under numbers that stand for other records on the other side" if beyond.different else ""
    )
    same = f"; {beyond.same} records after the divergence are equal" if beyond.same else ""
    return f"{beyond.records} beyond, {beyond.first} to {beyond.last} ({kinds}){different}{same}{rolled_over}"


def _queue(replica: Replica, record: Record) -> str:
    if isinstance(record, JournalOpRecord):
        return ""
    return replica.queue_names.get(record.queue_key, record.queue_key.hex().upper())
