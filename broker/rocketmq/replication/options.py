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
    """The options of a master or of a slave. Administrators change some at run time; holders of this object see that.

    `in_sync_replicas` counts the master itself. `master_address` is a slave's master; empty to get it from nameservers.
    With `from_last_file`, a new slave gets only the last file of the log. Slaves connect to `port`; 0 is the broker's
    port plus 1, None admits no slaves. A consumer lags if its next message is further from the log's end than
    `memory_percent` of this machine's memory.

    With `is_controlled`, the controllers at the addresses `controllers` appoint the master. A slave that was not caught
    up for `behind_ms_max` is no longer in sync; this is checked every `check_ms`. With `all_in_sync`, senders wait for
    all brokers in sync. They are refused if those are fewer than `in_sync_replicas_min`. This broker sends controllers
    a heartbeat every `beat_ms`; they take it for gone after `gone_ms`, and prefer a low `priority`. It requests the
    master every `sync_ms`, and their leader every `leader_ms`.

    With `has_acting_master`, and without a controller, the slave with the least id stands in for a master that is gone:
    consumers read from it. This broker sends nameservers a heartbeat every `beat_ms`; they take it for gone after
    `silent_ms`. It requests the other brokers every `members_ms`. Senders are refused if fewer brokers are in sync than
    `in_sync_replicas`, or, if that is adapted by `auto_in_sync`, than `in_sync_replicas_min`. Before a master
    registers, it requests consumer offsets from the others of the `total_replicas` brokers.
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
    is_controlled: bool = False
    controllers: tuple[str, ...] = ()
    check_ms: int = 5_000
    all_in_sync: bool = False
    in_sync_replicas_min: int = 1
    beat_ms: int = 1_000
    gone_ms: int = 10_000
    priority: int = (1 << 31) - 1
    sync_ms: int = 5_000
    leader_ms: int = 10_000
    has_acting_master: bool = False
    auto_in_sync: bool = False
    total_replicas: int = 1
    silent_ms: int = 10_000
    members_ms: int = 1_000
