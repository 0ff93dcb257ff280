"""File descriptors: how many there may be, and how many of them may be connections.

What the store opens later (a rollover's files, the next ledger, a folder) must find a descriptor, and so must links
that this broker dials. So connections that come in are refused before descriptors run out.
"""

from __future__ import annotations

import logging
import resource
from pathlib import Path

__all__ = ["Refusals", "connections_max", "descriptors_in_use", "raise_limit"]

log = logging.getLogger("broker.server")

# Threads that look up names, files that say what was rejected, a log that rotates, and some to spare.
RESERVE = 64
# The files that a partition opens while it still has its old ones, for a rollover or to heal.
FILES_PER_PARTITION = 4

PAUSE_MS = 1_000


def raise_limit() -> int:
    """Raise the soft limit of descriptors to the hard one; the limit that is in force then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.warning("the limit of %d file descriptors cannot be raised to %d: %s", soft, hard, error)
        return soft
    return hard


def descriptors_in_use() -> int:
    """How many descriptors this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def connections_max(configured: int, limit: int, in_use: int, partitions: int, peers: int) -> int:
    """How many connections there may be: as many as `maxConnections` says, and descriptors allow.

    `configured` is 0 for no limit of its own; `peers` are links that this broker dials. `limit` may be infinite (-1).
    """
    if limit < 0:
        return configured if configured > 0 else 1 << 62
    free = limit - in_use - RESERVE - FILES_PER_PARTITION * partitions - 2 * peers
    possible = max(1, free)
    if 0 < configured <= possible:
        return configured
    if configured > 0:
        log.warning(
            "maxConnections is %d, but the limit of %d file descriptors leaves room for %d connections; raise it "
            "(ulimit -n, LimitNOFILE)",
            configured,
            limit,
            possible,
        )
    return possible


class Refusals:
    """Tells of connections that are refused, in at most one line in `PAUSE_MS`."""

    def __init__(self) -> None:
        self._told_ms = -PAUSE_MS
        self._untold = 0

    def add(self, why: str, now_ms: int) -> None:
        """One more is refused."""
        if now_ms - self._told_ms < PAUSE_MS:
            self._untold += 1
            return
        more = f" (and {self._untold} more since the last such line)" if self._untold else ""
        log.error("#TCP_CONNECTION_REFUSED %s%s", why, more)
        self._told_ms, self._untold = now_ms, 0
