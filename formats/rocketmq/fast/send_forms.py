# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Requests to store messages that resemble an earlier one, read without patterns.

A producer's requests often differ only in queue, time, number, body and unique id; the rest is compared as a whole.
`send_frames` reads requests of every other form, with the same results.
"""

from __future__ import annotations

from typing import Final

from formats.rocketmq.fast.send_frames import JSON_PARTS, JSON_SEPARATORS, Posted

__all__ = ["PostedForm", "form_of"]

# Larger queue ids are left to the patterns.
_QUEUE_IDS: Final = {b"%d" % number: number for number in range(256)}
_OPAQUE_DIGITS_MAX: Final = 9
_QUOTE: Final = b'"'
_ZERO: Final = 0x30


class PostedForm:
    """The common parts of a form's requests, and the lengths of the others."""

    __slots__ = ("_behind", "_born_size", "_first", "_id_size", "_last", "_second", "_sizes", "_third")

    def __init__(self, parts: tuple[bytes, bytes, bytes, bytes, bytes], born_size: int, id_size: int) -> None:
        self._first, self._second, self._third, self._behind, self._last = parts
        self._born_size = born_size
        self._id_size = id_size
        self._sizes = tuple(map(len, parts))

    def read(self, header: bytes) -> tuple[int, int, bytes, bytes] | None:
        """Read queue, time, unique id, and the request's number as the answer repeats it; None for another form."""
        if not (header.startswith(self._first) and header.endswith(self._last)):
            return None
        at, second_size, third_size, behind_size, last_size = self._sizes
        end = header.find(_QUOTE, at)
        queue_id = _QUEUE_IDS.get(header[at:end])
        if queue_id is None or not header.startswith(self._second, end):
            return None
        at = end + second_size
        end = at + self._born_size
        born_text = header[at:end]
        if not born_text.isdigit() or born_text[0] == _ZERO or not header.startswith(self._third, end):
            return None
        at = end + third_size
        end = at + self._id_size
        unique_id = header[at:end]
        if not unique_id.isalnum() or not header.startswith(self._behind, end):
            return None
        opaque = header[end + behind_size : len(header) - last_size]
        if not opaque.isdigit() or len(opaque) > _OPAQUE_DIGITS_MAX or (opaque[0] == _ZERO and len(opaque) > 1):
            return None
        return queue_id, int(born_text), unique_id, opaque


def form_of(posted: Posted, id_at: int) -> PostedForm | None:
    """The form of a request that was read from JSON; None for others.

    `id_at` is the index of the unique id among the pieces of the properties.
    """
    rest = [part for part in posted.rest if isinstance(part, bytes)]
    pieces = posted.properties
    unique_id = pieces[id_at]
    if len(rest) != JSON_PARTS or len(posted.rest) != JSON_PARTS or not unique_id.isalnum():
        return None
    name_end, value_end = JSON_SEPARATORS
    before = b"".join([piece + (value_end if at % 2 else name_end) for at, piece in enumerate(pieces[:id_at])])
    behind = b"".join([(name_end if at % 2 else value_end) + piece for at, piece in enumerate(pieces[id_at + 1 :])])
    first, second, third, fourth, last = rest
    parts = first, second, third + before, behind + fourth, last
    return PostedForm(parts, len(str(posted.born_ms)), len(unique_id))
