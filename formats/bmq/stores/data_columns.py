"""Locations of the parts of many DATA records, as numpy columns.

`locate` agrees with `formats.bmq.disk.data.parse_data_record`, but marks malformed records as unsound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from formats.bmq.disk.data import (
    DATA_HEADER,
    HEADER_WORDS_SHIFT,
    MESSAGE_WORDS_MASK,
    OPTIONS_WORDS_SHIFT,
    DataHeaderFlags,
)
from formats.bmq.disk.padding import DWORD, WORD
from formats.bmq.wire.properties import PROPERTIES_HEADER
from formats.schema import Buffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Located", "locate", "plain_sizes"]

_AREA_WORDS = (1 << 24) - 1


class Located(NamedTuple):
    """Records of a DATA file; each array has shape (n,).

    `start` (bytes, in the file) and `size` (bytes) are of the application's data, int64; `flags` are `DataHeaderFlags`,
    `schema_id` the wire value. All are 0 where `sound` is False.
    """

    start: NDArray[Any]
    size: NDArray[Any]
    flags: NDArray[Any]
    schema_id: NDArray[Any]
    sound: NDArray[Any]


def locate(data: Buffer, offsets: NDArray[Any]) -> Located:
    """Locate the records at `offsets` (int64, bytes) of the DATA file `data`."""
    import numpy as np

    words = np.frombuffer(data, ">u4", len(data) // WORD)
    sound = (offsets >= 0) & (offsets % DWORD == 0) & (offsets + DATA_HEADER.size <= len(data))
    at = np.where(sound, offsets, 0) // WORD
    if len(words) < DATA_HEADER.size // WORD:
        zeros = np.zeros(len(offsets), np.int64)
        return Located(zeros, zeros, zeros, zeros, np.zeros(len(offsets), bool))
    first, second, third = (words[at + n].astype(np.int64) for n in range(DATA_HEADER.size // WORD))
    header_words, message_words = first >> HEADER_WORDS_SHIFT, first & MESSAGE_WORDS_MASK
    options_words = second >> OPTIONS_WORDS_SHIFT
    start = (at + header_words + options_words) * WORD
    end = (at + message_words) * WORD
    sound &= (header_words * WORD >= DATA_HEADER.size) & (end <= len(data)) & (message_words % 2 == 0) & (start < end)
    octets = np.frombuffer(data, np.uint8)
    padding = octets[np.where(sound, end - 1, 0)].astype(np.int64)
    sound &= (padding >= 1) & (padding <= np.minimum(DWORD, end - start))
    starts, size = np.where(sound, start, 0), np.where(sound, end - padding - start, 0)
    return Located(starts, size, np.where(sound, second & 0xFF, 0), np.where(sound, third >> 16, 0), sound)


def plain_sizes(data: Buffer, located: Located) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the sizes of uncompressed messages' properties and payloads, in bytes; -1 if unknown."""
    import numpy as np

    has_properties = located.flags & int(DataHeaderFlags.MESSAGE_PROPERTIES) != 0
    properties = np.where(has_properties | ~located.sound, -1, 0)
    rows = np.flatnonzero(has_properties & (located.size >= PROPERTIES_HEADER.size))
    if len(rows):
        words = np.frombuffer(data, ">u4", len(data) // WORD)
        area = (words[located.start[rows] // WORD].astype(np.int64) & _AREA_WORDS) * WORD
        properties[rows] = np.where((area > PROPERTIES_HEADER.size) & (area <= located.size[rows]), area, -1)
    return properties, np.where(properties >= 0, located.size - properties, -1)
