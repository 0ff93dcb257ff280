# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Events of a short header and messages of one size: ACK, CONFIRM and REJECT.

    | header_words 4 | per_message_words 4 | ...        once, then the messages

The sender gives both sizes; fields that newer senders append are skipped.
"""

from __future__ import annotations

from formats.bmq.padding import WORD
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["message_offsets"]


def message_offsets(buffer: Buffer, start: int, end: int, size: int, path: str) -> range:
    """Return the offsets of the messages in the body `buffer[start:end]`, each of at least `size` bytes.

    FormatError named `path` unless they fill the body, which may be without messages.
    """
    if end - start < WORD:
        raise FormatError(path, start, f"needs {WORD} bytes, {end - start} left")
    words = buffer[start]
    step = (words & 0xF) * WORD
    first = start + (words >> 4) * WORD
    if first == start or step < size or first > end or (end - first) % step:
        reason = f"{end - start} bytes are no header of {words >> 4} words and whole messages of {words & 0xF} words"
        raise FormatError(path, start, reason)
    return range(first, end, step)
