"""Numbers that Java derives from text, which the files keep."""

from __future__ import annotations

__all__ = ["index_hash", "string_hash"]


def string_hash(text: str) -> int:
    """`String.hashCode`: a signed 32-bit number made of the text's UTF-16 units. Consume queues keep that of a tag."""
    units = text.encode("utf-16-be", "surrogatepass")
    number = 0
    for at in range(0, len(units), 2):
        number = (number * 31 + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


def index_hash(key: str) -> int:
    """The hash of an index key, never negative (source: IndexFile.indexKeyHashMethod).

    Java's absolute value of the smallest int is that int itself; the original takes 0 for it.
    """
    number = abs(string_hash(key))
    return 0 if number == 1 << 31 else number
