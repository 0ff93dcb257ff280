# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Writers of journal records: one for each kind, called for each message, with fields as parameters."""

from __future__ import annotations

from typing import Final

from formats.bmq.disk.journal import (
    CONFIRM_RECORD,
    DELETION_RECORD,
    JOURNAL_OP_RECORD,
    MESSAGE_RECORD,
    QUEUE_OP_RECORD,
    RECORD_MAGIC,
    TYPE_SHIFT,
    JournalOpType,
    RecordType,
)
from formats.bmq.disk.keys import NULL_KEY

__all__: Final = ["pack_confirm", "pack_deletion", "pack_message", "pack_queue_op", "pack_sync_point"]

_pack_message: Final = MESSAGE_RECORD.words.pack_into
_pack_confirm: Final = CONFIRM_RECORD.words.pack_into
_pack_deletion: Final = DELETION_RECORD.words.pack_into
_pack_queue_op: Final = QUEUE_OP_RECORD.words.pack_into
_pack_journal_op: Final = JOURNAL_OP_RECORD.words.pack_into

_MESSAGE_WORD: Final = RecordType.MESSAGE << TYPE_SHIFT
_CONFIRM_WORD: Final = RecordType.CONFIRM << TYPE_SHIFT
_DELETION_WORD: Final = RecordType.DELETION << TYPE_SHIFT
_QUEUE_OP_WORD: Final = RecordType.QUEUE_OP << TYPE_SHIFT
_JOURNAL_OP_WORD: Final = RecordType.JOURNAL_OP << TYPE_SHIFT


# Callers must pass sequence numbers below 1 << 48 and flags below 1 << 12: these functions are on the path of every
# message and do not check them. struct rejects values that do not fit their words.


def pack_message(
    buffer: bytearray | memoryview,
    offset: int,
    primary_lease_id: int,
    sequence_number: int,
    timestamp: int,
    ref_count: int,
    compression: int,
    queue_key: bytes,
    message_offset_dwords: int,
    guid: bytes,
    crc32c: int,
) -> None:
    """Write a MessageRecord at `offset`, with a null file key; `timestamp` is in seconds."""
    _pack_message(
        buffer,
        offset,
        _MESSAGE_WORD | (ref_count & 0xFFF) << 48 | sequence_number,
        primary_lease_id,
        timestamp,
        ref_count >> 12,
        compression,
        queue_key,
        NULL_KEY,
        message_offset_dwords,
        guid,
        crc32c,
        RECORD_MAGIC,
    )


def pack_confirm(
    buffer: bytearray | memoryview,
    offset: int,
    primary_lease_id: int,
    sequence_number: int,
    timestamp: int,
    reason: int,
    queue_key: bytes,
    app_key: bytes,
    guid: bytes,
) -> None:
    _pack_confirm(
        buffer,
        offset,
        _CONFIRM_WORD | reason << 48 | sequence_number,
        primary_lease_id,
        timestamp,
        b"",
        queue_key,
        app_key,
        guid,
        b"",
        RECORD_MAGIC,
    )


def pack_deletion(
    buffer: bytearray | memoryview,
    offset: int,
    primary_lease_id: int,
    sequence_number: int,
    timestamp: int,
    deletion_flag: int,
    queue_key: bytes,
    guid: bytes,
) -> None:
    _pack_deletion(
        buffer,
        offset,
        _DELETION_WORD | deletion_flag << 48 | sequence_number,
        primary_lease_id,
        timestamp,
        b"",
        queue_key,
        guid,
        b"",
        RECORD_MAGIC,
    )


def pack_queue_op(
    buffer: bytearray | memoryview,
    offset: int,
    primary_lease_id: int,
    sequence_number: int,
    timestamp: int,
    queue_op_type: int,
    queue_key: bytes,
    app_key: bytes = NULL_KEY,
    queue_uri_record_offset_words: int = 0,
    start_primary_lease_id: int = 0,
    start_sequence_number: int = 0,
) -> None:
    _pack_queue_op(
        buffer,
        offset,
        _QUEUE_OP_WORD | sequence_number,
        primary_lease_id,
        timestamp,
        b"",
        queue_key,
        app_key,
        queue_op_type,
        queue_uri_record_offset_words,
        start_sequence_number,
        start_primary_lease_id,
        b"",
        RECORD_MAGIC,
    )


def pack_sync_point(
    buffer: bytearray | memoryview,
    offset: int,
    primary_lease_id: int,
    sequence_number: int,
    timestamp: int,
    sync_point_type: int,
    sync_point_primary_lease_id: int,
    sync_point_sequence_number: int,
    primary_node_id: int,
    data_file_offset_dwords: int,
    qlist_file_offset_words: int,
) -> None:
    _pack_journal_op(
        buffer,
        offset,
        _JOURNAL_OP_WORD | sequence_number,
        primary_lease_id,
        timestamp,
        b"",
        sync_point_type,
        JournalOpType.SYNCPOINT,
        sync_point_sequence_number,
        primary_node_id,
        sync_point_primary_lease_id,
        data_file_offset_dwords,
        qlist_file_offset_words,
        b"",
        RECORD_MAGIC,
    )
