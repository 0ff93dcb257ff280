"""A slave's regular requests for its master's data outside the log (source: SlaveSynchronize).

They get topics, groups, consumer offsets, and the progress of delayed and timer messages. A slave delivers nothing
itself: the last two are files for a later start as a master.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from broker.rocketmq.remoting.outgoing import Outgoing
from broker.rocketmq.remoting.requests import LOG_END
from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.message_store import MessageStore
from broker.rocketmq.tables.groups import Groups
from broker.rocketmq.tables.offsets import Offsets
from broker.rocketmq.tables.topics import Topics
from formats.errors import FormatError
from formats.rocketmq.files.checkpoints import CHECKPOINT_BYTES, TIMER_CHECKPOINT
from formats.rocketmq.numbers import read_long
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.clients import GROUPS
from formats.rocketmq.remoting.bodies.delays import DELAY_OFFSETS
from formats.rocketmq.remoting.bodies.popping import REQUEST_MODES
from formats.rocketmq.remoting.bodies.routes import TOPIC_CONFIGS
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.schema import Buffer

__all__ = ["FollowedTables", "MasterMetadata"]

log = logging.getLogger("broker.rocketmq.replication")

PERIOD_MS: Final = 3_000
# Maximum of topics that are requested early, once each, when the log has a message of theirs.
NEW_TOPICS_MAX: Final = 10_000


class FollowedTables(NamedTuple):
    """The tables that follow the master's, and the writers of their files, which may raise `OSError`."""

    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: Offsets
    keep_delay_offsets: Callable[[bytes], None]
    keep_timer_checkpoint: Callable[[bytes], None]
    keep_request_modes: Callable[[bytes], None]


def stored_topics(store: MessageStore) -> dict[str, int]:
    """Return the number of queues of each topic that has messages, unconfirmed ones included."""
    found: dict[str, int] = {}
    for (topic, queue_id), queue in store.queues.items():
        if store.next_offset(queue) > queue.begin:
            found[topic] = max(found.get(topic, 0), queue_id + 1)
    return found


class MasterMetadata:
    """Sends the requests one after the other, and stores the answers.

    `acts` returns whether this slave acts as master. Its consumer offsets are its own then: a master that comes back
    requests them from it, and answers here before that.
    """

    def __init__(self, kept: FollowedTables, link: Outgoing, acts: Callable[[], bool] = lambda: False) -> None:
        self._acts = acts
        self._kept = kept
        self._link = link
        self._asked_ms: int | None = None
        self._is_asking = False
        # Requests whose answers could not be stored, each logged once until it succeeds.
        self._failing: set[RequestCode] = set()
        # Answers ahead of this log, with the end of the log that has their data.
        self._early: dict[RequestCode, tuple[int, Buffer]] = {}
        self._connection: object = None
        self._new_topics: set[str] = set()
        self._questions: dict[RequestCode, Callable[[Buffer], None]] = {
            RequestCode.GET_ALL_TOPIC_CONFIG: self._take_topics,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._take_groups,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._take_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self._take_delays,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self._take_modes,
            RequestCode.GET_TIMER_CHECK_POINT: self._take_timers,
        }

    def saw(self, topic: str) -> None:
        """Note a topic of a stored message; request it soon if it is unknown here.

        Otherwise the message could not be read if this broker became master next. A deleted topic is requested once.
        """
        if topic in self._kept.topics.table or topic in self._new_topics:
            return
        if len(self._new_topics) < NEW_TOPICS_MAX:
            self._new_topics.add(topic)
            self._asked_ms = None

    def tick(self, now_ms: int) -> None:
        """Send the requests that are due, and take the early answers that this log has reached."""
        self._forget_others()
        for code, (end, body) in list(self._early.items()):
            if self._kept.store.flushed >= end:
                del self._early[code]
                self._note(code, self._take(code, body))
        is_due = self._asked_ms is None or not 0 <= now_ms - self._asked_ms < PERIOD_MS
        if is_due and not self._is_asking and self._link.is_connected:
            self._asked_ms = now_ms
            self._ask(list(self._questions), now_ms)

    def _forget_others(self) -> None:
        """Forget early answers of another connection: a restarted master may have lost the end of its log."""
        if self._link.connection is not self._connection:
            self._connection = self._link.connection
            self._early.clear()

    def _ask(self, codes: list[RequestCode], now_ms: int) -> None:
        self._is_asking = bool(codes)
        if codes:
            code, *rest = codes
            self._link.ask(Frame(code, 0), now_ms, partial(self._answered, code, rest, now_ms))

    def _answered(self, code: RequestCode, rest: list[RequestCode], now_ms: int, answer: Frame | None) -> None:
        reason = "no answer"
        if answer is not None:
            reason = answer.remark or f"response code {answer.code}"
            if answer.code == ResponseCode.SUCCESS:
                reason = self._take_in_time(code, answer)
        self._note(code, reason)
        # Without a connection the others wait for the next time.
        self._ask(rest if answer is not None else [], now_ms)

    def _take_in_time(self, code: RequestCode, answer: Frame) -> str:
        """Take an answer like `_take`, unless it is ahead of this log.

        If this broker became master without that part, messages that count as delivered would be lost.
        """
        self._forget_others()
        end = read_long((answer.ext_fields or {}).get(LOG_END)) or 0
        if code not in self._early and self._kept.store.flushed >= end:
            return self._take(code, answer.body)
        # The first is kept: if this log were always late, replacing it would take none.
        self._early.setdefault(code, (end, bytes(answer.body)))
        return ""

    def _note(self, code: RequestCode, reason: str) -> None:
        """Log an answer that cannot be taken, once; `reason` is empty if it was taken."""
        if reason and code not in self._failing:
            self._failing.add(code)
            log.warning("%s of the master cannot be taken: %s", code.name, reason)
        elif not reason:
            self._failing.discard(code)

    def _take(self, code: RequestCode, body: Buffer) -> str:
        """Store the master's answer; return why that is impossible, or ""."""
        try:
            self._questions[code](body)
        except FormatError as error:
            return str(error)
        except OSError as error:
            return error.strerror or str(error)
        except DiskFull as error:
            return str(error)
        return ""

    def _take_topics(self, body: Buffer) -> None:
        told = TOPIC_CONFIGS.read(body)
        for topic in self._kept.topics.follow(told.topic_config_table, told.data_version):
            self._kept.store.delete_topic(topic)

    def _take_groups(self, body: Buffer) -> None:
        told = GROUPS.read(body)
        self._kept.groups.follow(told.subscription_group_table, told.data_version)

    def _take_offsets(self, body: Buffer) -> None:
        if not self._acts():
            self._kept.offsets.follow(bytes(body))

    def _take_delays(self, body: Buffer) -> None:
        if body:
            value = DELAY_OFFSETS.write_value(DELAY_OFFSETS.read(body))
            self._kept.keep_delay_offsets(fastjson.dumps_pretty(value).encode())

    def _take_modes(self, body: Buffer) -> None:
        if body:
            value = REQUEST_MODES.write_value(REQUEST_MODES.read(body))
            self._kept.keep_request_modes(fastjson.dumps_pretty(value).encode())

    def _take_timers(self, body: Buffer) -> None:
        # The original's wheel is not known here: a new master reads the whole topic again, and skips messages that were
        # due before.
        checkpoint = TIMER_CHECKPOINT.unpack(body)._replace(log_flushed=0, queue_offset=0)
        self._kept.keep_timer_checkpoint(TIMER_CHECKPOINT.pack(checkpoint).ljust(CHECKPOINT_BYTES, b"\0"))
