"""Messages as a broker dumps them into a file, read back for `load-post`.

Source of the format: `mqbblp::QueueEngineUtil::dumpMessageInTempfile`, which writes either

    Message Properties:\n\n[ ... ]\n\n\nMessage Properties hexdump:\n\n<hex dump>\n\nMessage Payload:\n\n<hex dump>

or `Application Data:` and one hex dump.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["MessageFileError", "parse_message_file"]

_BLOCK_DIGITS = 8
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})+")


class MessageFileError(Exception):
    """A file that is not the dump of a message; the text says where it differs."""


def parse_message_file(data: bytes) -> tuple[bytes, bytes]:
    """Parse a message's properties area (empty if it has none) and its payload."""
    lines = iter(data.decode("latin-1").split("\n"))
    title = next(lines)
    if title == "Application Data:":
        next(lines, None)
        return b"", _hex_dump(lines)
    if title != "Message Properties:":
        raise MessageFileError("neither 'Message Properties:' nor 'Application Data:' in the first line")
    # The properties as text may have many lines of any content: the dump after them counts.
    for line in lines:
        if line == "Message Properties hexdump:":
            break
    else:
        raise MessageFileError("no 'Message Properties hexdump:'")
    next(lines, None)
    properties = _hex_dump(lines)
    title = next((line for line in lines if line), "")
    if title != "Message Payload:":
        raise MessageFileError("no 'Message Payload:' after the properties")
    next(lines, None)
    return properties, _hex_dump(lines)


def _hex_dump(lines: Iterator[str]) -> bytes:
    """The bytes up to the next empty line; each line is an offset, blocks of hex digits, and the text in bars."""
    data = bytearray()
    for line in lines:
        if not line:
            break
        _, separator, rest = line.strip().partition(" ")
        if not separator:
            raise MessageFileError(f"no line of a hex dump: {line!r}")
        for block in rest.split():
            if block.startswith("|"):
                break
            if len(block) > _BLOCK_DIGITS or not _HEX.fullmatch(block):
                raise MessageFileError(f"no block of a hex dump: {block!r}")
            data += bytes.fromhex(block)
    return bytes(data)
