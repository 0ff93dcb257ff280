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
    now = Now()
    set_clock(now)
    return now


def freeze_collector() -> None:
    """Exclude present objects from Python's cycle collector, which is off until here, while the store is read.

    Reference counts free messages. The collector would walk all outstanding ones again and again: a million take a
    second.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 1_000)
    gc.enable()


def import_beside(modules: Sequence[str]) -> threading.Thread:
    """Start to import modules in a thread, and return it.

    A request that first imports a module delays all others: by 50 ms or more for numpy. An import before the node is
    ready would delay the start. A module that cannot be imported, even for want of a descriptor, fails at its use.
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
