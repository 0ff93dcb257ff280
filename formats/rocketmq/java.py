# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Hashes and orders that Java derives from text and that files depend on."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, repeat
from operator import mul
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "MASK",
    "HashedFront",
    "PartHashes",
    "hash_map_order",
    "index_hash",
    "index_hashes",
    "string_hash",
    "tag_hash",
    "to_index_hashes",
]

V = TypeVar("V")

MASK: Final = 0xFFFFFFFF
_SIGN: Final = 1 << 31


def _powers(count: int) -> tuple[int, ...]:
    return tuple(accumulate(repeat(31, count - 1), lambda power, base: power * base & MASK, initial=1))


# Powers of 31, the factors of a text's units: enough for practical keys and tags.
_POWERS: Final = _powers(512)


def string_hash(text: str) -> int:
    """`String.hashCode`: a signed 32-bit number made of the text's UTF-16 units. Consume queues store a tag's."""
    units: Sequence[int]
    try:
        units = text.encode("latin-1")
    except UnicodeEncodeError:
        data = text.encode("utf-16-be", "surrogatepass")
        units = struct.unpack(f">{len(data) // 2}H", data)
    powers = _POWERS if len(units) <= len(_POWERS) else _powers(len(units))
    number: int = sum(map(mul, reversed(units), powers)) & MASK
    return number - (MASK + 1) if number & _SIGN else number


# Messages repeat a few names. A small cache: long names from a peer cannot fill the memory.
_name_hash = lru_cache(maxsize=512)(string_hash)
tag_hash = lru_cache(maxsize=512)(string_hash)


def index_hash(key: str) -> int:
    """The hash of an index key, never negative (source: IndexFile.indexKeyHashMethod).

    The smallest int, whose absolute value overflows in Java, gives 0.
    """
    number = abs(string_hash(key))
    return 0 if number == _SIGN else number


def index_hashes(keys: Sequence[bytes]) -> NDArray[np.uint32]:
    """`index_hash` of many keys in UTF-8, none of which is empty; bytes that are not UTF-8 are read as U+FFFD."""
    import numpy as np

    units = np.frombuffer(b"".join(keys), np.uint8)
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    ends = np.cumsum(lengths)
    powers = np.cumprod(np.append(1, np.full(int(lengths.max()) - 1, 31)), dtype=np.uint32)
    exponents = np.repeat(ends, lengths) - 1 - np.arange(len(units))
    sums = np.add.reduceat(units * powers[exponents], ends - lengths, dtype=np.uint32)
    hashes = to_index_hashes(sums)
    if units.max() > _ASCII_MAX:
        for at, key in enumerate(keys):
            if not key.isascii():
                hashes[at] = index_hash(key.decode(errors="replace"))
    return hashes


_ASCII_MAX: Final = 0x7F


def to_index_hashes(hashes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    import numpy as np

    return np.where(hashes < _SIGN, hashes, (0 - hashes) & np.uint32(~_SIGN & MASK))


class PartHashes:
    """Hashes of parts of a text whose units are bytes, each in constant time.

    A part's hash is the difference of two sums of units times powers of 31, times such a power: modulo 2^32 that has an
    inverse.
    """

    def __init__(self, units: NDArray[np.uint8]) -> None:
        import numpy as np

        bits = max(_BITS_MIN, len(units).bit_length())
        # Texts of similar length share their powers, which take long to compute.
        self._powers, inverse = _power_columns(bits + bits % 2)
        self._sums = np.zeros(len(units) + 1, np.uint32)
        np.cumsum(units * inverse[: len(units)], dtype=np.uint32, out=self._sums[1:])

    def find(self, begins: NDArray[np.intp], ends: NDArray[np.intp]) -> NDArray[np.uint32]:
        """`string_hash` of parts, none of which is empty, as unsigned numbers."""
        found: NDArray[np.uint32] = (self._sums[ends] - self._sums[begins]) * self._powers[ends - 1]
        return found

    def powers(self, lengths: NDArray[np.intp]) -> NDArray[np.uint32]:
        """The factor of a text's hash when `lengths` units follow it."""
        return self._powers[lengths]


_BITS_MIN: Final = 18


@lru_cache(maxsize=2)
def _power_columns(bits: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The powers of 31 and of its inverse, from the zeroth on, for texts of up to 2^`bits` units."""
    import numpy as np

    def powers(base: int) -> NDArray[np.uint32]:
        factors = np.full((1 << bits) + 1, base, np.uint32)
        factors[0] = 1
        return np.cumprod(factors, dtype=np.uint32)

    return powers(31), powers(pow(31, -1, MASK + 1))


class HashedFront:
    """Index hashes of ASCII texts that begin with `begin`; caches the latest text's, without its last `_TAIL` bytes."""

    __slots__ = ("_begin", "_front", "_number")

    def __init__(self, begin: bytes) -> None:
        self._begin = _hash_on(0, begin)
        self._front = b""
        self._number = self._begin * _TAIL_POWER

    def index_hash(self, text: bytes) -> int:
        if len(text) < _TAIL:
            number = _hash_on(self._begin, text)
        else:
            front = text[:-_TAIL]
            if front != self._front:
                self._front, self._number = front, _hash_on(self._begin, front) * _TAIL_POWER
            a, b, c, d, e, f, g, h = text[-_TAIL:]
            # The factors are the powers of 31.
            tail = a * 27512614111 + b * 887503681 + c * 28629151 + d * 923521 + e * 29791 + f * 961 + g * 31 + h
            number = (self._number + tail) & MASK
        return number if number < _SIGN else (MASK + 1 - number) & ~_SIGN


# Number of bytes in which texts with a common beginning usually differ: the time and counter of a unique id.
_TAIL: Final = 8
_TAIL_POWER: Final = 31**8 & MASK
_FALLING: Final = tuple(tuple(reversed(_POWERS[:count])) for count in range(65))


def _hash_on(number: int, units: bytes) -> int:
    count = len(units)
    if count >= len(_FALLING):
        for at in range(0, count, len(_FALLING) - 1):
            number = _hash_on(number, units[at : at + len(_FALLING) - 1])
        return number
    total: int = number * _POWERS[count] + sum(map(mul, units, _FALLING[count]))
    return total & MASK


def hash_map_order(entries: Mapping[str, V], buckets: int = 128) -> dict[str, V]:
    """The entries in the order of a `java.util.HashMap` that was made with `buckets` buckets.

    The map doubles when more than three quarters are in use. Entries of one bucket come in the order of insertion; the
    trees into which Java turns buckets of eight and more are not modelled.
    """
    return {name: entries[name] for name in _order(tuple(entries), buckets)}


@lru_cache(maxsize=256)
def _order(names: tuple[str, ...], buckets: int) -> tuple[str, ...]:
    while len(names) > buckets * 3 // 4:
        buckets *= 2

    def bucket(name: str) -> int:
        number = _name_hash(name) & MASK
        return (number ^ number >> 16) & buckets - 1

    return tuple(sorted(names, key=bucket))
