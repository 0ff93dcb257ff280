"""The state of replication in answers to administrators (source: HARuntimeInfo, EpochEntryCache, TimerMetrics)."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from formats.rocketmq.remoting.bodies.codec import BodyCodec
from formats.rocketmq.remoting.bodies.routes import DataVersion

__all__ = [
    "EPOCH_CACHE",
    "HA_RUNTIME",
    "TIMER_METRICS",
    "EpochCache",
    "EpochSpan",
    "HaConnection",
    "HaRuntime",
    "HaSlave",
    "TimerMetrics",
]

_END_UNKNOWN = (1 << 63) - 1


class HaConnection(NamedTuple):
    """A slave, as its master sees it."""

    addr: str
    slave_ack_offset: int
    diff: int
    in_sync: bool
    transferred_byte_in_second: int
    transfer_from_where: int


class HaSlave(NamedTuple):
    """A slave, as it sees itself."""

    master_addr: str | None = None
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_ms: Annotated[int, "lastReadTimestamp"] = 0
    last_write_ms: Annotated[int, "lastWriteTimestamp"] = 0
    master_flush_offset: int = 0
    activated: bool = False


class HaRuntime(NamedTuple):
    """The replication of one broker."""

    master: bool
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[HaConnection] = []
    ha_client_runtime_info: HaSlave = HaSlave()


class EpochSpan(NamedTuple):
    """An epoch and its part of the log; the last one's end is not given."""

    epoch: int
    start_offset: int
    end_offset: int = _END_UNKNOWN


class EpochCache(NamedTuple):
    cluster_name: str
    broker_name: str
    broker_id: int
    epoch_list: list[EpochSpan]
    max_offset: int


class TimerMetrics(NamedTuple):
    """The numbers of timer messages by topic. bmqctl does not count them, and sends a slave none."""

    timing_count: dict[str, str] = {}
    data_version: DataVersion = DataVersion()


EPOCH_CACHE = BodyCodec(EpochCache)
HA_RUNTIME = BodyCodec(HaRuntime)
TIMER_METRICS = BodyCodec(TimerMetrics)
