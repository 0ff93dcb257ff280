"""File descriptors: their limit, and the limit of connections derived from it.

Incoming connections are refused before descriptors run out, and so are files that clients can have created in any
number: the store opens files later (a rollover's files, the next ledger, a folder), and this broker dials links.
"""

from __future__ import annotations

import logging
import resource
from contextlib import suppress
from pathlib import Path

__all__ = [
    "DESCRIPTORS_PER_FILE",
    "connections_max",
    "descriptors_in_use",
    "mapped_files_max",
    "mappings_max",
    "raise_limit",
]

log = logging.getLogger("broker.server")

# For threads that resolve names, dumps of rejected messages, log rotation, and a margin.
RESERVE = 64
# Files that a partition opens while its old ones are still open, for a rollover or to heal.
FILES_PER_PARTITION = 4

# A mapped file's own descriptor, and the interpreter's copy of it.
DESCRIPTORS_PER_FILE = 2
# The part that is written to, which has a mapping of its own, and those before and after it.
MAPPINGS_PER_FILE = 3
# For libraries, threads and memory.
MAPPINGS_RESERVE = 4096
# The kernel's own default.
_MAPPINGS = 65_530

# The limit of descriptors that macOS sets where the hard limit is none (source: sys/syslimits.h).
OPEN_MAX = 10_240


def raise_limit() -> int:
    """Raise the soft limit of descriptors to the hard one; return the result."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        if 0 <= soft < OPEN_MAX < hard or hard < 0 <= soft < OPEN_MAX:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_MAX, hard))
                return OPEN_MAX
        log.warning("the limit of %d file descriptors cannot be raised to %d: %s", soft, hard, error)
        return soft
    return hard


def descriptors_in_use() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


def connections_max(configured: int, limit: int, in_use: int, partitions: int, peers: int) -> int:
    """Return the limit of connections: `maxConnections`, or fewer if descriptors are short.

    `configured` is 0 for no limit; `peers` are links that this broker dials. `limit` may be infinite (-1).
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


def mappings_max() -> int:
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return _MAPPINGS


def mapped_files_max(limit: int, connections: int, mappings: int) -> int:
    """Return the number of files that may be mapped at once, so that connections have descriptors, too.

    If there are not enough for all configured connections, each side gets one half. `limit` may be infinite (-1).
    """
    by_mappings = max(mappings - MAPPINGS_RESERVE, mappings // 2) // MAPPINGS_PER_FILE
    if limit < 0:
        return by_mappings
    free = max(0, limit - RESERVE)
    return max(1, min(by_mappings, max(free - connections, free // 2) // DESCRIPTORS_PER_FILE))
