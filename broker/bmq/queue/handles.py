# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A client's handle of a queue: its permissions, and the streams that it reads (source: mqbblp::QueueHandle)."""

from __future__ import annotations

from typing import Final

from broker.bmq.core.messages import Sink
from broker.bmq.queue.queue import Queue
from broker.bmq.queue.routing import Stream
from broker.common.faults import Change
from formats.bmq.codes import DEFAULT_APP_ID, QueueFlag
from formats.bmq.control.messages import QueueHandleParameters, Status, StatusCategory

__all__ = ["Handle", "Refusal", "app_id_of", "check_limits", "check_open", "give_back", "wire_id"]


# The reference reserves ids from here on (bmqp::QueueId::k_RESERVED_QUEUE_ID).
RESERVED_QUEUE_ID: Final = 0xFFFF_FFFE - 9

# Confirms can wait a millisecond if this much may be sent and posted without them: more than comes meanwhile.
SLACK_MESSAGES: Final = 256
SLACK_BYTES: Final = 4 << 20


def wire_id(number: int) -> int:
    """Convert a request's queue or sub-queue id to the form in messages: the same 32 bits, signed."""
    return number - (1 << 32) if number >> 31 else number


class Refusal(Exception):
    """A failure status for the answer to a request."""

    def __init__(self, category: StatusCategory, message: str, code: int) -> None:
        super().__init__(message)
        self.status = Status(category=category, code=code, message=message)


def check_open(parameters: QueueHandleParameters) -> None:
    reads, writes = bool(parameters.flags & QueueFlag.READ), bool(parameters.flags & QueueFlag.WRITE)
    invalid = StatusCategory.INVALID_ARGUMENT
    if parameters.read_count <= 0 and parameters.write_count <= 0:
        raise Refusal(invalid, "At least one of ([read|write]) Count must be >0", 0)
    if parameters.admin_count:
        raise Refusal(invalid, "adminCount must be 0", 0)
    if reads != (parameters.read_count > 0):
        raise Refusal(invalid, "Read flag and readCount must both be set accordingly", 0)
    if writes != (parameters.write_count > 0):
        raise Refusal(invalid, "Write flag and writeCount must both be set accordingly", 0)
    if not app_id_of(parameters):
        raise Refusal(invalid, "appId must not be empty", 0)
    _check_counts(parameters)
    if parameters.q_id >= RESERVED_QUEUE_ID:
        raise Refusal(invalid, "qId must not be set from the reserved queue ids range", 0)
    if writes and parameters.sub_id_info is not None and parameters.sub_id_info.app_id != DEFAULT_APP_ID:
        raise Refusal(invalid, "AppId should not be specified in the URI if queue is opened in write mode", 0)


def _check_counts(parameters: QueueHandleParameters) -> None:
    if min(parameters.read_count, parameters.write_count, parameters.admin_count) < 0:
        message = "readCount, writeCount and adminCount must not be negative"
        raise Refusal(StatusCategory.INVALID_ARGUMENT, message, 0)


def check_limits(queue: Queue, parameters: QueueHandleParameters) -> None:
    """Raise `Refusal` if the domain does not allow one more producer or consumer."""
    config = queue.config
    beyond = []
    if config.producers_max and parameters.write_count + queue.writers > config.producers_max:
        beyond.append(f"the limit of {config.producers_max} producer(s)")
    app = queue.apps.get(app_id_of(parameters)) or queue.unregistered.get(app_id_of(parameters))
    readers = sum(stream.readers for stream in app.streams) if app else 0
    if config.consumers_max and parameters.read_count + readers > config.consumers_max:
        beyond.append(f"the limit of {config.consumers_max} consumer(s)")
    if beyond:
        raise Refusal(StatusCategory.UNKNOWN, f"Client would exceed {' and '.join(beyond)}", -1)


def app_id_of(parameters: QueueHandleParameters) -> str:
    return parameters.sub_id_info.app_id if parameters.sub_id_info else DEFAULT_APP_ID


def sub_id_of(parameters: QueueHandleParameters) -> int:
    return wire_id(parameters.sub_id_info.sub_id) if parameters.sub_id_info else 0


def give_back(queue: Queue, parameters: QueueHandleParameters) -> None:
    if parameters.flags & QueueFlag.READ:
        queue.give_back_reads(app_id_of(parameters), parameters.read_count)
    if parameters.flags & QueueFlag.WRITE:
        queue.give_back_writes(parameters.write_count)


class Handle:
    """The handle of one queue id in one session. `streams` are by sub-queue id, `by_app` the same by app id.

    Ids are as in messages, see `wire_id`. `writes` counts the opens for writing.
    """

    __slots__ = ("by_app", "queue", "queue_id", "sink", "streams", "writes")

    def __init__(self, sink: Sink, queue_id: int, queue: Queue) -> None:
        self.sink = sink
        self.queue_id = queue_id
        self.queue = queue
        self.writes = 0
        self.streams: dict[int, Stream] = {}
        self.by_app: dict[str, Stream] = {}

    def open(self, parameters: QueueHandleParameters, queue: Queue) -> None:
        """Apply another open request for this id. `queue` has its URI, after any redirection."""
        check_limits(queue, parameters)
        if queue is not self.queue:
            raise Refusal(StatusCategory.INVALID_ARGUMENT, "Queue URI mismatch for same queueId.", -1)
        if parameters.flags & QueueFlag.READ:
            self._check_app(app_id_of(parameters), sub_id_of(parameters))
        with Change(f"opening queue '{queue.uri}'"):
            if parameters.flags & QueueFlag.READ:
                self._open_stream(parameters)
            if parameters.flags & QueueFlag.WRITE:
                self.writes += parameters.write_count
                queue.writers += parameters.write_count

    def _check_app(self, app_id: str, sub_id: int) -> None:
        fanout = DEFAULT_APP_ID not in self.queue.apps
        if fanout and app_id == DEFAULT_APP_ID:
            message = "Reader of a fanout queue requires an appId to be specified."
            raise Refusal(StatusCategory.UNKNOWN, message, -1)
        if not fanout and app_id != DEFAULT_APP_ID:
            message = "AppId should not be specified when opening a non-fanout queue"
            raise Refusal(StatusCategory.UNKNOWN, message, -1)
        known = self.by_app.get(app_id)
        if self.streams.get(sub_id, known) is not known:
            # The reference asserts that no other app has this id.
            message = f"subId {sub_id & 0xFFFF_FFFF} is already in use for a different appId"
            raise Refusal(StatusCategory.INVALID_ARGUMENT, message, -1)

    def _open_stream(self, parameters: QueueHandleParameters) -> None:
        app_id, sub_id = app_id_of(parameters), sub_id_of(parameters)
        known = self.by_app.get(app_id)
        if known is not None:
            known.readers += parameters.read_count
            # A broker that received the last answer too late has renumbered the app.
            del self.streams[known.sub_queue_id]
            known.sub_queue_id = sub_id
            self.streams[sub_id] = known
            return
        stream = Stream(self.queue.app(app_id), self.sink, self.queue_id, sub_id)
        stream.readers = parameters.read_count
        self.queue.attach(stream)
        self.streams[sub_id] = self.by_app[app_id] = stream

    def close(self, parameters: QueueHandleParameters, is_final: bool) -> None:
        """Release what a close request names, or everything if it is final."""
        if parameters.read_count <= 0 and parameters.write_count <= 0 and parameters.admin_count <= 0:
            message = "At least one of [read|write|admin]Count must be > 0"
            raise Refusal(StatusCategory.INVALID_ARGUMENT, message, 0)
        _check_counts(parameters)
        if is_final:
            self.drop()
            return
        if parameters.read_count > 0:
            sub_id = sub_id_of(parameters)
            stream = self.streams.get(sub_id)
            if stream is None:
                raise Refusal(StatusCategory.UNKNOWN, "No subStream of the queue with specified subId", 0)
            with Change(f"closing queue '{self.queue.uri}' for a consumer"):
                self._close_stream(sub_id, stream, min(parameters.read_count, stream.readers))
        if parameters.write_count > 0:
            self._give_up_writes(min(parameters.write_count, self.writes))

    def _close_stream(self, sub_id: int, stream: Stream, count: int) -> None:
        stream.readers -= count
        if not stream.readers:
            del self.streams[sub_id], self.by_app[stream.app.app_id]
            self.queue.detach(stream)
        self.queue.give_back_reads(stream.app.app_id, count)

    def drop(self, *, lost: bool = False) -> None:
        with Change(f"closing queue '{self.queue.uri}'"):
            for stream in self.by_app.values():
                self.queue.detach(stream, lost=lost)
                self.queue.give_back_reads(stream.app.app_id, stream.readers)
            self.streams.clear()
            self.by_app.clear()
            self._give_up_writes(self.writes)

    def _give_up_writes(self, count: int) -> None:
        if count:
            with Change(f"closing queue '{self.queue.uri}' for a producer"):
                self.writes -= count
                self.queue.writers -= count
                self.queue.give_back_writes(count)

    def resume(self) -> None:
        for stream in self.streams.values():
            self.queue.resume(stream)

    @property
    def has_slack(self) -> bool:
        """True if confirms can wait: neither a consumer nor the queue is near a limit, and it is not written to."""
        return (
            not self.writes
            and self.queue.usage.has_ease(SLACK_MESSAGES, SLACK_BYTES)
            and all(stream.has_slack(SLACK_MESSAGES, SLACK_BYTES) for stream in self.streams.values())
        )

    @property
    def is_closed(self) -> bool:
        return not self.streams and not self.writes
