"""Conversion between messages of gRPC and stored messages."""

from __future__ import annotations

import hashlib
from typing import Final

from broker.rocketmq.grpc.statuses import CallRejected
from broker.rocketmq.grpc.validation import check_lite_topic, check_word, has_control_character
from formats.rocketmq.files.record import Record
from formats.rocketmq.flags import SystemFlag, Transaction
from formats.rocketmq.grpc.codes import Code, DigestType, Encoding, MessageType
from formats.rocketmq.grpc.messages import Message, is_time, make, ms_of, time_of_ms
from formats.rocketmq.hosts import Host
from formats.rocketmq.lite import LITE_TOPIC
from formats.rocketmq.message_ids import OffsetId
from formats.rocketmq.message_types import PRIORITY, message_type, priority_of
from formats.rocketmq.numbers import read_digits
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.reserved_names import RESERVED_NAMES

__all__ = ["BODY_BYTES_MAX", "born_ms_of", "message_of", "properties_of", "system_flags_of"]

BODY_BYTES_MAX: Final = 4 << 20
_PROPERTIES_MAX: Final = 128
_PROPERTIES_BYTES_MAX: Final = 16 << 10
_DELAY_S_MAX: Final = 10**9 - 1
_DELIVER_MS_MAX: Final = 10**15 - 1
_GROUP_BYTES_MAX: Final = 64
_DELAY_MS_MAX: Final = 86_400_000
_RECOVERY_S_MAX: Final = 3_600

_COMPRESSED: Final = int(SystemFlag.COMPRESSED)
_PREPARED: Final = int(Transaction.PREPARED)


def system_flags_of(message: Message) -> int:
    system = message.system_properties
    flags = _COMPRESSED if system.body_encoding == Encoding.GZIP else 0
    return flags | (_PREPARED if system.message_type == MessageType.TRANSACTION else 0)


def born_ms_of(message: Message, now_ms: int) -> int:
    """Return the time at which the client made a message; `now_ms` if its time is invalid."""
    born = message.system_properties.born_timestamp
    return ms_of(born) if is_time(born) else now_ms


def properties_of(message: Message, producer_group: str, host: Host, now_ms: int) -> dict[str, str]:
    """Return the properties of a message to be stored. Raises `CallRejected` for an invalid one."""
    size = len(message.body)
    if not size:
        raise CallRejected(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if size > BODY_BYTES_MAX:
        raise CallRejected(Code.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {BODY_BYTES_MAX}")
    system = message.system_properties
    properties = _user_properties(message)
    if not system.message_id.strip():
        raise CallRejected(Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
    if has_control_character(system.message_id):
        raise CallRejected(Code.ILLEGAL_MESSAGE_ID, "message id cannot contain control character")
    properties["UNIQ_KEY"] = system.message_id
    if system.message_type == MessageType.TRANSACTION:
        properties["TRAN_MSG"] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            seconds: int = system.orphaned_transaction_recovery_duration.seconds
            if seconds > _RECOVERY_S_MAX:
                text = f"the max transaction recovery time of message is too large, max is {_RECOVERY_S_MAX}"
                raise CallRejected(Code.BAD_REQUEST, text)
            properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(seconds)
    _add_times(properties, system, now_ms)
    properties["RECONSUME_TIME"] = str(system.delivery_attempt)
    properties["PGROUP"] = producer_group
    _add_place(properties, system)
    if system.trace_context and not has_control_character(system.trace_context):
        properties["TRACE_CONTEXT"] = system.trace_context
    born_host = system.born_host.strip()
    properties["__BORNHOST"] = host.address if not born_host or has_control_character(born_host) else system.born_host
    return properties


def _add_times(properties: dict[str, str], system: Message, now_ms: int) -> None:
    """Add the times at which a message was made, and is to be delivered. Raises `CallRejected`."""
    if system.HasField("delivery_timestamp"):
        if not is_time(system.delivery_timestamp):
            raise CallRejected(Code.ILLEGAL_DELIVERY_TIME, "the delivery timestamp is none that can be")
        deliver_ms = ms_of(system.delivery_timestamp)
        if deliver_ms - now_ms > _DELAY_MS_MAX:
            text = f"the max delay time of message is too large, max is {_DELAY_MS_MAX}"
            raise CallRejected(Code.ILLEGAL_DELIVERY_TIME, text)
        properties["TIMER_DELIVER_MS"] = str(deliver_ms)
    if is_time(system.born_timestamp):
        properties["BORN_TIMESTAMP"] = str(ms_of(system.born_timestamp))


def _add_place(properties: dict[str, str], system: Message) -> None:
    """Add the properties that choose the queue. Raises `CallRejected`."""
    group: str = system.message_group
    if group:
        if len(group.encode()) >= _GROUP_BYTES_MAX:
            raise CallRejected(Code.ILLEGAL_MESSAGE_GROUP, f"message group exceed the max size {_GROUP_BYTES_MAX}")
        check_word(group, "message group", Code.ILLEGAL_MESSAGE_GROUP)
        properties["__SHARDINGKEY"] = group
    if system.lite_topic:
        check_lite_topic(system.lite_topic)
        properties[LITE_TOPIC] = system.lite_topic
    if system.HasField("priority"):
        if system.priority < 0:
            raise CallRejected(Code.BAD_REQUEST, "the priority must be greater than or equal to 0")
        properties[PRIORITY] = str(system.priority)


def _user_properties(message: Message) -> dict[str, str]:
    """Return the user's properties, with the tag and the keys. Raises `CallRejected`."""
    if len(message.user_properties) > _PROPERTIES_MAX:
        text = f"too many user properties, max is {_PROPERTIES_MAX}"
        raise CallRejected(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)
    properties = dict(message.user_properties)
    size = 0
    for name, value in properties.items():
        size += len(name.encode()) + len(value.encode())
        if name in RESERVED_NAMES:
            raise CallRejected(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
        for text, what in ((name, "key"), (value, "value")):
            if has_control_character(text):
                reason = f"the {what} of property cannot contain control character"
                raise CallRejected(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, reason)
    system = message.system_properties
    if len(system.keys) > _PROPERTIES_BYTES_MAX:
        raise CallRejected(Code.MESSAGE_PROPERTIES_TOO_LARGE, f"too many keys, max is {_PROPERTIES_BYTES_MAX}")
    tag, keys = system.tag, list(system.keys)
    check_word(tag, "tag", Code.ILLEGAL_MESSAGE_TAG)
    if "|" in tag:
        raise CallRejected(Code.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'")
    size += len(tag.encode())
    for key in keys:
        check_word(key, "key", Code.ILLEGAL_MESSAGE_KEY)
        size += len(key.encode())
    if size > _PROPERTIES_BYTES_MAX:
        text = f"the total size of user property is too large, max is {_PROPERTIES_BYTES_MAX}"
        raise CallRejected(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)
    if tag:
        properties["TAGS"] = tag
    if keys:
        properties["KEYS"] = " ".join(keys)
    return properties


def message_of(record: Record, handle: str | None, attempts: int, now_ms: int) -> Message:
    """Make the message of a record that was delivered `attempts` times before, with its receipt handle."""
    properties = decode_properties(record.properties)
    store_host = Host.unpack(record.store_host)
    body = bytes(record.body)
    message = make("Message", body=body)
    message.topic.name = record.topic
    message.user_properties.update({name: text for name, text in properties.items() if name not in RESERVED_NAMES})
    system = message.system_properties
    if "TAGS" in properties:
        system.tag = properties["TAGS"]
    if "KEYS" in properties:
        system.keys.extend(properties["KEYS"].split(" "))
    system.message_id = properties.get("UNIQ_KEY") or str(OffsetId(store_host, record.physical_offset))
    system.body_digest.type = DigestType.MD5
    system.body_digest.checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = Encoding.GZIP if record.system_flags & _COMPRESSED else Encoding.IDENTITY
    system.message_type = message_type(properties)
    system.born_timestamp.CopyFrom(time_of_ms(record.born_ms))
    system.born_host = properties.get("__BORNHOST", "").strip() or Host.unpack(record.born_host).address
    system.store_timestamp.CopyFrom(time_of_ms(record.stored_ms))
    system.store_host = str(store_host)
    _set_delivery(system, properties, now_ms)
    if "__SHARDINGKEY" in properties:
        system.message_group = properties["__SHARDINGKEY"]
    if LITE_TOPIC in properties:
        system.lite_topic = properties[LITE_TOPIC]
    priority = priority_of(properties)
    if priority is not None:
        system.priority = priority
    if handle is not None:
        system.receipt_handle = handle
    system.queue_id = record.queue_id
    system.queue_offset = record.queue_offset
    system.delivery_attempt = attempts + 1
    if "TRACE_CONTEXT" in properties:
        system.trace_context = properties["TRACE_CONTEXT"]
    if "DLQ_ORIGIN_TOPIC" in properties and "DLQ_ORIGIN_MESSAGE_ID" in properties:
        system.dead_letter_queue.topic = properties["DLQ_ORIGIN_TOPIC"]
        system.dead_letter_queue.message_id = properties["DLQ_ORIGIN_MESSAGE_ID"]
    return message


def _set_delivery(system: Message, properties: dict[str, str], now_ms: int) -> None:
    delay, deliver = properties.get("TIMER_DELAY_SEC"), properties.get("TIMER_DELIVER_MS")
    delay_s, deliver_ms = read_digits(delay, _DELAY_S_MAX), read_digits(deliver, _DELIVER_MS_MAX)
    if delay_s is not None:
        system.delivery_timestamp.CopyFrom(time_of_ms(now_ms + delay_s * 1000))
    elif deliver_ms is not None:
        system.delivery_timestamp.CopyFrom(time_of_ms(deliver_ms))
