"""The process of a RocketMQ node, proxy or controller: its end, log, time of day, and dialing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from broker.common.faults import Inconsistent
from broker.rocketmq.config.node import MISREAD, PropertyError, RocketConfig
from broker.rocketmq.raft.journal import JournalDamaged
from broker.rocketmq.store.errors import DiskFull, StoreFileDamaged
from broker.shell.connections.dialing import Connected, Endpoint, addresses_of
from broker.shell.connections.reloading import TlsContext
from broker.shell.files.store_lock import StoreInUse
from broker.shell.loop.server import ListenError, Server
from broker.shell.process import process_end
from broker.shell.process.process_end import Ends

__all__ = ["LOG_NAME", "READ_BYTES", "Deferred", "Logging", "run_to_end", "wall_ms", "warn_of"]

log = logging.getLogger("broker.rocketmq")

LOG_NAME = "bmqctl.log"

# A consumer requests messages when it has the last ones; it must not wait for the answers to thousands of a producer's
# requests, so those are answered in parts.
READ_BYTES = 64 << 10


def _terminates(failure: Inconsistent) -> None:
    log.critical("PANIC the node terminates deliberately: %s", failure, exc_info=failure)


_ENDS = Ends(
    (PropertyError, ListenError, StoreInUse),
    (StoreFileDamaged, DiskFull, JournalDamaged),
    log,
    "node",
    _terminates,
    "stopped",
)


def warn_of(config: RocketConfig, notes: Iterable[str] = ()) -> None:
    """Log properties that are ignored or may be misread, and the notes that are not empty."""
    if config.unused:
        log.warning("unsupported properties ignored: %s", ", ".join(config.unused))
    for name in config.doubts:
        log.warning("%s: its value %s", name, MISREAD)
    for note in filter(None, notes):
        log.warning("%s", note)


@dataclass(frozen=True)
class Logging:
    """The log's settings; see `broker.shell.process.logs.LogController`."""

    console_severity_threshold: str
    file_name: str
    rotation_bytes: int = 64 << 20
    logfile_format: str = ""
    console_format: str = ""
    logging_verbosity: str = "INFO"


class Deferred:
    """Dials, once there is a loop: links are made before it. With `tls`, all connections use it."""

    def __init__(self, tls: TlsContext | None) -> None:
        self.server: Server | None = None
        self._tls = tls

    def dial(self, place: Endpoint, connected: Connected, failed: Callable[[str], None]) -> None:
        """Connect to a place; one of the two functions is called later."""
        assert self.server is not None
        self.server.dial(place._replace(tls=self._tls), connected, failed)

    def look_up(self, host: str, done: Callable[[frozenset[str] | str], None]) -> None:
        """Resolve a host; `done` receives its addresses, or the reason of the failure, later."""
        assert self.server is not None
        self.server.look_up(lambda: addresses_of(host), done)


def run_to_end(run: Callable[[], None]) -> int:
    """Run a node, a proxy or a controller; return the exit code. Faults are one line on stderr."""
    return process_end.run_to_end(run, _ENDS)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000
