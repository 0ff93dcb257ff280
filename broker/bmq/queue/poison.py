"""Poison messages: those whose consumers crashed as often as the domain allows (source: mqbblp::QueueEngineUtil)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from broker.bmq.core.alarms import alarm
from broker.bmq.core.messages import Log, Message
from broker.bmq.queue.reports import hex_dump, rejected_text
from broker.bmq.queue.routing import NEVER_MS, App
from broker.common.clock import Now
from formats.errors import FormatError

__all__ = ["PoisonAlarm", "Removing"]

log: Final = logging.getLogger("broker.queue")

# Minimum time between two alarms of a queue; further poison messages are removed without an alarm or a file.
PAUSE_MS: Final = 15_000


class Removing(Protocol):
    """The queue that the message is removed from."""

    uri: str
    log: Log

    @property
    def now(self) -> Now: ...

    @property
    def keep_rejected(self) -> Callable[[str], str]: ...


class PoisonAlarm:
    """Raises an alarm for removed poison messages, and dumps them to files: at most one per queue and `PAUSE_MS`."""

    def __init__(self, source: Removing) -> None:
        self._source = source
        self._last_ms = NEVER_MS

    def removed(self, app: App, sub_queue_id: int, message: Message, attempts: int) -> None:
        """Raise the alarm for a message, which must still be in the log, before it is removed for an app."""
        now_ms = self._source.now.ms
        if now_ms - self._last_ms < PAUSE_MS:
            return
        self._last_ms = now_ms
        head = (
            f"A poison pill message was detected and purged from the queue {self._source.uri} "
            f"[GUID: {message.guid.hex().upper()}, appId: {app.app_id}, subQueueId: {sub_queue_id}]. "
            f"Message was transmitted a total of {attempts} times to consumer(s). "
        )
        data = memoryview(self._source.log.read(message))
        try:
            text = rejected_text(data, message)
        except FormatError as error:
            alarm(
                log, "POISON_PILL", f"{head}BlazingMQ failed to load message properties: {error}. Dumping raw message."
            )
            text = f"Application Data:\n\n{hex_dump(data)}"
        try:
            path = self._source.keep_rejected(text)
        except OSError:
            tail = "Attempt to dump message in a file failed because file could not be created."
        else:
            tail = (
                f"Message was dumped in file at location [{path}] on this machine. "
                "Please copy file before it gets deleted."
            )
        alarm(log, "POISON_PILL", head + tail)
