# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A hold on the expiry of restored messages, whose age depends on clocks that may be wrong.

A primary removes expired messages continuously. If a new primary finds more than half of a queue expired, much time has
passed without a primary, or a clock is wrong. If messages had expired before the newest record was written, a clock was
set in between, or the time to live was longer. If messages are younger than the newest record, a clock was set.

| known                                                 | effect                                               |
| --- | --- |
| this node was a replica until the end: its monotonic  | messages expire by that time, whatever this node's   |
| clock has measured the time since                     | wall clock says                                      |
| the newest record is not older than `TOLERANCE_S`     | messages expire                                      |
| the clocks of all other nodes differ from this one's  | an alarm; nothing expires for `GRACE_MS`, nor until  |
|                                                       | one of them agrees, but at most for the messages'    |
|                                                       | time to live from then on                            |
| the clock of another node agrees with this one's      | an alarm; nothing expires for `GRACE_MS`             |
| nothing, as on a single node                          | an alarm; nothing expires for `GRACE_MS`             |
| messages had expired when the newest record was made: | an alarm; nothing expires for `GRACE_MS`             |
| one for `TOLERANCE_S`, or more than half for `LAG_S`  |                                                      |

Agreement of the nodes' clocks proves the present time, but not the time of the records: the former primary's clock may
have been set back. No message is held for longer than its time to live. During a hold the operator can set the clock
back, which makes the messages younger by as much, or, if the clock is right, keep them by a longer time to live.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from broker.bmq.core.alarms import alarm
from broker.bmq.core.clocks import ALARM, TOLERANCE_S, Clocks, HeardRecord, span
from broker.bmq.queue.queue import Queue
from broker.common.clock import Now

__all__ = ["ExpiryHold", "RestoredQueue", "Restoring", "hold_expiry"]

log: Final = logging.getLogger("broker.queue")

GRACE_MS: Final = 300_000
# A primary removes most messages within this time of their expiry, unless it holds the expiry because its clock is
# wrong: its records carry that clock's time, and the next primary's clock seems to agree with them.
LAG_S: Final = 10
QUEUES_NAMED: Final = 3


class Restoring(NamedTuple):
    """A partition that this node begins to serve.

    `newest_s` is the time of its newest record, in seconds since the epoch. `wall_ms` is the present time: by the clock
    of the records' writer if `is_measured`, else by this node's.
    """

    partition_id: int
    newest_s: int
    wall_ms: int
    is_measured: bool

    @classmethod
    def of(cls, partition_id: int, newest_s: int, heard: HeardRecord | None, now: Now) -> Restoring:
        if heard is not None:
            wall_ms = heard.timestamp * 1000 + now.ms - heard.ms
            # Otherwise a primary with another clock has written since, unheard by this node.
            if heard.timestamp - TOLERANCE_S <= newest_s <= wall_ms // 1000 + TOLERANCE_S:
                return cls(partition_id, newest_s, wall_ms, True)
        return cls(partition_id, newest_s, now.wall_s * 1000, False)


class RestoredQueue(NamedTuple):
    """A restored queue, and the numbers of its messages by arrival in milliseconds of the monotonic clock."""

    queue: Queue
    arrivals: Counter[int]


class ExpiryHold:
    """A hold on the expiry of a queue's restored messages.

    `waits_for_clock` is True if nothing may expire while all other nodes' clocks disagree with this one.
    """

    __slots__ = ("_clocks", "_distance_ms", "_now", "_waits_for_clock", "since_ms")

    def __init__(self, now: Now, clocks: Clocks, *, waits_for_clock: bool) -> None:
        self._now = now
        self._clocks = clocks
        self._waits_for_clock = waits_for_clock
        self._distance_ms = now.wall_s * 1000 - now.ms
        self.since_ms = now.ms

    def holds(self, ttl_s: int) -> bool:
        held_ms = self._now.ms - self.since_ms
        is_alone = self._waits_for_clock and self._clocks.agrees is False
        return held_ms < (ttl_s * 1000 if is_alone else min(ttl_s * 1000, GRACE_MS))

    @property
    def younger_ms(self) -> int:
        """Milliseconds by which the clock was set back since."""
        return max(0, self._distance_ms - (self._now.wall_s * 1000 - self._now.ms))


class Due(NamedTuple):
    """A queue, and the number of its messages that would expire at once."""

    queue: Queue
    number: int


def hold_expiry(restored: Iterable[RestoredQueue], about: Restoring, now: Now, clocks: Clocks) -> None:
    """Hold the expiry of restored queues whose messages' ages are in doubt, and raise an alarm for them."""
    ahead_s = now.wall_s - about.wall_ms // 1000
    if abs(ahead_s) > TOLERANCE_S:
        way = "ahead of" if ahead_s > 0 else "behind"
        text = f"The clock of this node is {span(abs(ahead_s))} {way} the former primary's"
        alarm(log, ALARM, f"Partition [{about.partition_id}]: {text}. Messages expire by the time that has passed")
    elif about.newest_s - now.wall_s > TOLERANCE_S:
        text = f"The clock of this node is {span(about.newest_s - now.wall_s)} behind the newest record"
        alarm(log, ALARM, f"Partition [{about.partition_id}]: {text}. Messages expire later by as much")
    gap_ms = max(0, about.wall_ms - about.newest_s * 1000)
    is_gap = gap_ms > TOLERANCE_S * 1000 and not about.is_measured
    newest_ms = now.ms - gap_ms + TOLERANCE_S * 1000
    by_gap: list[Due] = []
    by_record: list[Due] = []
    for queue, arrivals in restored:
        ttl_s = queue.config.message_ttl_s
        if ttl_s is None or not queue.messages:
            continue
        before_ms = now.ms - ttl_s * 1000
        at_record_ms = before_ms - gap_ms
        count = _count(arrivals, before_ms)
        if _count(arrivals, at_record_ms - TOLERANCE_S * 1000):
            by_record.append(Due(queue, count))
        elif is_gap and count and (_is_most(queue, count) or max(arrivals) > newest_ms):
            by_gap.append(Due(queue, count))
        elif _is_most(queue, _count(arrivals, at_record_ms - LAG_S * 1000)):
            by_record.append(Due(queue, count))
    if by_gap:
        _judge_gap(by_gap, about, now, clocks)
    if by_record:
        for queue, _ in by_record:
            queue.upkeep.expiry_hold = ExpiryHold(now, clocks, waits_for_clock=False)
        text = "by their records' times, although their primary had not expired them: its clock may have been set"
        _tell(by_record, about, f"{text}. They expire {_later(by_record)}")


def _judge_gap(due: list[Due], about: Restoring, now: Now, clocks: Clocks) -> None:
    for queue, _ in due:
        queue.upkeep.expiry_hold = ExpiryHold(now, clocks, waits_for_clock=True)
    agrees = clocks.agrees
    text = f"by this node's clock, which is {span(now.wall_s - about.newest_s)} ahead of the newest record"
    if agrees:
        text += ", and like another node's. If the former primary's was behind, give them longer to live"
        _tell(due, about, f"{text}: they expire {_later(due)}")
    elif agrees is None:
        _tell(due, about, f"{text}. If it is wrong, correct it: they expire {_later(due)}")
    else:
        _tell(due, about, f"{text}, and unlike all other nodes' clocks. They do not expire until it is corrected")


def _later(due: list[Due]) -> str:
    lives = [queue.config.message_ttl_s or 0 for queue, _ in due]
    return f"in {span(min(max(lives), GRACE_MS // 1000))}"


def _tell(due: list[Due], about: Restoring, text: str) -> None:
    count, total = sum(each.number for each in due), sum(len(queue.messages) for queue, _ in due)
    names = ", ".join(f"'{queue.uri}'" for queue, _ in due[:QUEUES_NAMED])
    names += f" and {len(due) - QUEUES_NAMED} more" if len(due) > QUEUES_NAMED else ""
    whose = f"{count} of {total} messages of {names} have outlived their time to live"
    alarm(log, ALARM, f"Partition [{about.partition_id}]: {whose} {text}.")


def _count(arrivals: Counter[int], before_ms: int) -> int:
    """Count the messages that arrived earlier. Records are out of order if a clock was set."""
    return sum(count for arrived_ms, count in arrivals.items() if arrived_ms < before_ms)


def _is_most(queue: Queue, count: int) -> bool:
    return 2 * count > len(queue.messages)
