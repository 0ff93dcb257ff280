"""`bmqctl` with a loop that is watched: `python -m scripts.bench.watched_loop FILE MS ...`.

A step of its loop that took longer than MS milliseconds appends a line of JSON to FILE: how long the step ran, how long
it waited for a processor, its slow calls, and its frames every SAMPLE_MS from half of that time on. The rest of its
time is a wait for the disk or for a lock if the thread went to sleep by itself (`voluntary`); if not, the whole machine
stood still.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio

from broker.shell.files import mapped_files
from broker.shell.host.calls import HOST

__all__ = ["Step", "read_steps"]

SLOW_NS: Final = 200_000
SAMPLE_MS: Final = 10
FRAMES_MAX: Final = 8
MS_NS: Final = 1_000_000
# Linux's value in <bits/resource.h>; other systems may lack it.
RUSAGE_THREAD: Final = 1


class Step(NamedTuple):
    """A long step of the loop; times are in milliseconds but for the first."""

    start_ns: int  # CLOCK_MONOTONIC
    took: float
    ran: float
    waited: float  # for a processor
    voluntary: int  # times that it gave up the processor
    faults: int  # page faults
    calls: list[tuple[str, float]]

    @property
    def own(self) -> float:
        """The time without the wait for a processor."""
        return self.took - self.waited if self.voluntary else self.ran


def read_steps(file: Path) -> list[Step]:
    """Read the steps that a node has written, without an incomplete last line."""
    return [Step(*json.loads(line)) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]


class _Reading(NamedTuple):
    at_ns: int
    usage: resource.struct_rusage
    ran_ns: int
    waited_ns: int


class Watch:
    """Measures the time from each end of a wait of the loop until the next wait."""

    def __init__(self, limit_ms: float, tell: Callable[[Step], object]) -> None:
        self._tell = tell
        self._limit_ns = limit_ms * MS_NS
        self._thread = self._ident = 0
        self._scheduling = -1
        self._start: _Reading | None = None
        self._calls: list[tuple[str, float]] = []

    def begin(self) -> None:
        if not self._thread:
            self._thread, self._ident = threading.get_native_id(), threading.get_ident()
            self._scheduling = os.open(f"/proc/self/task/{self._thread}/schedstat", os.O_RDONLY)
        self._calls = []
        self._start = self._read()

    def end(self) -> None:
        start, self._start = self._start, None
        if start is None or time.monotonic_ns() - start.at_ns < self._limit_ns:
            return
        now = self._read()
        took, ran, waited = (
            (late - early) / MS_NS
            for late, early in (
                (now.at_ns, start.at_ns),
                (now.ran_ns, start.ran_ns),
                (now.waited_ns, start.waited_ns),
            )
        )
        faults = now.usage.ru_minflt + now.usage.ru_majflt - start.usage.ru_minflt - start.usage.ru_majflt
        voluntary = now.usage.ru_nvcsw - start.usage.ru_nvcsw
        self._tell(Step(start.at_ns, took, ran, waited, voluntary, faults, self._calls))

    def _read(self) -> _Reading:
        ran, waited, _ = os.pread(self._scheduling, 64, 0).split()
        usage = resource.getrusage(RUSAGE_THREAD)
        return _Reading(time.monotonic_ns(), usage, int(ran), int(waited))

    def note(self, name: str, took_ns: int) -> None:
        """Record a call if it was slow and the loop made it."""
        if took_ns > SLOW_NS and self._thread == threading.get_native_id():
            self._calls.append((name, took_ns / MS_NS))

    def sample(self) -> None:
        """Record the frames of the current step, every SAMPLE_MS, from half of the limit on; never returns."""
        while True:
            time.sleep(SAMPLE_MS / 1000)
            start = self._start
            if start is None or (elapsed_ns := time.monotonic_ns() - start.at_ns) < self._limit_ns / 2:
                continue
            frame = sys._current_frames().get(self._ident)
            if frame is not None and self._start is start:
                stack = traceback.extract_stack(frame)[-FRAMES_MAX:]
                places = " < ".join(f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in reversed(stack))
                self._calls.append((places, elapsed_ns / MS_NS))
            # A frame kept during the sleep would keep its variables: views of files, which could not be closed.
            del frame

    def watch(self, owner: Any, *names: str) -> None:
        for name in names:
            setattr(owner, name, self._noting(f"{getattr(owner, '__name__', owner)}.{name}", getattr(owner, name)))

    def _noting(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        @wraps(call)
        def noted(*arguments: object, **options: object) -> object:
            start_ns = time.monotonic_ns()
            try:
                return call(*arguments, **options)
            finally:
                self.note(name, time.monotonic_ns() - start_ns)

        return noted


class WatchedPoller:
    """A poller whose waits are between steps."""

    def __init__(self, watch: Watch, inner: Any) -> None:
        self.register, self.modify, self.unregister = inner.register, inner.modify, inner.unregister
        self.arm, self.fileno, self.close = inner.arm, inner.fileno, inner.close
        self._poll = inner.poll
        self._watch = watch

    def poll(self, timeout_s: float, /) -> list[tuple[int, int]]:
        self._watch.end()
        ready: list[tuple[int, int]] = self._poll(timeout_s)
        self._watch.begin()
        return ready


class TrioWaits(trio.abc.Instrument):
    """The waits of trio, between steps, too."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def before_io_wait(self, timeout: float) -> None:
        self._watch.end()

    def after_io_wait(self, timeout: float) -> None:
        self._watch.begin()


def install(file: Path, limit_ms: float) -> None:
    lines = file.open("a", buffering=1)
    watch = Watch(limit_ms, lambda step: lines.write(json.dumps(step) + "\n"))
    make_poller, run = HOST.poller, trio.run
    HOST.poller = lambda: WatchedPoller(watch, make_poller())  # type: ignore[method-assign]
    watch.watch(mapped_files.MappedFile, "__init__", "_allocate", "_map_ahead", "write", "flush", "close")
    watch.watch(mapped_files.DataDirectory, "names", "remove", "archive", "flush")
    watch.watch(logging.Logger, "handle")
    began_ns = 0

    def on_collection(phase: str, info: dict[str, int]) -> None:
        nonlocal began_ns
        if phase == "start":
            began_ns = time.monotonic_ns()
        else:
            watch.note(f"gc {info['generation']}", time.monotonic_ns() - began_ns)

    threading.Thread(target=watch.sample, daemon=True).start()
    gc.callbacks.append(on_collection)
    trio.run = lambda main, *arguments: run(main, *arguments, instruments=[TrioWaits(watch)])


def main() -> None:
    install(Path(sys.argv[1]), float(sys.argv[2]))
    sys.argv[:3] = ["bmqctl"]
    from bmqctl.app import main as bmqctl

    bmqctl()


if __name__ == "__main__":
    main()
