"""Numbers of the wire protocol: kinds, flags, statuses and limits (source: bmqp_protocol.h and bmqt)."""

from __future__ import annotations

from enum import IntEnum, IntFlag

__all__ = [
    "COMPRESSED_SIZE_MIN",
    "DECOMPRESSED_SIZE_MAX",
    "DEFAULT_APP_ID",
    "DEFAULT_SUBSCRIPTION_ID",
    "EVENT_SIZE_MAX",
    "NULL_CORRELATION_ID",
    "PROPERTIES_MAX",
    "PROPERTIES_SIZE_MAX",
    "PROPERTY_NAME_SIZE_MAX",
    "PROPERTY_VALUE_SIZE_MAX",
    "PROTOCOL_VERSION",
    "PUT_EVENT_SIZE_MAX",
    "PUT_SIZE_MAX",
    "RDA_COUNTER_MAX",
    "RECOVERY_CHUNK_SIZE_MAX",
    "STORAGE_SIZE_MAX",
    "AckStatus",
    "CompressionAlgorithm",
    "EncodingType",
    "EventType",
    "OptionType",
    "PropertyType",
    "PushFlag",
    "PutFlag",
    "QueueFlag",
    "RecoveryFileChunkType",
    "StorageFlag",
    "StorageMessageType",
]

PROTOCOL_VERSION = 1

DEFAULT_APP_ID = "__default"
"""The app id of queues without fan-out (bmqp::ProtocolUtil::k_DEFAULT_APP_ID)."""

EVENT_SIZE_MAX = 512 << 20
"""Largest event that a sender builds, in bytes (bmqp::EventHeader::k_MAX_SIZE_SOFT); the field can hold 2 GiB."""

PUT_SIZE_MAX = 64 << 20
"""Largest properties and payload of a message as sent, in bytes (bmqp::PutHeader::k_MAX_PAYLOAD_SIZE_SOFT)."""

PUT_EVENT_SIZE_MAX = 66 << 20
"""Largest PUT event, in bytes (bmqp::PutHeader::k_MAX_SIZE_SOFT)."""

STORAGE_SIZE_MAX = 65 << 20
"""Largest replicated record with its data, in bytes (bmqp::StorageHeader::k_MAX_PAYLOAD_SIZE_SOFT)."""

RECOVERY_CHUNK_SIZE_MAX = 64 << 20
"""Largest file chunk, in bytes (bmqp::RecoveryHeader::k_MAX_PAYLOAD_SIZE_SOFT)."""

COMPRESSED_SIZE_MIN = 1024
"""Smallest message that a producer compresses, in bytes (bmqp::Protocol::k_COMPRESSION_MIN_APPDATA_SIZE)."""

DECOMPRESSED_SIZE_MAX = 512 << 20
"""Largest message that a broker accepts after decompression, in bytes (bmqp::PutMessageIterator)."""

PROPERTIES_MAX = 255
PROPERTY_NAME_SIZE_MAX = 4095
PROPERTIES_SIZE_MAX = ((1 << 24) - 1) * 4 - 4
"""Largest properties of a message with all headers, without padding, in bytes."""

PROPERTY_VALUE_SIZE_MAX = PROPERTIES_SIZE_MAX - PROPERTY_NAME_SIZE_MAX - 16

RDA_COUNTER_MAX = 63
"""Largest number of remaining delivery attempts that can be encoded; anything above it is unlimited."""

DEFAULT_SUBSCRIPTION_ID = 0
NULL_CORRELATION_ID = 0


class EventType(IntEnum):
    """The kind of an event's messages (bmqp::EventType)."""

    UNDEFINED = 0
    CONTROL = 1
    PUT = 2
    CONFIRM = 3
    PUSH = 4
    ACK = 5
    CLUSTER_STATE = 6
    ELECTOR = 7
    STORAGE = 8
    RECOVERY = 9
    PARTITION_SYNC = 10
    HEARTBEAT_REQ = 11
    HEARTBEAT_RSP = 12
    REJECT = 13
    REPLICATION_RECEIPT = 14
    AUTHENTICATION = 15


class EncodingType(IntEnum):
    """The encoding of a schema message (bmqp::EncodingType)."""

    BER = 0
    JSON = 1


class OptionType(IntEnum):
    """The kind of an option in a PUT or PUSH message (bmqp::OptionType)."""

    UNDEFINED = 0
    SUB_QUEUE_IDS_OLD = 1
    MSG_GROUP_ID = 2
    SUB_QUEUE_INFOS = 3


class CompressionAlgorithm(IntEnum):
    """bmqt::CompressionAlgorithmType."""

    NONE = 0
    ZLIB = 1


class QueueFlag:
    """Bits of `QueueHandleParameters.flags`, as plain integers (bmqt::QueueFlags)."""

    ADMIN = 1
    READ = 2
    WRITE = 4
    ACK = 8


class PutFlag(IntFlag):
    """bmqp::PutHeaderFlags."""

    ACK_REQUESTED = 1
    MESSAGE_PROPERTIES = 2


class PushFlag(IntFlag):
    """bmqp::PushHeaderFlags. With IMPLICIT_PAYLOAD the receiver already has the data, and the message carries none."""

    IMPLICIT_PAYLOAD = 1
    MESSAGE_PROPERTIES = 2
    OUT_OF_ORDER = 4


class StorageFlag(IntFlag):
    """bmqp::StorageHeaderFlags."""

    RECEIPT_REQUESTED = 1


class AckStatus(IntEnum):
    """The result of a post, as encoded in its ACK (bmqp::ProtocolUtil::ackResultToCode).

    UNKNOWN is used for every failure without a code of its own, and an unrecognised code is read as UNKNOWN.
    """

    SUCCESS = 0
    LIMIT_MESSAGES = 1
    LIMIT_BYTES = 2
    UNKNOWN = 5
    STORAGE_FAILURE = 6
    NOT_READY = 7

    @classmethod
    def _missing_(cls, value: object) -> AckStatus:
        return cls.UNKNOWN


class PropertyType(IntEnum):
    """bmqt::PropertyType."""

    BOOL = 1
    CHAR = 2
    SHORT = 3
    INT32 = 4
    INT64 = 5
    STRING = 6
    BINARY = 7


class StorageMessageType(IntEnum):
    """The kind of a replicated record (bmqp::StorageMessageType)."""

    UNDEFINED = 0
    DATA = 1
    QLIST = 2
    CONFIRM = 3
    DELETION = 4
    JOURNAL_OP = 5
    QUEUE_OP = 6


class RecoveryFileChunkType(IntEnum):
    """The file that a chunk belongs to (bmqp::RecoveryFileChunkType)."""

    UNDEFINED = 0
    DATA = 1
    JOURNAL = 2
    QLIST = 3
