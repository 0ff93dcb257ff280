# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The properties of a message, as expressions see them."""

from __future__ import annotations

import zlib

from broker.bmq.core.messages import Message
from formats.bmq.expressions import Values, property_values
from formats.bmq.padding import WORD
from formats.bmq.wire.properties import PROPERTIES_HEADER
from formats.errors import check_memory

__all__ = ["message_values"]


def message_values(message: Message, data: memoryview) -> Values:
    """Return the properties in a message's data, maybe none. Raises FormatError if they are malformed."""
    if not message.has_properties:
        return {}
    if message.compression and not message.schema_id:
        return property_values(memoryview(_inflated_properties(data)), True, 0)
    return property_values(data, True, message.schema_id)


def _inflated_properties(data: memoryview) -> bytes:
    """Decompress the properties' area at the head of data compressed with the payload; it may be shorter.

    A small input may decompress to a large output: only as much is decompressed as the area may have.
    """
    stream = zlib.decompressobj()
    try:
        head = stream.decompress(data, PROPERTIES_HEADER.size)
        if len(head) < PROPERTIES_HEADER.size:
            return b""
        size = PROPERTIES_HEADER.unpack(head).area_words * WORD
        return head + stream.decompress(stream.unconsumed_tail, max(1, size - len(head)))
    except zlib.error as error:
        check_memory(error)
        return b""
