"""`bmqctl journal summary`: count a store's messages by queue and app, with their ages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bmqctl.cli.arguments import given_options
from bmqctl.cli.files.printing import rate_text, size_text, stopped_by
from bmqctl.common.installed import installing
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
from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.blazingmq.read.times import shown_time
from bmqctl.stores.rocketmq.read.files import is_store

if TYPE_CHECKING:
    from bmqctl.stores.blazingmq.summary.summary import AppSummary, PartitionSummary, QueueSummary, StoreSummary

__all__ = ["summary"]

TOP_IN_TABLE = 40


class Order(StrEnum):
    OUTSTANDING = "outstanding"
    MESSAGES = "messages"
    BYTES = "bytes"
    OLDEST = "oldest"
    ARRIVALS = "arrivals"
    REMOVALS = "removals"
    NAME = "name"


_KEYS: dict[Order, Callable[[QueueSummary], Any]] = {
    Order.OUTSTANDING: lambda queue: (-queue.outstanding, -queue.messages),
    Order.MESSAGES: lambda queue: -queue.messages,
    Order.BYTES: lambda queue: -(queue.stored_bytes or 0),
    Order.OLDEST: lambda queue: (queue.oldest_outstanding is None, queue.oldest_outstanding),
    Order.ARRIVALS: lambda queue: -queue.arrivals_per_s,
    Order.REMOVALS: lambda queue: -queue.removals_per_s,
    Order.NAME: lambda queue: (queue.queue_uri is None, queue.queue_uri or queue.queue_key),
}


def summary(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="A store's directory, or a JOURNAL file.", show_default=False)],
    output: Output = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output json: one object.")] = False,
    queue: Annotated[
        str | None, typer.Option(help="Only queues whose URI contains this, or with this key.", show_default=False)
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="RocketMQ: only topics whose name contains this.", show_default=False)
    ] = None,
    sort: Annotated[
        Order, typer.Option(help="Order of the queues: the largest or the oldest first.")
    ] = Order.OUTSTANDING,
    top: Annotated[
        int | None,
        typer.Option(
            min=0,
            help=f"List at most this many queues, or topics. Tables have {TOP_IN_TABLE}, JSON all.",
            show_default=False,
        ),
    ] = None,
    payload_bytes: Annotated[
        bool | None,
        typer.Option(
            "--payload-bytes/--no-payload-bytes",
            help="Read the messages' sizes from the DATA file; by default, if it has at most 1 GiB.",
            show_default=False,
        ),
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw arrivals and backlog over time.")] = False,
    plot_out: Annotated[
        Path | None,
        typer.Option(
            help="Draw arrivals, removals and backlog to this file: .png or .svg.", metavar="FILE", show_default=False
        ),
    ] = None,
) -> None:
    """Count the messages of a store: numbers, sizes, rates, what waits for whom, and since when.

    A store of BlazingMQ: by queue and app. Of each partition, the command reads the files from which a broker would
    recover; a broker may be using them. Rates are averages over the journal, without the records that a rollover
    carried over. An app's last confirm of a message has no record, but counts as confirmed. Plots show all queues, or
    those that --queue selects.

    A store of RocketMQ, ours or Apache's: by topic, and by group its lag in each topic, retries and dead letters,
    delayed and half messages, and where the commit log ends.

    With --output jsonl or csv each queue is a row, of RocketMQ each topic; --output json has all the rest, too.

    Examples:

        bmqctl journal summary store/

        bmqctl journal summary --queue my.domain/orders --plot store/

        bmqctl journal summary --json --top 10 --sort oldest store/ | jq -r '.queues[].queue_uri'

        bmqctl journal summary --json rocketmq-store/ | jq '.groups[] | select(.lag > 0)'

    Exit codes: 0; 1 if records cannot be read or contradict each other; 2 if there is no store.
    """
    from bmqctl.cli.files import rocketmq_summary
    from bmqctl.stores.blazingmq.read.losses import file_losses
    from bmqctl.stores.blazingmq.summary.summary import QueueSummary, summarize

    if is_store(path):
        rocketmq_summary.print_summary(context, path, wanted_format(output, as_json))
        return
    for option in given_options(context, rocketmq_summary.OWN_OPTIONS):
        refuse("journal summary", f"{path} is no store of RocketMQ, and {option} is for these")
    _check_plots(plot, plot_out)
    with stopped_by("journal summary", path), LateProgress("reading records") as on_progress:
        found = summarize(path, on_progress, select=queue, read_data=payload_bytes)
        account = file_losses(path)
    if queue is not None and not found.queues:
        refuse("journal summary", f"--queue {queue}: no queue in {path} has this in its URI, or as its key")
    queues = sorted(found.queues, key=_KEYS[sort])
    with until_reader_leaves():
        wanted = wanted_format(output, as_json)
        if wanted is OutputFormat.TABLE:
            _print_tables(found, queues[: TOP_IN_TABLE if top is None else top])
        else:
            report = {**_as_json(found, queues[:top]), "missing": account.places}
            print_report(report, report["queues"], [field.name for field in fields(QueueSummary)], wanted)
        if plot:
            _draw(found)
    if plot_out is not None:
        _save(found, plot_out, path if queue is None else f"{path}: {queue}")
    _tell_faults(found, path, account)


def _check_plots(plot: bool, plot_out: Path | None) -> None:
    """Check, before any work, that the requested plots can be made."""
    from bmqctl.stores.blazingmq.summary.plots import PICTURE_SUFFIXES

    for wanted, option, package in ((plot, "--plot", "plotext"), (plot_out is not None, "--plot-out", "matplotlib")):
        try:
            if wanted:
                import_module(package)
        except ImportError:
            refuse("journal summary", f"{option} needs {package}, of the extra `plots`: {installing('plots')}")
    if plot_out is not None and plot_out.suffix not in PICTURE_SUFFIXES:
        refuse("journal summary", f"--plot-out {plot_out}: the name must end with {' or '.join(PICTURE_SUFFIXES)}")


def _draw(found: StoreSummary) -> None:
    from bmqctl.common.tables import ResultConsole
    from bmqctl.stores.blazingmq.summary.plots import draw_plot

    if not len(found.series.arrivals):
        typer.echo("bmqctl journal summary: there are no messages to plot", err=True)
        return
    console = ResultConsole()
    sys.stdout.write(
        draw_plot(found.series, console.width, colours=console.is_terminal and not console.no_color) + "\n"
    )


def _save(found: StoreSummary, path: Path, title: Path | str) -> None:
    from bmqctl.stores.blazingmq.summary.plots import save_plot

    if not len(found.series.arrivals):
        typer.echo(f"bmqctl journal summary: there are no messages to plot; {path} is not written", err=True)
        return
    try:
        save_plot(found.series, path, str(title))
    except OSError as error:
        refuse("journal summary", f"--plot-out {path}: {error.strerror or error}")


def _tell_faults(found: StoreSummary, path: Path, account: Account) -> None:
    for partition in found.partitions:
        misfits = sum(partition.misfits.values())
        if partition.unreadable or misfits:
            typer.echo(
                f"bmqctl journal summary: {partition.journal}: {partition.unreadable} records cannot be read, "
                f"{misfits} contradict others; for each of them: bmqctl journal validate {path}",
                err=True,
            )
    for fault in found.faults:
        typer.echo(f"bmqctl journal summary: left out: {fault}", err=True)
    for place in account.places:
        typer.echo(f"bmqctl journal summary: {place}", err=True)
    is_misfit = any(each.unreadable or any(each.misfits.values()) for each in found.partitions)
    if found.faults or is_misfit or not account.is_sound:
        raise typer.Exit(EXIT_FAULTS)


def _as_json(found: StoreSummary, queues: list[QueueSummary]) -> dict[str, Any]:
    last = _last_times(found)
    series = found.series
    return {
        "partitions": [_partition_json(partition) for partition in found.partitions],
        "totals": _totals(found),
        "queues": [_queue_json(queue, last[queue.partition_id]) for queue in queues],
        "faults": found.faults,
        "series": {
            "start": _event(series.start_s if len(series.arrivals) else None, None),
            "step_s": series.step_s,
            "arrivals": series.arrivals.tolist(),
            "removals": series.removals.tolist(),
            "backlog": series.backlog.tolist(),
        },
    }


def _last_times(found: StoreSummary) -> dict[int, int | None]:
    return {partition.partition_id: partition.last_timestamp for partition in found.partitions}


def _partition_json(partition: PartitionSummary) -> dict[str, Any]:
    out = asdict(partition)
    out["first"], out["last"] = (_event(out.pop(f"{which}_timestamp"), None) for which in ("first", "last"))
    for lease in out["leases"]:
        lease["first"], lease["last"] = (_event(lease.pop(f"{which}_timestamp"), None) for which in ("first", "last"))
    return out


def _queue_json(queue: QueueSummary, last: int | None) -> dict[str, Any]:
    out = asdict(queue)
    for each in (out, *out["apps"]):
        each["oldest_outstanding"] = _event(each["oldest_outstanding"], last)
    return out


def _event(seconds: int | None, last: int | None) -> dict[str, Any] | None:
    """Format a time; with `last`, the time of the partition's last record, include the age then."""
    if seconds is None:
        return None
    age = {} if last is None else {"age_s": last - seconds}
    return {"timestamp": seconds, "time": _time(seconds), **age}


def _totals(found: StoreSummary) -> dict[str, Any]:
    """Sum over the selected queues; None if one of them has no figure."""
    out: dict[str, Any] = {"queues": len(found.queues)}
    for name in ("messages", "carried_over", "stored_bytes", "payload_bytes", "outstanding", "outstanding_bytes"):
        values = [getattr(queue, name) for queue in found.queues]
        out[name] = None if None in values else sum(values)
    out["partially_confirmed"] = sum(queue.partially_confirmed for queue in found.queues)
    ends = found.queues[0].ended if found.queues else {}
    out["ended"] = {end: sum(queue.ended[end] for queue in found.queues) for end in ends}
    return out


_PARTITION_COLUMNS = [
    Column("partition_id", "partition", 9, right=True),
    Column("count", "records", 11, right=True),
    Column("MESSAGE", "messages", 10, right=True),
    Column("CONFIRM", "confirms", 10, right=True),
    Column("DELETION", "deletions", 10, right=True),
    Column("QUEUE_OP", "queue ops", 9, right=True),
    Column("JOURNAL_OP", "sync points", 11, right=True),
    Column("leases", "leases", 6, right=True),
    Column("first", "first record", 20),
    Column("last", "last record", 20),
    Column("journal", "journal"),
]
_QUEUE_COLUMNS = [
    Column("partition_id", "part", 4, right=True),
    Column("messages", "messages", 10, right=True),
    Column("bytes", "stored", 9, right=True),
    Column("arrivals", "in/s", 8, right=True),
    Column("removals", "out/s", 8, right=True),
    Column("outstanding", "waiting", 9, right=True),
    Column("oldest", "oldest", 9, right=True),
    Column("confirmed", "confirmed", 10, right=True),
    Column("expired", "expired", 8, right=True),
    Column("no_quorum", "no quorum", 9, right=True),
    Column("purged", "purged", 8, right=True),
    Column("name", "queue, app"),
]


def _print_tables(found: StoreSummary, queues: list[QueueSummary]) -> None:
    from bmqctl.common.tables import ResultConsole

    console = ResultConsole()
    print_table(map(_partition_row, found.partitions), _PARTITION_COLUMNS, console)
    console.print()
    last = _last_times(found)
    print_table(
        (row for queue in queues for row in _queue_rows(queue, last[queue.partition_id])), _QUEUE_COLUMNS, console
    )
    hidden = len(found.queues) - len(queues)
    if hidden:
        console.print(f"and {hidden} more queues (--top)")
    console.print()
    totals = _totals(found)
    payload = "" if totals["payload_bytes"] is None else f" ({size_text(totals['payload_bytes'])} of payload)"
    console.print(
        f"{totals['messages']} messages in {totals['queues']} queues, "
        f"{size_text(totals['stored_bytes'])} stored{payload}; "
        f"{totals['outstanding']} wait, {totals['partially_confirmed']} of them confirmed by some of their apps"
    )


def _partition_row(partition: PartitionSummary) -> dict[str, Any]:
    return {
        **partition.records,
        "partition_id": partition.partition_id,
        "count": sum(partition.records.values()),
        "leases": partition.lease_count,
        "first": _time(partition.first_timestamp),
        "last": _time(partition.last_timestamp),
        "journal": partition.journal,
    }


def _queue_rows(queue: QueueSummary, last: int | None) -> Iterator[dict[str, Any]]:
    """Yield a row for the queue, and one for each app if they are shown separately."""
    name = queue.queue_uri or f"? (key {queue.queue_key})"
    yield {
        "partition_id": queue.partition_id,
        "messages": queue.messages,
        "bytes": size_text(queue.stored_bytes),
        "arrivals": rate_text(queue.arrivals_per_s),
        "removals": rate_text(queue.removals_per_s),
        "outstanding": queue.outstanding,
        "oldest": _age(queue.oldest_outstanding, last),
        "confirmed": queue.ended["confirmed"],
        "expired": queue.ended["expired"],
        "no_quorum": queue.ended["no_quorum"],
        "purged": queue.ended["purged"] + queue.ended["queue_deleted"],
        "name": f"{name} (deleted)" if queue.deleted else name,
    }
    if len(queue.apps) > 1:
        yield from (_app_row(app, last) for app in queue.apps)


def _app_row(app: AppSummary, last: int | None) -> dict[str, Any]:
    noted = [f"{count} {name}" for count, name in ((app.rejected, "rejected"), (app.automatic, "automatic")) if count]
    return {
        "outstanding": app.outstanding,
        "oldest": _age(app.oldest_outstanding, last),
        "confirmed": app.confirmed,
        "purged": app.purged,
        "name": "  " + (app.app_id or f"? (key {app.app_key})") + (f" ({', '.join(noted)})" if noted else ""),
    }


def _age(seconds: int | None, last: int | None) -> str:
    """Format the time up to the last record, in the two largest units."""
    if seconds is None or last is None:
        return ""
    age = max(0, last - seconds)
    minutes, hours, days = age // 60, age // 3600, age // 86_400
    if days:
        return f"{days}d {hours % 24}h"
    return f"{hours}h {minutes % 60}m" if hours else f"{minutes}m {age % 60}s" if minutes else f"{age}s"


def _time(seconds: int | None) -> str | None:
    return None if seconds is None else shown_time(seconds)
