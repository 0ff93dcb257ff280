"""Messages that are consumed at a time set by their senders, and recalls of them.

Source: TimerMessageStore, HookUtils, RecallMessageProcessor. They wait in a topic of the broker's own. The original
keeps a wheel and a log of them beside it; here they are in memory, read from the topic's queue at the start. The
checkpoint file has the offset and the time up to which that was done, so that the original continues from there as
well; messages that were delivered out of order may come twice then.
"""

from __future__ import annotations

import base64
import binascii
import heapq
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.rocketmq.delays.levels import Storing, again, due_place, integer, place_delayed
from broker.rocketmq.remoting.requests import Handlers, Refused, Request, success, with_body, with_progress
from broker.rocketmq.store.commit_log import Message
from broker.rocketmq.store.errors import DiskFull, Unstorable
from broker.rocketmq.store.skips import Skips
from broker.rocketmq.tables import names
from broker.rocketmq.tables.options import BrokerOptions
from broker.rocketmq.tables.properties import encode, encode_few
from broker.rocketmq.tables.services import Services
from formats.errors import FormatError
from formats.rocketmq.files.checkpoints import CHECKPOINT_BYTES, TIMER_CHECKPOINT, TimerCheckpoint
from formats.rocketmq.files.record import PROPERTIES_BYTES_MAX, Record
from formats.rocketmq.flags import SystemFlag
from formats.rocketmq.numbers import INT_MAX, read_digits
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.bodies.replication import TIMER_METRICS, TimerMetrics
from formats.rocketmq.remoting.bodies.routes import Permission
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import read_header
from formats.rocketmq.remoting.headers.sending import RecallMessageRequest, RecallMessageResponse

__all__ = ["LATE", "PRECISION_MS", "TimerMessages", "broker_of_handle", "place_late", "recall_handle"]

log = logging.getLogger("broker.rocketmq.timers")

PRECISION_MS: Final = 1_000
STEP_MESSAGES: Final = 200
KEEP_MS: Final = 1_000
# The maximum that one step reads from the topic.
STEP_READS: Final = 2_000

# Maximum delay of a stored message: the longest one that the original can be configured for.
FAR_MS: Final = INT_MAX * 1_000

_QUEUE: Final = 0
_PROPERTIES: Final = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
# A message with none of these is not consumed later.
LATE: Final = frozenset({"DELAY", *_PROPERTIES})
_DELETES: Final = "TIMER_DEL_UNIQKEY"
_OUT: Final = "TIMER_OUT_MS"
_VERSION: Final = "v1"
_RECALL_TAG: Final = "_RECALL_TAG_"


def place_late(
    options: BrokerOptions, topic: str, queue_id: int, properties: dict[str, str], now_ms: int
) -> tuple[str, int]:
    """Return the topic and queue where a message waits: its own, unless it is consumed later.

    Raises `Refused` for an invalid time, or one too far away.
    """
    if integer(properties.get("DELAY")) > 0:
        for name in _PROPERTIES:
            properties.pop(name, None)
        return place_delayed(options.delay_levels_ms, topic, queue_id, properties)
    if topic == names.TIMER_TOPIC or _OUT in properties or properties.keys().isdisjoint(_PROPERTIES):
        return topic, queue_id
    due_ms = _due_ms(properties, now_ms)
    # Records of popped messages wait as long as these are hidden.
    most_ms = FAR_MS if names.is_own(topic) else options.timer_delay_max_s * 1_000
    if due_ms is None or due_ms - now_ms > most_ms or (due_ms <= now_ms and _DELETES in properties):
        text = (
            f"timer message illegal, the delay time should not be bigger than the max delay {most_ms}ms; "
            "or if set del msg, the delay time should be bigger than the current time"
        )
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, text)
    if due_ms <= now_ms:
        return topic, queue_id
    properties[_OUT] = str((due_ms - 1) // PRECISION_MS * PRECISION_MS)
    properties["REAL_TOPIC"] = topic
    properties["REAL_QID"] = str(queue_id)
    return names.TIMER_TOPIC, _QUEUE


def _due_ms(properties: dict[str, str], now_ms: int) -> int | None:
    for name, unit_ms, begin_ms in zip(_PROPERTIES, (1_000, 1, 1), (now_ms, now_ms, 0), strict=True):
        if name in properties:
            number = read_digits(properties[name])
            return None if number is None else begin_ms + number * unit_ms
    return None


class _Handle(NamedTuple):
    """The handle by which a message is recalled, from the broker's answer to its sender."""

    topic: str
    broker: str
    due_ms: int
    unique_id: str


def recall_handle(broker: str, properties: dict[str, str]) -> str | None:
    """Return the handle by which a message can be recalled, if it can."""
    out_ms = read_digits(properties.get(_OUT))
    if out_ms is None or _DELETES in properties:
        return None
    words = (_VERSION, properties["REAL_TOPIC"], broker, str(out_ms + 1), properties.get("UNIQ_KEY", ""))
    return base64.urlsafe_b64encode(" ".join(words).encode()).decode()


def _read_handle(text: str) -> _Handle:
    try:
        words = base64.b64decode(text.encode(), b"-_", validate=True).decode().split(" ")
    except (binascii.Error, ValueError):
        words = []
    due_ms = read_digits(words[3]) if len(words) >= 5 and words[0] == _VERSION else None
    # Parts of the handle become parts of a property.
    if due_ms is None or not words[4].isprintable():
        raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
    return _Handle(words[1], words[2], due_ms, words[4])


def _recalled(properties: dict[str, str]) -> tuple[str, str]:
    """Return the topic and unique id of a recall's message, which is of the recall's own topic."""
    return properties.get("REAL_TOPIC", ""), properties[_DELETES].rpartition("+")[2]


def broker_of_handle(text: str) -> str | None:
    """Return the broker that can recall a message; None for an invalid handle."""
    try:
        return _read_handle(text).broker
    except Refused:
        return None


class TimerMessages:
    """Delivers timer messages when they are due. `keep` writes the checkpoint file."""

    def __init__(
        self, services: Services, storing: Storing, checkpoint: TimerCheckpoint | None, keep: Callable[[bytes], None]
    ) -> None:
        self._services = services
        self._storing = storing
        self._keep = keep
        self._version = 0 if checkpoint is None else checkpoint.version_counter
        self._read_ms = 0 if checkpoint is None else checkpoint.last_read_ms
        # The messages in the original's wheel may be anywhere in the queue.
        is_ours = checkpoint is not None and checkpoint.log_flushed == 0
        read = checkpoint.queue_offset if checkpoint is not None and is_ours else 0
        # After a loss of power, the file may count messages that no longer exist. New messages reuse their offsets.
        self._next = min(read, services.store.end(names.TIMER_TOPIC, _QUEUE))
        # Messages that were there at the start may have been delivered before.
        self._known_end = services.store.span(names.TIMER_TOPIC, _QUEUE)[1]
        # The due times and queue offsets of messages, some of which may have left the queue.
        self._waiting: list[tuple[int, int]] = []
        self._offsets: list[int] = []
        self._gone: set[int] = set()
        # By topic and unique id.
        self._recalled: set[tuple[str, str]] = set()
        self._revive_topic = names.revive_topic(services.options.cluster)
        self._skips = Skips("timer messages")
        self._changed = self._next != read
        self._kept_ms = 0
        self.handlers: Handlers = {
            RequestCode.RECALL_MESSAGE: self._recall,
            RequestCode.GET_TIMER_CHECK_POINT: lambda request: with_progress(
                TIMER_CHECKPOINT.pack(self._checkpoint(request.now_ms)), services.store.log.end
            ),
            # They are not counted: a slave gets none.
            RequestCode.GET_TIMER_METRICS: lambda request: with_body(TIMER_METRICS.write(TimerMetrics())),
        }

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> int:
        """The offset in the topic's queue before which all messages were delivered."""
        return self._checkpoint(0).queue_offset

    # -- messages

    def give_out(self, now_ms: int) -> bool:
        """Read new messages of the topic, and store due ones in their destinations; return True if there is more."""
        has_unread = self._read()
        left = STEP_MESSAGES
        while self._waiting and self._waiting[0][0] + PRECISION_MS <= now_ms and left:
            _, offset = self._waiting[0]
            if not self._deliver(offset, now_ms):
                return False
            heapq.heappop(self._waiting)
            self._gone.add(offset)
            left -= 1
            self._changed = True
        if not left:
            return True
        if not has_unread:
            self._read_ms = max(self._read_ms, now_ms // PRECISION_MS * PRECISION_MS)
        return has_unread

    def _read(self) -> bool:
        queue = self._services.store.queues.get((names.TIMER_TOPIC, _QUEUE))
        if queue is None or self._next >= queue.end:
            return False
        begin = max(self._next, queue.begin)
        end = min(queue.end, begin + STEP_READS)
        for offset in range(begin, end):
            try:
                record, properties = self._stored(offset)
            except (IndexError, FormatError) as error:
                self._skips.note(f"queue offset {offset}", error)
                continue
            due_ms = read_digits(properties.get(_OUT), record.stored_ms + FAR_MS)
            if due_ms is None:
                self._skips.note(f"queue offset {offset}", f"it is due at {properties.get(_OUT, '')[:40]!r}")
                continue
            if due_ms < self._read_ms and offset < self._known_end:
                continue
            if _DELETES in properties:
                self._recalled.add(_recalled(properties))
            heapq.heappush(self._waiting, (due_ms, offset))
            heapq.heappush(self._offsets, offset)
        self._next = end
        self._changed = True
        return end < queue.end

    def _stored(self, offset: int) -> tuple[Record, dict[str, str]]:
        """Return the record of a message, and its properties. Raises `IndexError` and `FormatError`."""
        store = self._services.store
        record = store.log.read(store.queues[names.TIMER_TOPIC, _QUEUE].get(offset).physical_offset).record
        return record, decode_properties(record.properties)

    def _deliver(self, offset: int, now_ms: int) -> bool:
        try:
            record, properties = self._stored(offset)
            if _DELETES in properties:
                self._recalled.discard(_recalled(properties))
                return True
            if (properties.get("REAL_TOPIC", ""), properties.get("UNIQ_KEY", "")) in self._recalled:
                return True
            # Records of the revive topic wait here, too.
            place = due_place(self._services.topics, properties, now_ms, self._revive_topic)
            properties["TIMER_ENQUEUE_MS"] = str(record.stored_ms // PRECISION_MS * PRECISION_MS)
            properties["TIMER_DEQUEUE_MS"] = str(now_ms)
            packed = encode(properties)
            message = again(record, *place, packed if len(packed) <= PROPERTIES_BYTES_MAX else record.properties)
            self._storing.put(message._replace(body=bytes(record.body)), now_ms)
        except DiskFull:
            return False
        except Exception as error:
            self._skips.note(f"queue offset {offset}", error)
        return True

    # -- recalls

    def _recall(self, request: Request) -> Frame:
        header = read_header(RecallMessageRequest, request.fields)
        now_ms = request.now_ms
        if not self._services.options.permission & Permission.WRITE:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available")
        if names.is_own(header.topic):
            raise Refused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{header.topic}] is forbidden.")
        if self._services.topics.get(header.topic) is None:
            text = f"recall failed, the topic[{header.topic}] not exist"
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, text)
        handle = _read_handle(header.recall_handle)
        if handle.topic != header.topic:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker != self._services.options.name:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available")
        if not 0 < handle.due_ms - now_ms < self._services.options.timer_delay_max_s * 1_000:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        properties = {
            _DELETES: handle.unique_id,
            "UNIQ_KEY": handle.unique_id,
            "TIMER_DELIVER_MS": str(handle.due_ms),
            "BORN_TIMESTAMP": str(now_ms),
            "TRACE_CONTEXT": "",
            "TAGS": _RECALL_TAG,
        }
        if header.producer_group is not None:
            properties["PGROUP"] = header.producer_group
        topic, queue_id = place_late(self._services.options, handle.topic, 0, properties, now_ms)
        host, born = self._services.options.address, request.peer.host
        flags = (SystemFlag.BORN_HOST_V6 if born.is_v6 else 0) | (SystemFlag.STORE_HOST_V6 if host.is_v6 else 0)
        packed = encode_few(properties)
        message = Message(topic, queue_id, 0, flags, now_ms, born.pack(), host.pack(), 0, 0, b"0", packed)
        try:
            self._storing.put(message, now_ms)
        except (DiskFull, Unstorable):
            raise Refused(ResponseCode.SYSTEM_ERROR, "recall failed, execute error") from None
        answer = success(RecallMessageResponse(handle.unique_id))
        return answer._replace(ext_fields={**(answer.ext_fields or {}), "MSG_REGION": self._services.options.region})

    # -- the checkpoint

    def tick(self, now_ms: int) -> None:
        if not 0 <= now_ms - self._kept_ms < KEEP_MS:
            self._kept_ms = now_ms
            self.keep(now_ms)

    def keep(self, now_ms: int) -> None:
        if not self._changed:
            return
        checkpoint = self._checkpoint(now_ms)._replace(version_counter=self._version + 1)
        try:
            self._keep(TIMER_CHECKPOINT.pack(checkpoint).ljust(CHECKPOINT_BYTES, b"\0"))
        except OSError as error:
            log.error("the checkpoint of timer messages cannot be written: %s", error)
        else:
            self._version += 1
            self._changed = False

    def _checkpoint(self, now_ms: int) -> TimerCheckpoint:
        while self._offsets and self._offsets[0] in self._gone:
            self._gone.discard(heapq.heappop(self._offsets))
        first = self._offsets[0] if self._offsets else self._next
        # No log of a wheel: this marks the file as ours.
        return TimerCheckpoint(self._read_ms, 0, first, first, 0, now_ms, self._version)
