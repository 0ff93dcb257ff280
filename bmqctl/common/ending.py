"""The standard streams of every command, and the end of a command by a fault of its machine.

Commands refuse faults that they foresee. Other faults of the operating system, such as unwritable output or too few
descriptors, end a command here with one line and exit code 2; so does text that is not UTF-8 and cannot be sent.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

import typer

from bmqctl.common.harmless import guard_output, output_fault
from bmqctl.common.refusal import refuse
from broker.shell.process.announcing import announce, silence
from broker.shell.process.os_errors import os_error_line

__all__ = ["EXIT_READER_LEFT", "announce", "faults_end", "silence", "standard_streams"]

EXIT_READER_LEFT: Final = 141
"""Exit code of a program that SIGPIPE ended, as shells report it: `bmqctl ... | head` is not an error."""

_OUTPUT_REMEDIES: Final = {
    errno.EBADF: "it is closed: redirect it to a file, or to /dev/null",
    errno.ENOSPC: "free space on its disk, or redirect it to another file",
}
# Errors of a machine that an import reports only in the text of an ImportError.
_OF_IMPORTS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_NO_THREAD: Final = "can't start new thread"


@contextmanager
def standard_streams() -> Iterator[None]:
    """Run a block with standard streams that exist, are harmless, and fail at no character.

    A closed descriptor is replaced, lest the next opened file get its number, and output overwrite it. Writing to a
    closed standard output then raises `OSError`. Unwritable lines for standard error are lost.
    """
    _replace_closed()
    put_back = guard_output()
    try:
        yield
    finally:
        put_back()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                silence(stream)


def _replace_closed() -> None:
    # Writing to a descriptor open for reading fails, as on a closed one.
    for name, flags, mode in (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w")):
        if getattr(sys, name) is None:
            # The lowest free number is the stream's.
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode))


@contextmanager
def faults_end(command: Callable[[], str]) -> Iterator[None]:
    """Run a command. A fault of the operating system ends it with one line on standard error and exit code 2.

    A pipe on standard output without a reader ends it quietly, with `EXIT_READER_LEFT`.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except (OSError, UnicodeError, ImportError, BaseExceptionGroup) as fault:
        _end_by(command(), fault)
    except RuntimeError as fault:
        # `typer.Exit` is one, too, and propagates.
        if str(fault) != _NO_THREAD:
            raise
        _end_by(command(), fault)


def _end_by(command: str, fault: BaseException) -> NoReturn:
    lost = output_fault()
    if lost is not None:
        silence(sys.stdout)
        if isinstance(lost, BrokenPipeError):
            raise typer.Exit(EXIT_READER_LEFT) from None
        remedy = _OUTPUT_REMEDIES.get(lost.errno or 0)
        refuse(command, f"standard output: {lost.strerror or lost}" + (f"; {remedy}" if remedy else ""))
    reason = _reason(fault)
    if reason is None:
        raise fault
    refuse(command, reason)


def _reason(fault: BaseException) -> str | None:
    """A line about a fault of the machine or of the command's words; None for any other fault."""
    match fault:
        case OSError():
            return os_error_line(fault, None)
        case UnicodeEncodeError(object=text):
            return f"{text!r} has bytes that are no UTF-8: give a text in UTF-8"
        case UnicodeError():
            return str(fault)
        case ImportError():
            causes = (OSError(each, os.strerror(each)) for each in _OF_IMPORTS)
            return next((os_error_line(each) for each in causes if str(each.strerror) in str(fault)), None)
        case RuntimeError() if str(fault) == _NO_THREAD:
            return "no thread can be started; raise the limit of processes and threads (ulimit -u), or the container's"
        case BaseExceptionGroup(exceptions=faults):
            reasons = [_reason(each) for each in faults]
            return None if None in reasons else reasons[0]
    return None
