"""The tool's modes: session, console, commands from standard input, signals.

Source of the exit codes' meaning: `bmqtool.m.cpp`; `syschk` exits with 256 minus the result of the failed step.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import trio

from bmqctl.cli.tool.auto import Automatic, ended
from bmqctl.cli.tool.file_log import FileLog
from bmqctl.cli.tool.grammar import show
from bmqctl.cli.tool.interactive import Interactive, Lines
from bmqctl.cli.tool.log import Log, Severity
from bmqctl.cli.tool.parameters import VERBOSITIES, Parameters
from bmqctl.cli.tool.poster import clock_of
from bmqctl.cli.tool.receiver import Receiver
from bmqctl.cli.tool.session import Endpoint, ToolSession, parse_endpoint
from bmqctl.client.link import tls_context
from bmqctl.client.protocol.authentication import Credentials
from bmqctl.client.protocol.events import StreamOptions
from bmqctl.common.ending import EXIT_READER_LEFT, silence

__all__ = ["run_tool"]

CATEGORY: Final = "BMQTOOL.APPLICATION"
EXIT_NOT_STARTED: Final = 1
EXIT_INTERRUPTED: Final = 130
SIGNALS_MAX: Final = 5
PROMPT: Final = "> "


class _Typed(Lines):
    """Lines from standard input, read in a thread, so that the session continues meanwhile."""

    def __init__(self) -> None:
        self._terminal = sys.stdin.isatty()
        if self._terminal:
            import readline  # noqa: F401 - line editing and history for `input`

    async def next_line(self) -> str | None:
        return await trio.to_thread.run_sync(self._read, abandon_on_cancel=True)

    def _read(self) -> str | None:
        if self._terminal:
            try:
                return input(PROMPT)
            except EOFError:
                line = ""
        else:
            sys.stdout.write(PROMPT)
            sys.stdout.flush()
            line = sys.stdin.readline()
        if not line:
            print(flush=True)
            return None
        return line


def run_tool(parameters: Parameters) -> int:
    """Run in the mode that `parameters` select; return the exit code.

    Raises `BadAddress` if the broker's address is invalid, `OSError` if a file cannot be read or made.
    """
    endpoint = parse_endpoint(parameters.broker)
    if parameters.authn_mechanism:
        credentials = Credentials(parameters.authn_mechanism, parameters.authn_data.encode())
        endpoint = endpoint._replace(credentials=credentials)
    if parameters.tls_authority:
        endpoint = endpoint._replace(tls=tls_context(Path(parameters.tls_authority)))
    code = EXIT_READER_LEFT
    try:
        code = _run(parameters, endpoint)
        sys.stdout.flush()
    except* BrokenPipeError:
        silence(sys.stdout)
    except* KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    # The interpreter collects all objects once more before it exits: a third of the time that a script's call takes.
    gc.freeze()
    return code


def _run(parameters: Parameters, endpoint: Endpoint) -> int:
    if parameters.mode == "syschk":
        return trio.run(_check_system, parameters, endpoint)
    log = Log(parameters.log_format, VERBOSITIES[parameters.verbosity])
    if parameters.verbosity != "silent":
        # Everything except the credentials.
        log.print(f"{show(replace(parameters, authn_data=''))}\n")
    if parameters.mode == "storage":
        code = trio.run(_inspect, parameters, log)
    elif parameters.mode == "auto":
        code = trio.run(_automatic, parameters, endpoint, log)
    else:
        code = trio.run(_interactive, parameters, endpoint, log)
    if code == 0:
        log.write(Severity.INFO, CATEGORY, "Goodbye.")
    return code


async def _interactive(parameters: Parameters, endpoint: Endpoint, log: Log) -> int:
    log.write(
        Severity.INFO,
        CATEGORY,
        "Welcome to the BlazingMQ tool.\nType 'help' to see the list of commands. Ctrl-D to quit.",
    )
    quiet = parameters.verbosity == "silent"
    with FileLog(Path(parameters.log) if parameters.log else None) as file_log:
        async with trio.open_nursery() as nursery:
            receiver = Receiver(log, file_log, quiet, dump=parameters.dump_msg, confirm=parameters.confirm_msg)
            receiver.clock = clock_of(parameters.latency)
            session = ToolSession(nursery, endpoint, receiver, parameters.timeout_sec)
            receiver.session = session
            interactive = Interactive(session, log, quiet=quiet)
            receiver.keep = interactive.keep
            await interactive.run(_Typed())
            nursery.cancel_scope.cancel()
    return 0


async def _inspect(parameters: Parameters, log: Log) -> int:
    # The readers of store files are not needed by a client.
    from bmqctl.cli.tool.storage import StorageInspector

    await StorageInspector(log).run(_Typed(), parameters.storage)
    return 0


async def _automatic(parameters: Parameters, endpoint: Endpoint, log: Log) -> int:
    quiet = parameters.verbosity == "silent"
    began = False
    with FileLog(Path(parameters.log) if parameters.log else None) as file_log:
        async with trio.open_nursery() as nursery:
            receiver = Receiver(log, file_log, quiet, False, dump=parameters.dump_msg, confirm=parameters.confirm_msg)
            receiver.clock = clock_of(parameters.latency)
            session = ToolSession(nursery, endpoint, receiver, parameters.timeout_sec)
            receiver.session = session
            automatic = Automatic(session, receiver, parameters, log)
            nursery.start_soon(_heed_signals, automatic)
            began = await automatic.run()
            nursery.cancel_scope.cancel()
    return 0 if began else EXIT_NOT_STARTED


async def _heed_signals(automatic: Automatic) -> None:
    count = 0
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGQUIT, signal.SIGTERM) as signals:
        async for number in signals:
            count += 1
            if count >= SIGNALS_MAX:
                print(f"Received a signal [{number}] {count} times, terminating immediately", file=sys.stderr)
                os._exit(128 + number)
            print(
                f"Received a signal [{number}], shutting down... Please send a signal "
                f"{SIGNALS_MAX - count} more times to terminate immediately",
                file=sys.stderr,
            )
            automatic.stop()


async def _check_system(parameters: Parameters, endpoint: Endpoint) -> int:
    """Check that a session can be started, and the queue, if any, opened for writing; return the exit code."""
    log = Log(parameters.log_format, Severity.WARN)
    result = 0
    with FileLog(None) as file_log:
        async with trio.open_nursery() as nursery:
            session = ToolSession(nursery, endpoint, Receiver(log, file_log, True), parameters.timeout_sec)
            result = await session.start(parameters.timeout_sec)
            if result != 0:
                log.write(Severity.ERROR, CATEGORY, f"Failed to start a session: [rc: {result.value}]")
            elif parameters.queue_uri:
                uri, flags = parameters.queue_uri, frozenset({"write"})
                outcome = await ended(lambda done: session.open(uri, flags, StreamOptions(), done))
                result = outcome.result.value
                if outcome.ok:
                    await ended(lambda done: session.close(outcome.queue, done))
                else:
                    log.write(Severity.ERROR, CATEGORY, f"Error while opening queue: [result: {outcome}]")
            await session.stop()
            nursery.cancel_scope.cancel()
    return result & 0xFF
