"""`bmqctl journal build`: the files of a store of BlazingMQ or RocketMQ from JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain, repeat
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from bmqctl.common.render import refuse
from bmqctl.stores.rocketmq.lines import BadMessage

if TYPE_CHECKING:
    from bmqctl.stores.blazingmq.build import StoreBuilder
    from bmqctl.stores.rocketmq.build import LogStoreBuilder

__all__ = ["build"]


Config = Annotated[
    Path | None,
    typer.Option(
        help="RocketMQ: configuration file of the broker that is to serve the store, for the sizes of files.",
        show_default=False,
    ),
]


def build(
    lines: Annotated[Path, typer.Argument(help="JSON lines; - for standard input.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="New or empty directory for the files.", show_default=False)],
    start: Annotated[
        datetime,
        typer.Option(help="Time of the first record unless a line gives it, and time in the files' names; UTC."),
    ] = datetime(2026, 1, 1),
    config: Config = None,
) -> None:
    """Write the files of a store of BlazingMQ or RocketMQ from JSON lines, one record a line: a store for a test.

    The lines have the form that `journal dump --output json-line` prints, but may omit fields. Only `type` and the
    queue or message that the record is about are required: a message without a GUID gets one, a queue that no line
    creates is created, sequence numbers are continued, and offsets and checksums are computed. The same lines always
    make the same bytes.

    Lines of RocketMQ have a `topic`, and no `type`: only the topic is required. Commit log, consume queues, index,
    checkpoint and topics are what a broker would have written; progress of groups is not. The file sizes are the
    original's defaults, or those of --config. A body may be given as `payload`, `payload_hex`, or, as it is stored,
    `body_hex`. Where a line has `offset`, `queue_offset`, `size` or `body_crc`, they have to be right.

    Examples:

        echo '{"type": "MESSAGE", "queue_uri": "bmq://bmq.test.persistent.priority/q", "payload": "hello"}' |
        bmqctl journal build - --out store

        bmqctl journal build records.jsonl --out store

        bmqctl journal dump --output json-line --payload stored --payload-limit 0 rocketmq-store |
        bmqctl journal build - --out copy --config broker.conf

    Some lines:

        {"type": "QUEUE_OP", "queue_uri": "bmq://my.fanout/q", "apps": ["foo", "bar"]}

        {"type": "MESSAGE", "queue_uri": "bmq://my.fanout/q", "guid": "00000000000000000000000000000001",
        "payload_hex": "00FF", "properties": {"n": 1, "raw": {"type": "BINARY", "value": "0A"}}, "compression": "ZLIB"}

        {"type": "CONFIRM", "queue_uri": "bmq://my.fanout/q", "app_id": "foo",
        "guid": "00000000000000000000000000000001"}

        {"topic": "orders", "queue_id": 1, "payload": "hello", "properties": {"TAGS": "paid", "KEYS": "order-7"}}

    Exit codes: 0; 2 if a line is not a valid record, or the directory cannot be used.
    """
    from bmqctl.stores.blazingmq.build import build_store
    from bmqctl.stores.rocketmq.build import build_log_store, read_build_options

    with _refusing(lines, out):
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            refuse("journal build", f"{out} is not empty: name a new directory")
        start_s = int(start.replace(tzinfo=start.tzinfo or UTC).timestamp())
        with _open(lines) as stream:
            every, is_rocketmq = _look(stream)
            if is_rocketmq:
                _print_log_store(build_log_store(every, out, 1000 * start_s, read_build_options(config)))
                return
            if config is not None:
                refuse("journal build", "--config is for lines of RocketMQ, which have a topic")
            built = build_store(every, out, start_s)
    _print(built)


@contextmanager
def _refusing(lines: Path, out: Path) -> Iterator[None]:
    """Exit with one line for lines that are no records, and a directory that cannot be used."""
    from bmqctl.stores.blazingmq.build import BadLine

    try:
        yield
    except OSError as error:
        refuse("journal build", f"{error.filename or out}: {error.strerror or error}")
    except UnicodeDecodeError as error:
        refuse("journal build", f"{lines}: not UTF-8 at byte {error.start}")
    except (BadLine, BadMessage) as error:
        refuse("journal build", f"{lines}: {error}")


def _look(stream: IO[str]) -> tuple[Iterable[str], bool]:
    """Return all lines, and whether they describe messages of RocketMQ, by the first that is not empty."""
    empty = 0
    for first in stream:
        if first.strip():
            break
        empty += 1
    else:
        return (), False
    try:
        line = json.loads(first)
    except (ValueError, RecursionError):
        line = None
    is_rocketmq = isinstance(line, dict) and "type" not in line and ("topic" in line or "fault" in line)
    return chain(repeat("", empty), [first], stream), is_rocketmq


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


def _print_log_store(built: LogStoreBuilder) -> None:
    for topic, count in built.messages.items():
        typer.echo(f"topic {topic}: {count} messages, {built.queue_counts[topic]} queues")
    files = sum(path.is_file() for path in built.directory.rglob("*"))
    typer.echo(f"{built.directory}: {files} files, commit log up to offset {built.log_end}")
