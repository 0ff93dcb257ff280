"""Time, as the shell last told it: machines never look at a clock of their own."""

from __future__ import annotations

__all__ = ["Now"]


class Now:
    """Set before every step. `wall_s` stamps records (seconds since the epoch), `ms` measures (monotonic)."""

    __slots__ = ("ms", "wall_s")

    def __init__(self, wall_s: int = 0, ms: int = 0) -> None:
        self.wall_s = wall_s
        self.ms = ms
