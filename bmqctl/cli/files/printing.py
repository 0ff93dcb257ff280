"""Common parts of the dump commands: the output, its format, and the handling of errors and signals."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import typer

from bmqctl.common.harmless import output_fault
from bmqctl.common.refusal import say
from bmqctl.common.render import EXIT_FAULTS, refuse, until_reader_leaves
from bmqctl.stores.blazingmq.dump.formats import DumpFormat, NoArrow, format_by_name, load_arrow
from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.blazingmq.read.wanted import BadFilter, Wanted
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.guid import format_guid
from formats.errors import FormatError

if TYPE_CHECKING:
    from bmqctl.stores.blazingmq.read.columns import Row

__all__ = [
    "choose_output",
    "end_with",
    "has_left",
    "missing",
    "open_stream",
    "quiet_on_terminal",
    "rate_text",
    "size_text",
    "stopped_by",
    "until_signal",
    "with_progress",
]

PROGRESS_ROWS = 1000


def choose_output(command: str, wanted: DumpFormat | None, out: Path | None) -> DumpFormat:
    """Choose the requested format or one that fits the output; exit with an error if they do not fit."""
    if wanted is DumpFormat.JSONL:
        wanted = DumpFormat.JSON_LINE
    chosen = wanted or (None if out is None else format_by_name(out))
    if chosen is None:
        if out is not None:
            refuse(command, f"--out {out}: its name does not imply a format: add --output")
        chosen = DumpFormat.TABLE if sys.stdout.isatty() else DumpFormat.JSON_LINE
    if chosen is DumpFormat.TABLE and out is not None:
        refuse(command, "--output table is for a terminal: choose another format for --out")
    if chosen is DumpFormat.PARQUET and out is None:
        refuse(command, "--output parquet needs --out FILE: readers of Parquet need a file")
    if chosen is DumpFormat.ARROW and out is None and sys.stdout.isatty():
        refuse(command, "--output arrow is not for a terminal: use --out FILE or a pipe")
    if chosen.is_columnar:
        try:
            load_arrow()
        except NoArrow as error:
            refuse(command, f"--output {chosen}: {error}")
    return chosen


def quiet_on_terminal(on_progress: Callable[[int, int], None], out: Path | None) -> Callable[[int, int], None]:
    """Progress, unless records are printed to the same terminal."""
    return on_progress if out is not None or not sys.stdout.isatty() else lambda done, total: None


@contextmanager
def open_stream(command: str, out: Path | None) -> Iterator[IO[bytes]]:
    if out is None:
        with until_reader_leaves():
            yield sys.stdout.buffer
            sys.stdout.flush()
        return
    try:
        stream = out.open("xb")
    except FileExistsError:
        refuse(command, f"--out {out} exists: name a new file")
    except OSError as error:
        refuse(command, f"--out {out}: {error.strerror or error}")
    try:
        with stream:
            yield stream
            stream.flush()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        refuse(command, f"--out {out}: {os.strerror(error.errno)}")


@contextmanager
def stopped_by(command: str, path: Path) -> Iterator[None]:
    """Exit with one line on standard error for invalid options or a fault of the file at `path`."""
    from bmqctl.stores.blazingmq.read.files import NotAStoreFile

    try:
        yield
    except (BadFilter, NotAStoreFile) as error:
        refuse(command, str(error))
    except FormatError as error:
        say(command, f"{path}: {error}")
        raise typer.Exit(EXIT_FAULTS) from None
    except OSError as error:
        if output_fault() is not None:
            raise
        refuse(command, f"{error.filename or path}: {error.strerror or error}")


class Stop:
    """A flag that signal handlers set.

    Not a `threading.Event`, whose lock the interrupted thread may hold.
    """

    def __init__(self, wakeup: int) -> None:
        self._wakeup = wakeup  # receives a byte, which ends a `wait`
        self._is_set = False

    def set(self, *_: object) -> None:
        """Set the flag; for signal handlers."""
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout_s: float) -> None:
        select.select([self._wakeup], [], [], timeout_s)


@contextmanager
def until_signal() -> Iterator[Stop]:
    """Yield a `Stop` that SIGINT and SIGTERM set, in place of their usual effect."""
    wakeup, wakes = socket.socketpair()
    with wakeup, wakes:
        wakes.setblocking(False)
        stop = Stop(wakeup.fileno())
        before_fd = signal.set_wakeup_fd(wakes.fileno())
        before = {number: signal.signal(number, stop.set) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield stop
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before_fd)


def has_left(stream: IO[bytes]) -> bool:
    """Return True if `stream` is a pipe without a reader; nothing is written to it."""
    poll = select.poll()
    poll.register(stream, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def with_progress(rows: Iterable[Row], size: int, on_progress: Callable[[int, int], None]) -> Iterator[Row]:
    """Yield the rows, and report the position in the file to `on_progress`."""
    for count, row in enumerate(rows):
        if count % PROGRESS_ROWS == 0:
            on_progress(row["offset"], size)
        yield row


def missing(wanted: Wanted) -> str:
    if isinstance(wanted, bytes):
        return f"no record has the GUID {format_guid(wanted)}"
    return f"no record has the number {wanted}" if isinstance(wanted, RecordNumber) else f"no record at offset {wanted}"


def end_with(command: str, path: Path, account: Account, messages: int = 0, places: Sequence[str] = ()) -> None:
    """Report the losses of a store and the number of messages gone, and exit with 1; return if there are none.

    `places` describe queues that do not name their messages: the first one is printed.
    """
    if account.is_sound and not messages:
        return
    lost = [account.words()] if not account.is_sound else []
    if messages:
        first = f" ({len(places)} queues do not name theirs, the first: {places[0]})" if places else ""
        lost.append(f"{messages:,} messages that the store names are missing{first}")
    say(command, f"{path}: {'; '.join(lost)}: bmqctl journal validate {path} lists all, journal repair keeps the rest")
    raise typer.Exit(EXIT_FAULTS)


def size_text(count: int | None) -> str:
    """Format a number of bytes in the largest unit that fits."""
    if count is None:
        return "?"
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def rate_text(per_second: float) -> str:
    """Format a rate with three digits, or as a whole number."""
    return f"{per_second:.0f}" if per_second >= 100 else f"{per_second:.3g}"
