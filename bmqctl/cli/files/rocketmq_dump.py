"""`bmqctl journal dump` on a store of RocketMQ: print the records of its commit log."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import typer

from bmqctl.cli.arguments import given_options
from bmqctl.cli.files.dump_options import DumpOptions
from bmqctl.cli.files.printing import (
    choose_output,
    end_with,
    has_left,
    open_stream,
    quiet_on_terminal,
    until_signal,
)
from bmqctl.common.refusal import say
from bmqctl.common.render import EXIT_FAULTS, LateProgress, refuse
from bmqctl.stores.blazingmq.dump.formats import DumpFormat
from bmqctl.stores.rocketmq.dump.dump import CheckingSink, FollowEnded, LogFollower, LogPrinter, dump_log, make_sink
from bmqctl.stores.rocketmq.read.files import LogFile, open_store
from bmqctl.stores.rocketmq.read.filters import LogFilters, parse_time_ms
from bmqctl.stores.rocketmq.read.payload import BodyReader

__all__ = ["OWN_OPTIONS", "dump"]

COMMAND = "journal dump"
POLL_INTERVAL_S = 0.2
OWN_OPTIONS: Final = frozenset({"topics", "queue_ids", "ids", "keys", "tags"})
_FOREIGN_OPTIONS: Final = frozenset(
    {
        *("types", "guids", "queues", "apps", "seqnum_gt", "seqnum_lt", "seqnums"),
        *("outstanding", "confirmed", "partially_confirmed", "partition", "data_file", "csl_file"),
    }
)


def dump(context: typer.Context, path: Path, given: DumpOptions) -> None:
    """Print the records of a store, or of one file of its commit log, as the options say."""
    for option in given_options(context, _FOREIGN_OPTIONS):
        refuse(COMMAND, f"{path} is a store of RocketMQ, and {option} is for those of BlazingMQ")
    chosen = choose_output(COMMAND, given.output, given.out)
    if chosen is DumpFormat.JSON_PRETTY:
        refuse(COMMAND, f"--output json-pretty is for journals and ledgers; {path} is a store of RocketMQ")
    store = open_store(path)
    filters = _filters(given)
    bodies = None if given.payload is None else BodyReader(given.payload, given.payload_limit)
    if given.follow:
        if path.is_file():
            refuse(COMMAND, f"--follow goes from file to file: name the store, {store.root}")
        _follow(store.root, store.log, filters, chosen, bodies, given)
        return
    files = [file for file in store.log if not path.is_file() or file.path.samefile(path)]
    if path.is_file() and not files:
        refuse(COMMAND, f"{path} is no file of a commit log: name one, or the store, {store.root}")
    with (
        open_stream(COMMAND, given.out) as stream,
        LateProgress("reading records") as on_progress,
    ):
        sink = CheckingSink(make_sink(chosen, stream, bodies))
        # Entries for other files of the log are not read.
        index_files = () if path.is_file() else store.index_files
        quiet = quiet_on_terminal(on_progress, given.out)
        report = dump_log(files, filters, sink, given.limit, quiet, index_files)
        sink.close()
    for text in report.unseen:
        say(COMMAND, text)
    faults = 0 if bodies is None else bodies.faults
    if faults:
        say(COMMAND, f"{faults} payloads could not be read")
    gone = 0
    if report.end is not None and not path.is_file():
        # The checks of queues would take a tenth of the start of every dump.
        from bmqctl.stores.rocketmq.read.queues import count_gone

        topics = filters.topics
        gone = sum(count_gone(store, report.end, lambda topic: not topics or topic in topics))
    end_with(COMMAND, path, sink.account, gone)
    if report.is_damaged or report.unseen or faults:
        raise typer.Exit(EXIT_FAULTS)


def _filters(given: DumpOptions) -> LogFilters:
    """Build filters from the options. Raises `BadFilter` if one cannot be read, or two contradict each other."""
    texts = {name: frozenset(getattr(given, name) or ()) for name in (*OWN_OPTIONS, "offsets")}
    return LogFilters(
        since_ms=None if given.since is None else parse_time_ms(given.since),
        until_ms=None if given.until is None else parse_time_ms(given.until),
        offset_gt=given.offset_gt,
        offset_lt=given.offset_lt,
        **texts,
    )


def _follow(
    root: Path,
    files: tuple[LogFile, ...],
    filters: LogFilters,
    chosen: DumpFormat,
    bodies: BodyReader | None,
    given: DumpOptions,
) -> None:
    if chosen.is_columnar:
        refuse(COMMAND, f"--follow does not end, but --output {chosen} needs an end: use json-line, csv or table")
    if filters.has_end:
        refuse(COMMAND, "--follow prints new records: it cannot be combined with an upper bound or with single records")
    begins = filters.since_ms is not None or filters.offset_gt is not None
    with until_signal() as stop, open_stream(COMMAND, given.out) as stream:
        follower = LogFollower(root, filters.begin(files) if begins else None)
        sink = CheckingSink(make_sink(chosen, stream, bodies))
        told = 0
        printer = LogPrinter(sink, filters, given.limit)
        while not stop.is_set():
            try:
                for chunk in follower.poll():
                    printer.print(chunk)
                    if printer.is_done:
                        return
            except FollowEnded as error:
                stream.flush()
                say(COMMAND, str(error))
                raise typer.Exit(EXIT_FAULTS) from None
            stream.flush()
            if sink.account.damaged > told:
                told = sink.account.damaged
                say(COMMAND, sink.account.words())
            stop.wait(POLL_INTERVAL_S)
            if has_left(stream):
                raise BrokenPipeError
