"""A world from its beginning to its end: what worlds of all systems have in common, and how a failure is reported."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar
from zlib import crc32

from broker.common.faults import Inconsistent
from tests.broker.fakes import Crash
from tests.simulator.chances import Chances
from tests.simulator.judges.invariants import Violation

__all__ = ["CPU_S_MAX", "Acked", "NotedWorld", "Playable", "Steps", "bounded", "play", "quiet"]

# The processor time of one world, of which the longest takes a tenth.
CPU_S_MAX = 300.0


class _Lines(logging.Handler):
    """Adds the core's log lines to the events, without a time."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(f"{'':17} | {record.getMessage()}")


@contextmanager
def quiet(lines: list[str] | None = None) -> Iterator[None]:
    """Let the core's logs go into `lines`, or not be made at all."""
    log = logging.getLogger("broker")
    level, propagate = log.level, log.propagate
    log.setLevel(logging.CRITICAL + 1 if lines is None else logging.INFO)
    log.propagate = False
    handler = None if lines is None else _Lines(lines)
    if handler is not None:
        log.addHandler(handler)
    try:
        yield
    finally:
        log.setLevel(level)
        log.propagate = propagate
        if handler is not None:
            log.removeHandler(handler)


class Steps(Protocol):
    """A clock that counts the steps of its world."""

    @property
    def steps(self) -> int: ...


class Acked(Protocol):
    """The records of a world."""

    @property
    def acked(self) -> int:
        """The number of messages that were acknowledged."""
        ...


class Playable(Protocol):
    """A world; its events are added to `lines`, if it has any."""

    lines: list[str] | None
    digest: int
    chances: Chances
    # The clients that do nothing by themselves while faults last.
    silent: frozenset[str]

    @property
    def clock(self) -> Steps: ...

    @property
    def records(self) -> Acked: ...

    @property
    def client_names(self) -> list[str]:
        """The clients that may be silent."""
        ...

    def run(self, steps: int) -> None: ...


@dataclass
class _Count:
    """The steps of a world that goes by steps, and its acknowledged messages."""

    steps: int = 0
    acked: int = 0


class NotedWorld:
    """A world that goes by steps, and notes what happens. Its events have milliseconds since `BEGIN_MS`."""

    BEGIN_MS = 0

    def __init__(self) -> None:
        self.lines: list[str] | None = None
        self.chances = Chances()
        self.silent: frozenset[str] = frozenset()
        self.clock = self.records = _Count()
        self.digest = 0

    @property
    def time_ms(self) -> int:
        """The time of the world, which begins at `BEGIN_MS`."""
        raise NotImplementedError

    def note(self, text: str) -> None:
        """Note an event."""
        self.chances.note(self.time_ms - self.BEGIN_MS, text)
        self.digest = crc32(f"{self.time_ms} {text}".encode(), self.digest)
        if self.lines is not None:
            self.lines.append(f"{self.clock.steps:6} {self.time_ms - self.BEGIN_MS:9} | {text}")


class _TooLongError(BaseException):
    """A world has taken too much time: no exception that the core would take for a fault of its own."""


@contextmanager
def bounded(cpu_s: float) -> Iterator[None]:
    """End a world that takes more processor time than this, where the platform and the thread allow it."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise _TooLongError(f"the world has taken {cpu_s} s, and is not over")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


W = TypeVar("W", bound=Playable)


def play(seed: int, make: Callable[[], W], steps: int, lines: list[str] | None) -> W:
    """Make a world and run it. `Violation`, with the seed and the step, for whatever goes wrong."""
    world = None
    try:
        with quiet(lines):
            world = make()
            world.lines = lines
            world.run(steps)
    except Violation as violation:
        raise Violation(f"seed {seed}, step {_step_of(world)}: {violation}") from None
    except (Exception, Inconsistent, Crash, _TooLongError) as error:
        raise Violation(f"seed {seed}, step {_step_of(world)}: {type(error).__name__}: {error}") from error
    return world


def _step_of(world: Playable | None) -> int:
    return 0 if world is None else world.clock.steps
