"""Messages that could not be consumed: they are delivered again later, and finally go to the dead letters.

Source: AbstractSendMessageProcessor.consumerSendMsgBack, SendMessageProcessor.handleRetryAndDLQ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.rocketmq.delays.levels import Storing, again
from broker.rocketmq.delays.timers import place_late
from broker.rocketmq.remoting.requests import CheckRecord, Handlers, Refused, Request, success
from broker.rocketmq.store.errors import DiskFull, Unstorable
from broker.rocketmq.tables import names
from broker.rocketmq.tables.locks import Locks
from broker.rocketmq.tables.properties import encode
from broker.rocketmq.tables.services import Services
from formats.errors import FormatError
from formats.rocketmq.flags import SystemFlag
from formats.rocketmq.hosts import Host
from formats.rocketmq.message_ids import OffsetId
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.bodies.routes import Permission
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import codec_of
from formats.rocketmq.remoting.headers.consuming import ConsumerSendMessageBackRequest
from formats.rocketmq.remoting.headers.sending import SendMessageRequest

__all__ = ["DeadLetter", "SendingBack"]

_FAQ: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
_UNIT_SUBSCRIPTION: Final = 2
# The first retry comes after the third level's delay, the next one after the fourth's.
_FIRST_LEVEL: Final = 3
# MQVersion.V3_4_9: from it on, clients state the permitted number of retries.
_TELLS_RETRIES: Final = 121

_REQUEST = codec_of(ConsumerSendMessageBackRequest)


class DeadLetter(NamedTuple):
    """The dead-letter queue of a message that was retried too often."""

    topic: str
    queue_id: int


class SendingBack:
    """Handles messages that consumers send back."""

    def __init__(
        self,
        services: Services,
        locks: Locks,
        storing: Storing,
        choose: Callable[[int], int],
        check_record: CheckRecord,
    ) -> None:
        self._check_record = check_record
        self._services = services
        self._locks = locks
        self._storing = storing
        self._choose = choose
        self.handlers: Handlers = {RequestCode.CONSUMER_SEND_MSG_BACK: self._take_back}

    def _take_back(self, request: Request) -> Frame:
        header = _REQUEST.read(request.fields)
        now_ms = request.now_ms
        group = self._services.groups.find(header.group, now_ms)
        if group is None:
            text = f"subscription group not exist, {header.group} {_FAQ}"
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, text)
        if not self._services.options.permission & Permission.WRITE:
            text = f"the broker[{self._services.options.address.address}] sending message is forbidden"
            raise Refused(ResponseCode.NO_PERMISSION, text)
        if group.retry_queue_nums <= 0:
            return success()
        flags = _UNIT_SUBSCRIPTION if header.unit_mode else 0
        name = names.RETRY_PREFIX + header.group
        topic = self._services.topics.make_for_group(name, group.retry_queue_nums, flags, now_ms)
        if not topic.perm & Permission.WRITE:
            raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{name}] sending message is forbidden")
        try:
            record = self._services.store.log.read(header.offset).record
            properties = decode_properties(record.properties)
        except (IndexError, FormatError):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}") from None
        self._check_record(request.frame, request.peer.host.address, record)
        most = group.retry_max_times
        if request.frame.version >= _TELLS_RETRIES and header.max_reconsume_times is not None:
            most = header.max_reconsume_times
        properties.setdefault("RETRY_TOPIC", record.topic)
        properties["WAIT"] = "false"
        is_dead = record.reconsume_times >= most or header.delay_level < 0
        if is_dead:
            name, queue_id = self._dead_letter(header.group, now_ms)
            properties["DELAY"] = "0"
        else:
            queue_id = self._choose(group.retry_queue_nums)
            properties["DELAY"] = str(header.delay_level or _FIRST_LEVEL + record.reconsume_times)
        if not properties.get("ORIGIN_MESSAGE_ID", "").strip():
            properties["ORIGIN_MESSAGE_ID"] = str(OffsetId(Host.unpack(record.store_host), record.physical_offset))
        name, queue_id = place_late(self._services.options, name, queue_id, properties, now_ms)
        host = self._services.options.address
        system_flags = record.system_flags & ~int(SystemFlag.STORE_HOST_V6)
        message = again(record, name, queue_id, encode(properties), is_retried=True)._replace(
            body=bytes(record.body),
            store_host=host.pack(),
            system_flags=system_flags | (SystemFlag.STORE_HOST_V6 if host.is_v6 else 0),
        )
        try:
            self._storing.put(message, now_ms)
        except Unstorable:
            raise Refused(ResponseCode.SYSTEM_ERROR, "MESSAGE_ILLEGAL") from None
        except DiskFull:
            raise Refused(ResponseCode.SYSTEM_ERROR, "SERVICE_NOT_AVAILABLE") from None
        if is_dead:
            self._services.statistics.given_up(properties["RETRY_TOPIC"], header.group)
        return success()

    def _dead_letter(self, group: str, now_ms: int) -> DeadLetter:
        topic = names.DEAD_LETTER_PREFIX + group
        self._services.topics.make_for_group(topic, 1, 0, now_ms)
        return DeadLetter(topic, 0)

    def check_retry(self, header: SendMessageRequest, version: int, now_ms: int) -> DeadLetter | None:
        """Return the dead-letter queue for a message that was sent to a retry topic too often.

        Ordered consumers, which hold locks, send it there themselves after their own retries. Raises `Refused`.
        """
        name = header.topic.removeprefix(names.RETRY_PREFIX)
        group = self._services.groups.find(name, now_ms)
        if group is None:
            text = f"subscription group not exist, {name} {_FAQ}"
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, text)
        most = group.retry_max_times
        if version >= _TELLS_RETRIES and header.max_reconsume_times is not None:
            most = header.max_reconsume_times
        if (header.reconsume_times or 0) > most or self._locks.are_held(name, now_ms):
            self._services.statistics.given_up(header.topic, name)
            return self._dead_letter(name, now_ms)
        return None
