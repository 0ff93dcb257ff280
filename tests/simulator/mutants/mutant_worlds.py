"""Plays worlds under a planted fault, in a process that is forked from a loaded one.

Only the faulty module and its importers are loaded again: see `unload`.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from importlib import import_module
from multiprocessing.connection import Connection
from typing import NamedTuple

from tests.simulator.chances import Chances
from tests.simulator.mutants.imports import importers
from tests.simulator.mutants.planted import ROOT, Mutant, plant
from tests.simulator.worlds import recipes

__all__ = ["PROCESS_S_MAX", "Broken", "Failure", "first_failure", "unload"]

PROCESS_S_MAX = 3600
_FORKED = multiprocessing.get_context("fork")


class Failure(NamedTuple):
    """A world that fails, and its message."""

    seed: int
    says: str


class Broken(Exception):
    """A process ended without a verdict."""


def first_failure(fault: Mutant | str, seeds: Iterable[int], *, system: str) -> Failure | None:
    """Return the first world that fails under a fault, which is a mutant or the name of a mutation; none if empty.

    Raises `Broken`.
    """
    receiver, sender = _FORKED.Pipe(duplex=False)
    process = _FORKED.Process(target=_play, args=(sender, fault, list(seeds), system))
    process.start()
    sender.close()
    try:
        if not receiver.poll(PROCESS_S_MAX):
            raise Broken(f"worlds of {system} are not over after {PROCESS_S_MAX} s")
        verdict = receiver.recv()
    except EOFError:
        process.join()
        raise Broken(f"the process ended without a verdict: exit code {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
        receiver.close()
    if isinstance(verdict, str):
        raise Broken(f"the process failed: {verdict}")
    found, says = verdict
    return Failure(found, says) if says else None


def _play(sender: Connection, fault: Mutant | str, seeds: list[int], system: str) -> None:
    """Send the first seed that fails and its message; an empty message if none does, and a text if playing fails."""
    try:
        if isinstance(fault, Mutant):
            unload(fault.module)
            plant(fault)
        # Looked up here: the modules above are those from before the fault was planted.
        made = import_module("tests.simulator.worlds.recipes")
        mutated = import_module("tests.simulator.mutants.mutations").mutated
        for seed in seeds:
            # A patch counts its calls, so each world gets its own.
            with mutated(fault) if fault and isinstance(fault, str) else nullcontext():
                says = made.record(made.Recipe(system, seed, recipes.KINDS[system].steps), Chances())
            if says:
                sender.send((seed, says.partition(": ")[2]))
                return
        sender.send((0, ""))
    except BaseException as error:
        sender.send(f"{type(error).__name__}: {error}")


def unload(name: str) -> None:
    """Have a module, and all that import it, loaded again when they are imported next."""
    for each in importers(name, ROOT):
        module = sys.modules.pop(each, None)
        package, _, own = each.rpartition(".")
        if module is not None and getattr(sys.modules.get(package), own, None) is module:
            # "from package import module" would find it there.
            delattr(sys.modules[package], own)
