"""Settings of Python and the clock of any node at its start."""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from importlib import import_module

from broker.common.clock import Now
from broker.shell.loop.rounds import set_clock

__all__ = ["freeze_collector", "import_beside", "start_clock"]


def start_clock() -> Now:
    """Return the present time."""
    now = Now()
    set_clock(now)
    return now


def freeze_collector() -> None:
    """Exclude present objects from Python's cycle collector, which is off until here, while the store is read.

    A message is freed by its reference count. Otherwise the collector would walk all outstanding messages again and
    again: at a million of them, for a second each time.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 1_000)
    gc.enable()


def import_beside(modules: Sequence[str]) -> threading.Thread:
    """Start to import modules in a thread, and return it.

    A request that first imports a module delays all others: by 50 ms or more for numpy. Imported before the node is
    ready, it would delay the start. A module that cannot be imported, for want of a descriptor too, fails at its use.
    """

    def run() -> None:
        for module in modules:
            try:
                import_module(module)
            except (ImportError, OSError):
                continue

    thread = threading.Thread(target=run, name="imports", daemon=True)
    thread.start()
    return thread
