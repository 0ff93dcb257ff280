# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Monitoring of queues whose consumers do not keep up (source: mqbblp::QueueConsumptionMonitor).

An app is idle, and raises one alarm, while its oldest message that no consumer has is older than `max_idle_ms`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, Protocol

from broker.bmq.core.alarms import alarm
from broker.bmq.core.messages import Message
from broker.bmq.queue.queue_ports import Surroundings
from broker.bmq.queue.reports import Reported, stuck_report
from broker.bmq.queue.routing import App
from broker.common.clock import Now

__all__ = ["ConsumptionMonitor"]

log: Final = logging.getLogger("broker.queue")

IDLE_CHECK_MS_MAX: Final = 30_000


class Watched(Reported, Protocol):
    """The monitored queue."""

    @property
    def apps(self) -> Mapping[str, App]: ...

    @property
    def now(self) -> Now: ...

    @property
    def around(self) -> Surroundings: ...


class ConsumptionMonitor:
    """The monitor of one queue, disabled if `max_idle_ms` is 0. `idle` are the apps for which alarms were raised."""

    def __init__(self, queue: Watched) -> None:
        self._queue = queue
        self.max_idle_ms = 0
        self.idle: set[App] = set()
        self._alarm_at_ms: int | None = None

    def configure(self, max_idle_ms: int) -> None:
        if max_idle_ms == self.max_idle_ms:
            return
        self.max_idle_ms = max_idle_ms
        if not max_idle_ms:
            self.idle.clear()
        elif self._alarm_at_ms is not None:
            self._check()

    def on_post(self) -> None:
        """Handle a new message; called only while there is a limit."""
        if self._alarm_at_ms is None:
            self._schedule(self._queue.now.ms + self.max_idle_ms)

    def on_sent(self, app: App) -> None:
        """Handle a delivery; called only while an app is idle."""
        if app not in self.idle:
            return
        due_ms = self._due_ms(app)
        if due_ms is None or due_ms > self._queue.now.ms:
            if due_ms is not None:
                self._schedule(due_ms)
            self._revive(app)

    def forget(self, app: App) -> None:
        self.idle.discard(app)

    def oldest(self, app: App) -> Message | None:
        """Return the oldest message of the app that no consumer has, or the first one put aside."""
        return next(app.waiting(), None)

    def _due_ms(self, app: App) -> int | None:
        message = self.oldest(app)
        return None if message is None else message.arrived_ms + self.max_idle_ms

    def _schedule(self, at_ms: int) -> None:
        if self._alarm_at_ms is None or at_ms < self._alarm_at_ms:
            self._alarm_at_ms = at_ms
            self._queue.around.timers.at(at_ms, self._on_alarm_time)

    def _on_alarm_time(self) -> None:
        if self._alarm_at_ms is not None and self._alarm_at_ms <= self._queue.now.ms:
            self._check()

    def _check(self) -> None:
        self._alarm_at_ms = None
        if not self.max_idle_ms:
            return
        now_ms = self._queue.now.ms
        for app in self._queue.apps.values():
            if app in self.idle:
                continue
            due_ms = self._due_ms(app)
            if due_ms is None:
                continue
            if due_ms > now_ms:
                self._schedule(due_ms)
                continue
            oldest = self.oldest(app)
            assert oldest is not None
            alarm(log, "QUEUE_STUCK", stuck_report(self._queue, app, oldest, self.max_idle_ms))
            self.idle.add(app)
            self._poll(app)

    def _poll(self, app: App) -> None:
        """Check later whether an app is alive again without a delivery: messages expire, and are purged."""
        at_ms = self._queue.now.ms + min(self.max_idle_ms, IDLE_CHECK_MS_MAX)
        self._queue.around.timers.at(at_ms, lambda: self._on_poll(app))

    def _on_poll(self, app: App) -> None:
        if app not in self.idle:
            return
        due_ms = self._due_ms(app)
        if due_ms is not None and due_ms <= self._queue.now.ms:
            self._poll(app)
            return
        if due_ms is not None:
            self._schedule(due_ms)
        self._revive(app)

    def _revive(self, app: App) -> None:
        self.idle.discard(app)
        log.info("Queue '%s?id=%s' no longer appears to be stuck.", self._queue.uri, app.app_id)
