"""The tool's modes: session, console, commands from standard input, signals.

Source of the exit codes' meaning: `bmqtool.m.cpp`; `syschk` exits with 256 minus the result of the failed step.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import trio

from bmqctl.cli.tool.commands import parse_flags, properties_of, subscription_faults, subscriptions_of
from bmqctl.cli.tool.file_log import FileLog
from bmqctl.cli.tool.grammar import show
from bmqctl.cli.tool.interactive import Interactive, Lines
from bmqctl.cli.tool.latency import Latencies
from bmqctl.cli.tool.log import Log, Severity
from bmqctl.cli.tool.parameters import VERBOSITIES, Parameters
from bmqctl.cli.tool.poster import AUTO_PUB_SUB_PROPERTY, HIGH_WATERMARK, Plan, Poster, clock_of
from bmqctl.cli.tool.receiver import Receiver
from bmqctl.cli.tool.session import Endpoint, Outcome, PackError, ToolQueue, ToolSession, parse_endpoint
from bmqctl.cli.tool.stats import header
from bmqctl.client.protocol.authentication import Credentials
from bmqctl.client.protocol.events import StreamOptions, StreamSubscription
from bmqctl.common.dialing import tls_context
from bmqctl.common.ending import EXIT_READER_LEFT, silence

__all__ = ["run_tool"]

CATEGORY: Final = "BMQTOOL.APPLICATION"
EXIT_NOT_STARTED: Final = 1
EXIT_INTERRUPTED: Final = 130
SIGNALS_MAX: Final = 5
PROMPT: Final = "> "


class Automatic:
    """A run in automatic mode, posting to one queue by the clock or consuming from it; `stop` ends it.

    Source of the behaviour: `m_bmqtool::Application`.
    """

    def __init__(self, session: ToolSession, receiver: Receiver, parameters: Parameters, log: Log) -> None:
        self._session = session
        self._receiver = receiver
        self._parameters = parameters
        self._log = log
        self._flags = parse_flags(parameters.queue_flags)
        self._mode = "consumed" if "read" in self._flags else "produced"
        self._latency = parameters.latency != "none"
        self._done = trio.Event()
        events = parameters.events()
        self._unacked = events * parameters.event_size

    def stop(self) -> None:
        self._done.set()

    async def run(self) -> bool:
        """Run until everything is posted, acked or consumed, or `stop` is called; return False if it cannot begin."""
        result = await self._session.start(self._parameters.timeout_sec)
        if result != 0:
            self._error(f"Unable to start session [rc: {result.value} - {result.name}]")
            return False
        self._info("Session started.")
        queue = await self._open()
        if queue is None:
            await self._session.stop()
            return False
        self._receiver.on_acked = self._acked
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._print_stats)
            if "write" in self._flags:
                nursery.start_soon(self._produce, queue)
            if self._parameters.shutdown_grace:
                nursery.start_soon(self._watch_silence)
            await self._done.wait()
            nursery.cancel_scope.cancel()
        await self._leave(queue)
        self._print_final()
        return True

    async def _open(self) -> ToolQueue | None:
        parameters = self._parameters
        if faults := subscription_faults(parameters.subscriptions):
            for fault in faults:
                self._error(f"#INVALID_SUBSCRIPTION {fault}")
            self._error("Invalid subscriptions")
            return None
        messages, size = parameters.limits()
        every = tuple(
            StreamSubscription(expression=f"{AUTO_PUB_SUB_PROPERTY}=={rest}")
            for rest in range(parameters.auto_pub_sub_modulo)
        )
        options = StreamOptions(messages, size, 0, subscriptions_of(parameters.subscriptions) + every)
        outcome = await ended(lambda done: self._session.open(parameters.queue_uri, self._flags, options, done))
        if not outcome.ok:
            self._error(f"Error while opening queue: [result: {outcome}]")
            return None
        return outcome.queue

    async def _produce(self, queue: ToolQueue) -> None:
        parameters, receiver = self._parameters, self._receiver
        plan = Plan(
            events=parameters.events(),
            event_size=parameters.event_size,
            rate=parameters.post_rate,
            interval_ms=parameters.post_interval,
            msg_size=parameters.msg_size,
            pattern=parameters.sequential_message_pattern,
            properties=tuple(properties_of(parameters.message_properties)),
            modulo=parameters.auto_pub_sub_modulo,
            clock=clock_of(parameters.latency),
        )

        def on_put(number: int | None, guid: bytes, payload: bytes) -> None:
            receiver.put(queue, number, guid, payload)
            if self._mode == "produced":
                receiver.stats.add(1, len(payload), 0, 0)

        poster = Poster(self._session, queue, plan, on_put)
        due = trio.current_time()
        while poster.pending:
            if receiver.connected:
                self._post_round(poster)
            await self._session.drained(HIGH_WATERMARK)
            due += plan.interval_ms / 1000
            await trio.sleep_until(due)
        if "ack" not in self._flags:
            self._done.set()

    def _post_round(self, poster: Poster) -> None:
        before = self._session.pending_size
        try:
            events = poster.post_round()
        except PackError as fault:
            self._error(f"Failed to pack message [rc: {fault}]")
            self._done.set()
            return
        if self._mode == "produced":
            self._receiver.stats.add(0, 0, events, max(self._session.pending_size - before, 0))

    def _acked(self, count: int) -> None:
        if self._unacked:
            self._unacked -= count
            if self._unacked <= 0:
                self._info("All posted messages have been acknowledged")
                self._done.set()

    async def _watch_silence(self) -> None:
        """End the run when no message has come for the grace period, after the first one."""
        while not self._receiver.messages_seen:
            await trio.sleep(0.1)
        seen = -1
        while self._receiver.messages_seen != seen:
            seen = self._receiver.messages_seen
            await trio.sleep(self._parameters.shutdown_grace)
        self._done.set()

    async def _leave(self, queue: ToolQueue) -> None:
        if self._parameters.shutdown_grace:
            await trio.sleep(self._parameters.shutdown_grace)
        if queue.uri in self._session.queues:
            await ended(lambda done: self._session.close(queue, done))
        await self._session.stop()

    # Printing

    async def _print_stats(self) -> None:
        stats = self._receiver.stats
        shows_latency = self._latency and "read" in self._flags
        printed_header = False
        before, time_before = stats.copy(), trio.current_time()
        while self._parameters.verbosity != "silent":
            await trio.sleep(1)
            now = trio.current_time()
            line = stats.line(before, now - time_before, self._mode, latency=shows_latency)
            before, time_before = stats.copy(), now
            if self._receiver.connected:
                if not printed_header:
                    self._log.print(header(latency=shows_latency) + "\n")
                    printed_header = True
                self._log.print(line + "\n")

    def _print_final(self) -> None:
        if self._parameters.verbosity != "silent":
            self._log.print(self._receiver.stats.final(self._mode, latency=self._latency) + "\n")
        for latencies in (self._receiver.end_to_end, self._receiver.acked):
            if len(latencies) and self._parameters.latency_report:
                self._report(latencies, Path(self._parameters.latency_report))
                break

    def _report(self, latencies: Latencies, path: Path) -> None:
        bar = "=" * 20
        self._log.print(f"{bar}\nLatency Report: {path}\n{bar}\n{latencies.summary()}\n")
        try:
            path.write_text(latencies.report())
        except OSError as fault:
            self._log.print(f"Unable to generate latency report, failed to save '{path}': {fault}\n")

    def _info(self, text: str) -> None:
        self._log.write(Severity.INFO, CATEGORY, text, depth=2)

    def _error(self, text: str) -> None:
        self._log.write(Severity.ERROR, CATEGORY, text, depth=2)


async def ended(ask: Callable[[Callable[[Outcome], None]], object]) -> Outcome:
    finished = trio.Event()
    outcomes: list[Outcome] = []

    def done(outcome: Outcome) -> None:
        outcomes.append(outcome)
        finished.set()

    ask(done)
    await finished.wait()
    return outcomes[0]


class _Typed(Lines):
    """Lines from standard input, read in a thread while the session continues."""

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
    # The interpreter collects all objects once more at its exit: a third of the time of a script's call.
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
    # A client needs no readers of store files.
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
