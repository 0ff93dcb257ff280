"""The body of a worker process, for producers or consumers with one of the clients."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from importlib import import_module
from multiprocessing.connection import Connection, wait
from typing import TypeVar

from bmqctl.bench.plan import Board, CannotStart, Finished, Plan, Ready, Role, Seat, WorkerFailed
from bmqctl.bench.tally import ConsumerTally, ProducerTally

__all__ = ["work"]


GC_THRESHOLD = 100_000

T = TypeVar("T", bound=ProducerTally | ConsumerTally)


def _die_with_parent() -> None:
    """End this process when the coordinator is gone: nothing else would."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def work(plan: Plan, role: Role, indexes: range, first_row: int, board: Board, pipe: Connection) -> None:
    """Run a worker with a seat for each of `indexes`: it sends `Ready` and then `Finished`, or only `WorkerFailed`.

    Only our own BlazingMQ client runs several seats in a process. The seats' rows of the board begin at `first_row`.
    """
    # Ctrl-C reaches the whole process group; only the coordinator acts on it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    waiting = len(indexes)

    def ready(client: str) -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            pipe.send(Ready(client))

    seats = [Seat(role, index, first_row + index, board, ready) for index in indexes]
    engine = import_module(f"bmqctl.bench.engines.{plan.client}")
    # Existing objects live as long as the process, and a run's die young: collecting them would only add latency.
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    run = engine.produce if role == "producer" else engine.consume
    try:
        tallies, fault = run(plan, seats) if plan.client == "own" else _alone(run, plan, seats)
    except CannotStart as reason:
        pipe.send(WorkerFailed(str(reason)))
    else:
        for tally in tallies:
            tally.flush()
        pipe.send(Finished(tuple(tallies), fault))


def _alone(
    run: Callable[[Plan, Seat], tuple[T, str | None]], plan: Plan, seats: list[Seat]
) -> tuple[list[T], str | None]:
    (seat,) = seats
    tally, fault = run(plan, seat)
    return [tally], fault
