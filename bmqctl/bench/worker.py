"""The body of a worker process: a producer or a consumer, with either client."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from importlib import import_module
from multiprocessing.connection import Connection, wait

from bmqctl.bench.plan import Board, CannotStart, Failed, Finished, Plan, Ready, Role, Seat
from bmqctl.bench.tally import ConsumerTally, ProducerTally

__all__ = ["work"]


GC_THRESHOLD = 100_000


def _die_with_parent() -> None:
    """End this process when the coordinator is gone: nobody would ever stop it otherwise."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def work(plan: Plan, role: Role, index: int, worker: int, board: Board, pipe: Connection) -> None:
    """Run one worker: it sends `Ready` and then `Finished`, or `Failed` alone."""
    # Ctrl-C reaches the whole process group; the coordinator alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    seat = Seat(role, index, worker, board, lambda client: pipe.send(Ready(client)))
    engine = import_module(f"bmqctl.bench.engine_{plan.client}")
    # What exists now lives as long as the process, and what a run makes dies young: to look for more would only show
    # as latency.
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    run: Callable[[Plan, Seat], tuple[ProducerTally | ConsumerTally, str | None]] = (
        engine.produce if role == "producer" else engine.consume
    )
    try:
        tally, fault = run(plan, seat)
    except CannotStart as reason:
        pipe.send(Failed(str(reason)))
    else:
        tally.flush()
        pipe.send(Finished(tally, fault))
