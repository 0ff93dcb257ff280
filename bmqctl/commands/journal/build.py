"""`bmqctl journal build`: the files of a store from JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated

import typer

from bmqctl.journal.build import BadLine, StoreBuilder, build_store
from bmqctl.render import refuse

__all__ = ["build"]


def build(
    lines: Annotated[Path, typer.Argument(help="JSON lines; - for standard input.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="New or empty directory for the files.", show_default=False)],
    start: Annotated[
        datetime,
        typer.Option(help="Time of the first record unless a line gives it, and time in the files' names; UTC."),
    ] = datetime(2026, 1, 1),
) -> None:
    """Write JOURNAL, DATA, QLIST and ledger files from JSON lines, one record a line: a store for a test.

    The lines have the form that `journal dump --output json-line` prints, but may omit fields. Only `type` and the
    queue or message that the record is about are required: a message without a GUID gets one, a queue that no line
    creates is created, sequence numbers are continued, and offsets and checksums are computed. The same lines always
    make the same bytes.

    Examples:

        echo '{"type": "MESSAGE", "queue_uri": "bmq://bmq.test.persistent.priority/q", "payload": "hello"}' |
        bmqctl journal build - --out store

        bmqctl journal build records.jsonl --out store

    Some lines:

        {"type": "QUEUE_OP", "queue_uri": "bmq://my.fanout/q", "apps": ["foo", "bar"]}

        {"type": "MESSAGE", "queue_uri": "bmq://my.fanout/q", "guid": "00000000000000000000000000000001",
        "payload_hex": "00FF", "properties": {"n": 1, "raw": {"type": "BINARY", "value": "0A"}}, "compression": "ZLIB"}

        {"type": "CONFIRM", "queue_uri": "bmq://my.fanout/q", "app_id": "foo",
        "guid": "00000000000000000000000000000001"}

    Exit codes: 0; 2 if a line is not a valid record, or the directory cannot be used.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            refuse("journal build", f"{out} is not empty: name a new directory")
        with _open(lines) as stream:
            built = build_store(stream, out, int(start.replace(tzinfo=start.tzinfo or UTC).timestamp()))
    except OSError as error:
        refuse("journal build", f"{error.filename or out}: {error.strerror or error}")
    except UnicodeDecodeError as error:
        refuse("journal build", f"{lines}: not UTF-8 at byte {error.start}")
    except BadLine as error:
        refuse("journal build", f"{lines}: {error}")
    _print(built)


@contextmanager
def _open(lines: Path) -> Iterator[IO[str]]:
    if str(lines) == "-":
        yield sys.stdin
        return
    with lines.open(encoding="utf-8") as stream:
        yield stream


def _print(built: StoreBuilder) -> None:
    for partition in built.partitions.values():
        typer.echo(
            f"partition {partition.partition_id}: {partition.records} records, {partition.messages} messages, "
            f"{len(partition.queues)} queues"
        )
    typer.echo(f"{built.directory}: {len(list(built.directory.iterdir()))} files")
