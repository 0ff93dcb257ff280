"""Coordinator of a run: starts the workers together, decides when the run is over, and adds up their counts."""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any

from bmqctl.bench.plan import Board, CannotStart, Finished, Plan, Ready, Role, SharedCounter, WorkerFailed, monotonic_ns
from bmqctl.bench.schedule import SECOND_NS
from bmqctl.bench.tally import Account, ConsumerTally, ProducerTally, settle
from bmqctl.bench.worker import work

__all__ = ["Outcome", "Progress", "probe", "run_bench"]

POLL_S = 0.05
# From the announcement to the first message: longer than a worker's polling interval.
LEAD_NS = 200_000_000
# The wait for a duplicate or late message after all acked ones have come.
SETTLE_S = 0.2
START_S = 60


@dataclass(frozen=True, slots=True)
class Progress:
    """The counts of a run in progress."""

    elapsed_s: float
    posted: int
    answered: int
    delivered: int
    confirmed: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run's account, and its `faults`, one clause each."""

    plan: Plan
    client: str
    account: Account
    start_ns: int
    faults: tuple[str, ...]
    interrupted: bool

    @property
    def clean(self) -> bool:
        return self.account.clean and not self.faults

    def rate(self, count: int, last_ns: int) -> float:
        elapsed_ns = last_ns - self.start_ns
        return count * SECOND_NS / elapsed_ns if elapsed_ns > 0 else 0.0


@dataclass(slots=True)
class _Worker:
    role: Role
    process: BaseProcess
    pipe: Connection
    indexes: range
    client: str | None = None
    finished: Finished | None = None


def probe(host: str, port: int, timeout_s: float) -> None:
    """Connect and close. Raises `OSError` if nobody listens."""
    socket.create_connection((host, port), timeout=timeout_s).close()


class _Run:
    def __init__(self, plan: Plan) -> None:
        context = multiprocessing.get_context("spawn")
        self.plan = plan
        self.board = Board.make(context, plan.all_producers + plan.all_consumers)
        self.faults: list[str] = []
        self.interrupted = False
        self.workers: list[_Worker] = []
        self._start(context, "consumer", plan.all_consumers, 0)
        self._start(context, "producer", plan.all_producers, plan.all_consumers)

    def _start(self, context: SpawnContext, role: Role, count: int, first_row: int) -> None:
        processes = min(self.plan.shape.processes or count, count)
        for number in range(processes):
            indexes = range(number, count, processes)
            ours, theirs = context.Pipe()
            process = context.Process(
                target=work,
                args=(self.plan, role, indexes, first_row, self.board, theirs),
                name=f"bmqctl bench {role} {number}",
                daemon=True,
            )
            process.start()
            theirs.close()
            self.workers.append(_Worker(role, process, ours, indexes))

    def listen(self, timeout_s: float) -> None:
        """Process the workers' messages. Raises `CannotStart` if one could not begin."""
        open_pipes: dict[Any, _Worker] = {w.pipe: w for w in self.workers if w.finished is None}
        for pipe in wait(list(open_pipes), timeout_s):
            worker = open_pipes[pipe]
            try:
                said = worker.pipe.recv()
            except (EOFError, OSError):
                worker.process.join()
                reason = f"a {worker.role} process ended with status {worker.process.exitcode}"
                if worker.client is None:
                    raise CannotStart(reason) from None
                said = Finished(self._nothing_of(worker), reason)
            match said:
                case Ready(client):
                    worker.client = client
                case WorkerFailed(reason):
                    raise CannotStart(reason)
                case Finished():
                    worker.finished = said
                    if said.fault and said.fault not in self.faults:
                        self.faults.append(said.fault)

    def _nothing_of(self, worker: _Worker) -> tuple[ProducerTally | ConsumerTally, ...]:
        plan = self.plan
        if worker.role == "producer":
            return (ProducerTally(-1),)
        return tuple(ConsumerTally(plan.run, plan.source(index)) for index in worker.indexes)

    def await_ready(self) -> None:
        workers = self.plan.all_producers + self.plan.all_consumers
        timeout_s = START_S + self.plan.connect_timeout_s * 3 + workers
        deadline = time.monotonic() + timeout_s
        while any(w.client is None for w in self.workers):
            self.listen(POLL_S)
            if time.monotonic() > deadline:
                raise CannotStart(f"no queue within {timeout_s:g} s")

    def busy(self, role: Role) -> bool:
        return any(w.finished is None for w in self.workers if w.role == role)

    def progress(self) -> Progress:
        board = self.board
        return Progress(
            max(monotonic_ns() - board.start_ns, 0) / SECOND_NS,
            board.total(SharedCounter.POSTED),
            board.total(SharedCounter.ANSWERED),
            board.total(SharedCounter.DELIVERED),
            board.total(SharedCounter.CONFIRMED),
        )

    def carry_out(self, show: Callable[[Progress], None]) -> None:
        while self.busy("producer") and not self.faults:
            self.listen(POLL_S)
            show(self.progress())
        self.drain(show)

    def drain(self, show: Callable[[Progress], None]) -> None:
        """Wait until the consumers have all copies of every acked message, or receive nothing more."""
        due = sum(tally.acked for tally in self.producer_tallies()) * self.plan.copies
        seen, since = -1, time.monotonic()
        while self.busy("consumer") and not self.faults:
            self.listen(POLL_S)
            progress = self.progress()
            show(progress)
            if progress.delivered != seen:
                seen, since = progress.delivered, time.monotonic()
            elif time.monotonic() - since > (SETTLE_S if seen >= due else self.plan.quiet_s):
                break

    def finish(self) -> None:
        self.board.stop()
        # A worker's own requests time out after this; it reports then.
        deadline = time.monotonic() + self.plan.connect_timeout_s * 3 + 2
        while any(w.finished is None for w in self.workers) and time.monotonic() < deadline:
            self.listen(POLL_S)
        for worker in self.workers:
            if worker.finished is None:
                self.faults.append(f"a {worker.role} process did not stop")

    def end(self) -> None:
        for worker in self.workers:
            if worker.finished is None:
                worker.process.terminate()
            worker.process.join(5)
            worker.pipe.close()

    def producer_tallies(self) -> list[ProducerTally]:
        return [tally for tally in self._tallies() if isinstance(tally, ProducerTally)]

    def consumer_tallies(self) -> list[ConsumerTally]:
        return [tally for tally in self._tallies() if isinstance(tally, ConsumerTally)]

    def _tallies(self) -> Iterator[ProducerTally | ConsumerTally]:
        for worker in self.workers:
            if worker.finished:
                yield from worker.finished.tallies

    def outcome(self) -> Outcome:
        account = settle(self.producer_tallies(), self.consumer_tallies())
        client = next(w.client for w in self.workers if w.client)
        return Outcome(self.plan, client, account, self.board.start_ns, tuple(self.faults), self.interrupted)


def run_bench(plan: Plan, show: Callable[[Progress], None] = lambda _: None) -> Outcome:
    """Run `plan`; `show` is called about 20 times a second.

    Raises `CannotStart` if a worker could not begin, `OSError` without a broker. KeyboardInterrupt ends the run early
    and returns the account so far; a second one propagates.
    """
    probe(plan.host, plan.port, plan.connect_timeout_s)
    run = _Run(plan)
    try:
        run.await_ready()
        run.board.run(monotonic_ns() + LEAD_NS)
        try:
            run.carry_out(show)
        except KeyboardInterrupt:
            # Post nothing more, but wait for messages in flight, which must not count as lost.
            run.interrupted = True
            run.board.enough()
            run.carry_out(show)
        run.finish()
        return run.outcome()
    finally:
        run.end()
