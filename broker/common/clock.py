# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The time as last set by the shell: machines never read a clock themselves."""

from __future__ import annotations

__all__ = ["Now"]


class Now:
    """The time of the current step: `wall_s` for records (seconds since the epoch), `ms` for durations (monotonic).

    `part_ms` is the number of milliseconds since the beginning of the second `wall_s`.
    """

    __slots__ = ("ms", "part_ms", "wall_s")

    def __init__(self, wall_s: int = 0, ms: int = 0, part_ms: int = 0) -> None:
        self.wall_s = wall_s
        self.ms = ms
        self.part_ms = part_ms
