"""Alarms about a cluster that is unhealthy for longer than configured (source: mqbblp::ClusterStateMonitor).

Every `CHECK_MS` the monitor looks at the leader, the primary of each partition, each connected node, and queues that
are being reopened after a fail-over. A subject that is unhealthy for its threshold is logged; at its maximum, and at
intervals of that, it raises `PANIC [CLUSTER_STATE_MONITOR]`. One alarm stands for all subjects that fail until the
whole cluster is healthy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

from broker.bmq.core.alarms import panic
from broker.common.clock import Now
from broker.common.timers import Timers

__all__ = ["CHECK_MS", "Limits", "MonitorLimits", "Observed", "StateMonitor"]

log: Final = logging.getLogger("broker.monitor")

CHECK_MS: Final = 10_000


class Limits(NamedTuple):
    """Times, in milliseconds, after which an unhealthy subject is logged and raises an alarm."""

    threshold_ms: int
    max_ms: int


class MonitorLimits(NamedTuple):
    """The limits of each kind of subject."""

    leader: Limits
    partition: Limits
    node: Limits
    failover: Limits


class Observed(NamedTuple):
    """The state of a cluster at one time.

    `has_leader` is True if the leader's state is agreed on. `partitions` shows whether each primary serves its
    partition, `nodes` whether each is available or not connected: an absent node raises no alarm of its own.
    `reopening` counts queues that are being reopened. `problems` are lines for the operator.
    """

    has_leader: bool
    partitions: Mapping[int, bool]
    nodes: Mapping[int, bool]
    reopening: int
    problems: tuple[str, ...]


class _State(Enum):
    INVALID = "invalid"
    THRESHOLD = "above the threshold"
    VALID = "valid"
    ALARMING = "alarming"


class _Subject:
    def __init__(self, limits: Limits, bad: str, still: str, now_ms: int) -> None:
        self.limits = limits
        self.bad = bad
        self.still = still
        self.state = _State.INVALID
        self._valid_ms = now_ms
        self._alarmed_ms = now_ms
        self._threshold_ms: int | None = None

    def take(self, now_ms: int, *, is_valid: bool) -> bool:
        """Take an observation; return True if the state changed to `THRESHOLD` or `ALARMING`."""
        before = self.state
        if is_valid:
            self.state, self._valid_ms, self._threshold_ms = _State.VALID, now_ms, None
            return False
        if before is _State.ALARMING:
            return False
        lasted_ms = now_ms - self._valid_ms
        if lasted_ms >= self.limits.max_ms:
            self.state, self._alarmed_ms = _State.ALARMING, now_ms
        elif lasted_ms >= self.limits.threshold_ms:
            self.state = _State.THRESHOLD
        else:
            self.state = _State.INVALID
        return self.state is not before and self.state is not _State.INVALID

    def is_due(self, now_ms: int) -> bool:
        """Return True if the alarm is to be repeated now, and count it as repeated."""
        if self.state is not _State.ALARMING or now_ms - self._alarmed_ms < max(CHECK_MS, self.limits.max_ms):
            return False
        self._alarmed_ms = now_ms
        return True

    def is_threshold_due(self, now_ms: int) -> bool:
        """Return True each time that the threshold has passed while the subject is above it."""
        if self.state not in (_State.THRESHOLD, _State.ALARMING):
            return False
        if self._threshold_ms is not None and now_ms - self._threshold_ms < self.limits.threshold_ms:
            return False
        self._threshold_ms = now_ms
        return True


class StateMonitor:
    """The monitor of one cluster; `observe` returns its state, or None when the node no longer takes part."""

    def __init__(
        self,
        name: str,
        limits: MonitorLimits,
        now: Now,
        timers: Timers,
        observe: Callable[[], Observed | None],
        *,
        is_proxy: bool = False,
    ) -> None:
        self._name = name
        self._limits = limits
        self._now = now
        self._timers = timers
        self._observe = observe
        self._is_proxy = is_proxy
        self._begun_ms = now.ms
        self._subjects: dict[tuple[str, int], _Subject] = {}
        self._has_alarmed = False
        self._has_noted = False

    def start(self) -> None:
        self._begun_ms = self._now.ms
        self._check()

    def _check(self) -> None:
        observed = self._observe()
        if observed is None:
            return
        self._judge(observed, self._now.ms)
        self._timers.at(self._now.ms + CHECK_MS, self._check)

    def _judge(self, observed: Observed, now_ms: int) -> None:
        is_well, bad, noted = True, [], False
        for subject, is_valid in self._watched(observed):
            is_well = is_well and is_valid
            if subject.take(now_ms, is_valid=is_valid):
                noted = True
                if subject.state is _State.ALARMING:
                    bad.append(subject.bad)
        if bad and not self._has_alarmed:
            self._has_alarmed = True
            self._panic("is in a bad state", bad, observed)
        elif noted and not (self._has_alarmed or self._has_noted):
            self._has_noted = True
            lines = "\n".join(observed.problems)
            log.info("'%s' has been in invalid state above the threshold amount of time.\n%s", self._name, lines)
        elif is_well and (self._has_alarmed or self._has_noted):
            self._has_alarmed = self._has_noted = False
            log.info("'%s' is back to healthy state.", self._name)
        self._repeat(observed, now_ms)

    def _repeat(self, observed: Observed, now_ms: int) -> None:
        """Raise again the alarms that are due."""
        subjects = self._subjects
        failover = subjects["failover", 0]
        if failover.is_threshold_due(now_ms):
            seconds = failover.limits.threshold_ms // 1000
            text = (
                f"'{self._name}' has not completed the failover process above the threshold amount of {seconds} s. "
                f"There are {observed.reopening} pending reopen-queue requests."
            )
            if self._is_proxy:
                panic(log, "CLUSTERPROXY", text)
            else:
                panic(log, "CLUSTER", text)
        still = [subject.still for _, subject in sorted(subjects.items()) if subject.is_due(now_ms)]
        if still:
            self._panic("is still in a bad state", still, observed)

    def _panic(self, state: str, lines: list[str], observed: Observed) -> None:
        text = "\n".join([f"'{self._name}' {state}.", *lines, *observed.problems])
        panic(log, "CLUSTER_STATE_MONITOR", text)

    def _watched(self, observed: Observed) -> Iterator[tuple[_Subject, bool]]:
        limits = self._limits
        for number, is_valid in observed.partitions.items():
            name = f"Partition [{number}]"
            yield self._subject("partition", number, limits.partition, name, f"{name} is orphaned"), is_valid
        for number, is_valid in observed.nodes.items():
            name = f"Node [{number}]"
            yield self._subject("node", number, limits.node, name, f"{name} is unavailable"), is_valid
        still = "Cluster leader is not active"
        yield self._subject("leader", 0, limits.leader, "State of the leader", still), observed.has_leader
        still = "Failover is not completed"
        yield self._subject("failover", 0, limits.failover, "State of failover process", still), not observed.reopening

    def _subject(self, kind: str, number: int, limits: Limits, name: str, still: str) -> _Subject:
        found = self._subjects.get((kind, number))
        if found is None:
            found = _Subject(limits, f"{name} goes to alarming state", still, self._begun_ms)
            self._subjects[kind, number] = found
        return found
