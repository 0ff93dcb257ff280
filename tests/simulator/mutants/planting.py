"""Plants the fault that the environment names when it is imported: also a plugin for pytest, `-p`."""

from __future__ import annotations

import os

from tests.simulator.mutants.catalogue import MUTANTS
from tests.simulator.mutants.planted import plant

__all__ = ["VARIABLE"]

VARIABLE = "BMQCTL_MUTANT"

if VARIABLE in os.environ:
    plant(MUTANTS[os.environ[VARIABLE]])
