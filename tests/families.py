"""Parameters of tests that have many cases of one kind, of which a few are enough while somebody works."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

__all__ = ["examples", "mostly_slow", "sweep"]


def mostly_slow(cases: Iterable[Any], fast: int) -> list[Any]:
    """Mark all cases but the first `fast` as slow."""
    every = list(cases)
    return [*every[:fast], *(pytest.param(case, marks=pytest.mark.slow) for case in every[fast:])]


def sweep(seeds: Iterable[Any], fast: int) -> list[Any]:
    """Mark all seeds but the first `fast` as slow, and as those of which a run takes some only: see `--calls`."""
    every = list(seeds)
    slow = [pytest.param(seed, marks=[pytest.mark.slow, pytest.mark.sweep(n)]) for n, seed in enumerate(every[fast:])]
    return [*every[:fast], *slow]


def examples(count: int) -> int:
    """Return the number of a property's examples: `count` for `scripts/explore`, half of them for other runs."""
    return count * settings().max_examples // 100
