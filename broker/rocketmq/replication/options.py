"""The options of replication; names and defaults are the original's (source: MessageStoreConfig, BrokerRole)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["ReplicationOptions", "Role"]


class Role(Enum):
    """The part that a broker plays among those of its name."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(slots=True)
class ReplicationOptions:
    """The options of a master or of a slave. Administrators change some while it runs: holders of this object see that.

    `in_sync_replicas` counts the master itself. `master_address` is a slave's master, if it is not to be learnt from
    nameservers. `from_last_file`: a new slave gets the last file of the log only. Slaves connect to `port`; 0 is the
    port behind the broker's, and without one there are none. Consumers are far behind if what they need next is further
    from the log's end than `memory_percent` of this machine's memory. With a
    controller, a slave that was not caught up for `behind_ms_max` is no longer in sync.
    """

    role: Role = Role.ASYNC_MASTER
    in_sync_replicas: int = 1
    slave_timeout_ms: int = 3_000
    gap_bytes_max: int = 256 << 20
    heartbeat_ms: int = 5_000
    silence_ms: int = 20_000
    piece_bytes: int = 32 << 10
    from_last_file: bool = False
    slave_read: bool = False
    master_address: str | None = None
    port: int | None = None
    memory_percent: int = 40
    behind_ms_max: int = 15_000
