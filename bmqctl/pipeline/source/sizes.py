"""Sizes of stored messages: in the DATA file, and as posted."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from formats.bmq.codes import CompressionAlgorithm
from formats.bmq.disk.data import DataHeaderFlags, parse_data_record
from formats.bmq.wire.properties import properties_size
from formats.errors import FormatError, check_memory
from formats.schema import Buffer

__all__ = ["INFLATED_SIZE_MAX", "MessageSizes", "measure"]

INFLATED_SIZE_MAX = 512 << 20
"""The largest size that the reference decompresses to: 8 times the largest event."""

_CHUNK = 1 << 20
_MESSAGE_PROPERTIES = int(DataHeaderFlags.MESSAGE_PROPERTIES)  # an int: for every message, an enum's & costs more


class MessageSizes(NamedTuple):
    """Sizes in bytes; `stored` is that of properties and payload in the DATA file, the others are as posted.

    None is unknown: an unsupported compression, or invalid bytes.
    """

    stored: int | None
    properties: int | None
    payload: int | None


UNREADABLE = MessageSizes(None, None, None)


def measure(data: Buffer, offset: int, compression: int) -> MessageSizes:
    try:
        record = parse_data_record(data, offset)
    except FormatError:
        return UNREADABLE
    stored = record.app_data(data)
    has_properties = record.header.flags & _MESSAGE_PROPERTIES
    if compression == CompressionAlgorithm.NONE:
        properties = _properties_size(stored) if has_properties else 0
        payload = None if properties is None else len(stored) - properties
    elif compression != CompressionAlgorithm.ZLIB:
        return MessageSizes(len(stored), None, None)
    elif has_properties and not record.header.schema_id:
        # Before schemas, properties were compressed together with the payload.
        total, head = _inflate(stored)
        properties = None if total is None else _properties_size(head)
        payload = None if total is None or properties is None else total - properties
    else:
        properties = _properties_size(stored) if has_properties else 0
        payload = None if properties is None else _inflate(stored[properties:])[0]
    return MessageSizes(len(stored), properties, payload)


def _properties_size(app_data: Buffer) -> int | None:
    try:
        return properties_size(app_data)
    except FormatError:
        return None


def _inflate(compressed: Buffer) -> tuple[int | None, bytes]:
    """The decompressed size, None if invalid or too large, and the first bytes."""
    inflater = zlib.decompressobj()
    head, total, rest = b"", 0, bytes(compressed)
    try:
        while not inflater.eof and total <= INFLATED_SIZE_MAX:
            piece = inflater.decompress(rest, _CHUNK)
            if not piece and not inflater.eof:
                return None, head
            head = head or piece
            total += len(piece)
            rest = inflater.unconsumed_tail
    except zlib.error as error:
        check_memory(error)
        return None, head
    return (total if inflater.eof else None), head
