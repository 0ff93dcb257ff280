"""Simulate worlds of all kinds, under the fault that is planted in this process if any is, until one of them fails."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext

# First: it plants the fault before anything of the core is imported.
import tests.simulator.mutants.planting  # noqa: F401 isort: skip
from tests.simulator.chances import Chances
from tests.simulator.mutants.mutations import mutated
from tests.simulator.worlds.recipes import KINDS, Recipe, record

__all__ = ["main"]


def main() -> int:
    """The program; 1 if a world failed, and which is printed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--end", type=int, required=True)
    parser.add_argument("--mutation")
    parser.add_argument("--system", choices=KINDS, default="bmq")
    options = parser.parse_args()
    for seed in range(options.first, options.end):
        # A patch counts its calls, so each world gets its own.
        with mutated(options.mutation) if options.mutation else nullcontext():
            failure = record(Recipe(options.system, seed, KINDS[options.system].steps), Chances())
        if failure:
            print(failure)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
