"""The log of pops and acknowledgements: a topic of the broker's own (source: PopMessageProcessor.buildCkMsg).

Like timer messages, notes enter the log when they are due: a checkpoint one second before its messages become visible
again, an acknowledgement at that time.
"""

from __future__ import annotations

from typing import Final

from broker.rocketmq.delays.levels import Storing
from broker.rocketmq.delays.timers import place_late
from broker.rocketmq.remoting.requests import Refused
from broker.rocketmq.store.commit_log import Message
from broker.rocketmq.store.errors import DiskFull, Unstorable
from broker.rocketmq.tables import names
from broker.rocketmq.tables.options import BrokerOptions
from broker.rocketmq.tables.properties import encode_few
from formats.rocketmq.flags import SystemFlag
from formats.rocketmq.remoting.bodies.popping import AckNote, BatchAckNote, CheckPoint, write_note
from formats.rocketmq.remoting.codes import ResponseCode

__all__ = ["REVIVE_GROUP", "ReviveLog"]

REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
_EARLIER_MS: Final = 1_000


class ReviveLog:
    def __init__(self, options: BrokerOptions, storing: Storing) -> None:
        self._options = options
        self._storing = storing
        self.topic = names.revive_topic(options.cluster)
        self._host = options.address.pack()
        self._flags = int(SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6) if options.address.is_v6 else 0

    def put_checkpoint(self, queue_id: int, point: CheckPoint, now_ms: int) -> None:
        """Note popped messages. Raises `Refused`; nothing is noted then."""
        words = (point.topic, point.queue_id, point.start_offset, point.group, point.popped_ms, point.broker, "ck")
        self._put(queue_id, point, words, point.visible_ms - _EARLIER_MS, now_ms)

    def put_ack(self, queue_id: int, note: AckNote | BatchAckNote, visible_ms: int, now_ms: int) -> None:
        """Acknowledge messages that would have become visible again at a time. Raises `Refused`."""
        words = (note.topic, note.queue_id, note.ack_offset, note.group, note.popped_ms, note.broker, "ack")
        self._put(queue_id, note, words, visible_ms, now_ms)

    def _put(
        self,
        queue_id: int,
        note: CheckPoint | AckNote | BatchAckNote,
        words: tuple[object, ...],
        due_ms: int,
        now_ms: int,
    ) -> None:
        if not 0 <= queue_id < self._options.revive_queues:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL, f"the receipt handle is of no queue of {self.topic}: {queue_id}"
            )
        tag, body = write_note(note)
        properties = {"TAGS": tag, "TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": "@".join(map(str, words))}
        topic, real_queue = place_late(self._options, self.topic, queue_id, properties, now_ms)
        message = Message(
            topic, real_queue, 0, self._flags, now_ms, self._host, self._host, 0, 0, body, encode_few(properties)
        )
        try:
            self._storing.put(message, now_ms, properties)
        except Unstorable as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        except DiskFull as error:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}") from None
