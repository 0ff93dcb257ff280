"""Settings of Python and the clocks that every node makes as it starts, whichever system it serves."""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from importlib import import_module

from broker.common.clock import Now
from broker.shell.loop.rounds import set_clock

__all__ = ["freeze_collector", "import_beside", "start_clock"]


def start_clock() -> Now:
    """Return the time, as it is now."""
    now = Now()
    set_clock(now)
    return now


def freeze_collector() -> None:
    """Keep Python's cycle collector off what cannot be garbage; it rests until here, while the store is read.

    A message is freed by its reference count. Left alone, the collector would walk all that are outstanding again
    and again: at a million of them, for a second each time.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 1_000)
    gc.enable()


def import_beside(modules: Sequence[str]) -> threading.Thread:
    """Import modules in a thread, which is returned.

    A module that is first imported by a request holds up all others: numpy by 50 ms or more. Imported before the node
    is ready, it would delay the start. A module that cannot be imported fails where it is used.
    """

    def run() -> None:
        for module in modules:
            try:
                import_module(module)
            except ImportError:
                continue

    thread = threading.Thread(target=run, name="imports", daemon=True)
    thread.start()
    return thread
