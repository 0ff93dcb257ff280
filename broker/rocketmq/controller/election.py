"""The choice of a master (source: DefaultElectPolicy)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.rocketmq.controller.liveness import Live

__all__ = ["choose_master"]


def choose_master(
    members: Iterable[int],
    others: Iterable[int],
    alive: Mapping[int, Live],
    master: int | None,
    wanted: int | None = None,
) -> int | None:
    """Return the broker to be master: one in sync or, if none of these can be, one of `others`; None without one.

    `others` may be elected uncleanly. Only live brokers are elected. A live master stays, unless another one is
    `wanted`, which then is the only candidate. Otherwise the best broker has the highest epoch, then the longest log,
    then the least priority, then the least id.
    """
    for candidates in (members, others):
        there = [each for each in candidates if each in alive]
        if master in there and wanted in (None, master):
            return master
        if wanted is not None:
            if wanted in there:
                return wanted
        elif there:
            return min(there, key=lambda each: _rank(each, alive[each]))
    return None


def _rank(broker_id: int, live: Live) -> tuple[int, int, int, int]:
    return -live.epoch, -live.max_offset, live.priority, broker_id
