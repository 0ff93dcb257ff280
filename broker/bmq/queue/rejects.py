# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Rejected messages: each has the number of attempts that its domain allows, and is removed after the last."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import islice
from typing import Final, Protocol

from broker.bmq.core.alarms import alarm
from broker.bmq.core.config import DomainConfig
from broker.bmq.core.messages import Log, Message
from broker.bmq.core.redelivery import Wanted
from broker.bmq.core.statistics import QueueStatistics
from broker.bmq.queue.delivery import release
from broker.bmq.queue.queue_ports import Surroundings
from broker.bmq.queue.reports import hex_dump, rejected_text
from broker.bmq.queue.routing import NEVER_MS, App, Stream
from broker.common.clock import Now
from broker.common.faults import Change
from formats.bmq.disk.journal import ConfirmReason
from formats.errors import FormatError

__all__ = ["PoisonAlarm", "RejectingQueue", "Rejects", "Removing"]

log: Final = logging.getLogger("broker.queue")

# Maximum number of log lines about the messages of a lost client.
REJECT_LINES_MAX: Final = 10


# Minimum time between two alarms of a queue; until then poison messages are removed without an alarm or a file.
PAUSE_MS: Final = 15_000


class Removing(Protocol):
    """The queue that the message is removed from."""

    uri: str
    log: Log

    @property
    def now(self) -> Now: ...

    @property
    def around(self) -> Surroundings: ...


class PoisonAlarm:
    """Alarms for removed poison messages, and dumps of them to files: at most one per queue and `PAUSE_MS`.

    A message is poison if its consumers crashed as often as the domain allows (source: mqbblp::QueueEngineUtil).
    """

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
            path = self._source.around.keep_rejected(text)
        except OSError:
            tail = "Attempt to dump message in a file failed because file could not be created."
        else:
            tail = (
                f"Message was dumped in file at location [{path}] on this machine. "
                "Please copy file before it gets deleted."
            )
        alarm(log, "POISON_PILL", head + tail)


class RejectingQueue(Removing, Protocol):
    """The queue of the messages."""

    config: DomainConfig
    statistics: QueueStatistics

    def gone(self, messages: Sequence[Message]) -> None:
        """Note that no app wants messages any longer and that their deletion is in the log."""
        ...


class Rejects:
    """The treatment of one queue's rejected messages."""

    __slots__ = ("_poison", "_source")

    def __init__(self, source: RejectingQueue) -> None:
        self._source = source
        self._poison = PoisonAlarm(source)

    def reject(self, stream: Stream, guid: bytes, *, told: bool = True) -> None:
        """Decrement the attempts of a message that a consumer failed on; after the last, the app is done with it.

        `told` logs it; the caller decides, since there may be very many.
        """
        attempts_max = self.attempts_max
        if guid not in stream.unconfirmed or attempts_max is None:
            return
        app = stream.app
        left = self.count(app, guid, attempts_max)
        if told:
            self.tell(stream, guid, left + 1)
        if left > 0:
            app.attempts[guid] = left
            return
        with Change(f"the removal of a rejected message of queue '{self._source.uri}'"):
            message, subscription = stream.unconfirmed[guid]
            del stream.unconfirmed[guid]
            release(subscription, message)
            self.give_up(app, stream.sub_queue_id, message, attempts_max)

    @property
    def attempts_max(self) -> int | None:
        """Maximum number of deliveries of a message to an app; None for no limit."""
        return self._source.config.delivery_attempts_max or None

    def count(self, app: App, guid: bytes, attempts_max: int) -> int:
        self._source.statistics.rejects += 1
        return app.attempts.get(guid, attempts_max) - 1

    def tell(self, stream: Stream, guid: bytes, left: int) -> None:
        log.info(
            "[THROTTLED] Queue '%s' rejecting PUSH [GUID: '%s', appId: %s, subQueueId: %d] with the counter: [%d]",
            self._source.uri,
            guid.hex().upper(),
            stream.app.app_id,
            stream.sub_queue_id,
            left,
        )

    def give_up(self, app: App, sub_queue_id: int, message: Message, attempts_max: int) -> None:
        try:
            self._poison.removed(app, sub_queue_id, message, attempts_max)
        except Exception as error:
            what = f"reporting a message that is removed from queue '{self._source.uri}'"
            self._source.around.faults.note(what, error)
        self.finish(app, message)

    def finish(self, app: App, message: Message) -> None:
        app.forget(message)
        self._source.log.settle((message,), app.key, ConfirmReason.REJECTED)
        if not message.outstanding:
            self._source.gone((message,))

    def reject_all(self, stream: Stream) -> Wanted | None:
        """Return a filter that counts the reject of each of a lost consumer's messages as it comes back."""
        attempts_max = self.attempts_max
        if attempts_max is None:
            return None
        app, sub_queue_id = stream.app, stream.sub_queue_id
        for guid in islice(stream.unconfirmed, REJECT_LINES_MAX):
            self.tell(stream, guid, app.attempts.get(guid, attempts_max))

        def wanted(message: Message) -> bool:
            left = self.count(app, message.guid, attempts_max)
            if left > 0:
                app.attempts[message.guid] = left
            else:
                self.give_up(app, sub_queue_id, message, attempts_max)
            return left > 0

        return wanted
