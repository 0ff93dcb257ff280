"""Numbers that Java derives from text, which the files keep."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, repeat
from operator import mul
from typing import Final, TypeVar

__all__ = ["HashedFront", "hash_map_order", "index_hash", "string_hash"]

V = TypeVar("V")

_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 1 << 31


def _powers(count: int) -> tuple[int, ...]:
    return tuple(accumulate(repeat(31, count - 1), lambda power, base: power * base & _MASK, initial=1))


# Those of 31, which a text's units are multiplied with: enough for any key or tag that is met in practice.
_POWERS: Final = _powers(512)


def string_hash(text: str) -> int:
    """`String.hashCode`: a signed 32-bit number made of the text's UTF-16 units. Consume queues keep that of a tag."""
    units: Sequence[int]
    try:
        units = text.encode("latin-1")
    except UnicodeEncodeError:
        data = text.encode("utf-16-be", "surrogatepass")
        units = struct.unpack(f">{len(data) // 2}H", data)
    powers = _POWERS if len(units) <= len(_POWERS) else _powers(len(units))
    number: int = sum(map(mul, reversed(units), powers)) & _MASK
    return number - (_MASK + 1) if number & _SIGN else number


# The same few names come with every message. Whoever sends others, long ones, is not to fill the memory with them.
_name_hash = lru_cache(maxsize=512)(string_hash)


def index_hash(key: str) -> int:
    """The hash of an index key, never negative (source: IndexFile.indexKeyHashMethod).

    Java's absolute value of the smallest int is that int itself; the original takes 0 for it.
    """
    number = abs(string_hash(key))
    return 0 if number == _SIGN else number


class HashedFront:
    """Index hashes of texts that begin alike. `begin` is the front of all; how much further the last few were alike
    is remembered, too. Texts are ASCII, as bytes.
    """

    __slots__ = ("_begin", "_front", "_number")

    def __init__(self, begin: bytes) -> None:
        self._begin = _hash_on(0, begin)
        self._front = b""
        self._number = self._begin

    def index_hash(self, text: bytes) -> int:
        """`index_hash` of the begin and `text`."""
        front = text[:-_TAIL]
        if front != self._front:
            self._front, self._number = front, _hash_on(self._begin, front)
        number = _hash_on(self._number, text[-_TAIL:])
        return number if number < _SIGN else (_MASK + 1 - number) & ~_SIGN


# Of texts that begin alike, so many bytes differ, as a rule: in a unique id, a time and a counter.
_TAIL: Final = 8
_FALLING: Final = tuple(tuple(reversed(_POWERS[:count])) for count in range(65))


def _hash_on(number: int, units: bytes) -> int:
    """The hash, as a number without a sign, of a text: that of its front, and the bytes behind it."""
    count = len(units)
    if count >= len(_FALLING):
        for at in range(0, count, len(_FALLING) - 1):
            number = _hash_on(number, units[at : at + len(_FALLING) - 1])
        return number
    total: int = number * _POWERS[count] + sum(map(mul, units, _FALLING[count]))
    return total & _MASK


def hash_map_order(entries: Mapping[str, V], buckets: int = 128) -> dict[str, V]:
    """The entries in the order in which a `java.util.HashMap` gives them, which was made with so many buckets.

    The map doubles when more than three quarters are in use. Entries of one bucket come in the order in which they were
    put; trees, into which Java turns buckets of eight and more, are left out of account.
    """
    return {name: entries[name] for name in _order(tuple(entries), buckets)}


@lru_cache(maxsize=256)
def _order(names: tuple[str, ...], buckets: int) -> tuple[str, ...]:
    while len(names) > buckets * 3 // 4:
        buckets *= 2

    def bucket(name: str) -> int:
        number = _name_hash(name) & _MASK
        return (number ^ number >> 16) & buckets - 1

    return tuple(sorted(names, key=bucket))
