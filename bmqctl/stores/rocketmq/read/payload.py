"""Bodies of messages for people: decompressed, as text or hexadecimal digits, truncated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from bmqctl.client.remoting.bodies import inflate_other
from bmqctl.stores.blazingmq.read.columns import Column, Kind, Row
from bmqctl.stores.blazingmq.read.payload import inflate, payload_text
from bmqctl.stores.blazingmq.read.wanted import PayloadForm
from bmqctl.stores.rocketmq.read.derived import sound_bodies
from bmqctl.stores.rocketmq.read.records import LogRecords
from formats.bmq.codes import DECOMPRESSED_SIZE_MAX
from formats.errors import FormatError
from formats.rocketmq.flags import CompressionType, SystemFlag, compression_of

__all__ = ["PAYLOAD_COLUMNS", "BodyReader", "BodyValues", "decompressed"]

PAYLOAD_COLUMNS: Final = (
    Column("payload_size", Kind.NUMBER),
    Column("payload"),
    Column("payload_hex"),
    Column("body_hex"),
    Column("payload_omitted", Kind.NUMBER),
    Column("payload_fault"),
)
_NAMES: Final = tuple(column.name for column in PAYLOAD_COLUMNS)
# A plain integer: an operation with a member of an enumeration makes another member.
_COMPRESSED: Final = int(SystemFlag.COMPRESSED)
BodyValues = tuple[int | None, str | None, str | None, str | None, int | None, str | None]
"""The values of a record's body columns; None where it has none."""

_OTHER: Final[BodyValues] = (None, None, None, None, None, "the checksum of the body differs")


class BodyReader:
    """Reads bodies; `limit` is in bytes of each, 0 for all of it. `faults` counts unreadable bodies."""

    def __init__(self, form: PayloadForm, limit: int) -> None:
        self._form = form
        self._limit = limit or DECOMPRESSED_SIZE_MAX
        self.faults = 0

    def values(self, records: LogRecords, number: int) -> Row:
        (values,) = self._read_all(records.where(slice(number, number + 1)))
        return {name: value for name, value in zip(_NAMES, values, strict=True) if value is not None}

    def columns(self, records: LogRecords) -> dict[str, Sequence[Any]]:
        return dict(zip(_NAMES, zip(*self._read_all(records), strict=True), strict=True)) if len(records) else {}

    def texts(self, records: LogRecords, line: Callable[[BodyValues], str]) -> list[bytes]:
        """Each record as a line of text; see `BodyValues` for the order of values."""
        return [line(values).encode() for values in self._read_all(records)]

    def _read_all(self, records: LogRecords) -> list[BodyValues]:
        flags, sizes = records.flags, records.body_sizes
        sound = np.ones(len(records), np.bool_) if self._form is PayloadForm.STORED else sound_bodies(records)
        if self._form is PayloadForm.STORED or not (flags & _COMPRESSED).any():
            heads = records.strings(records.body_at, np.minimum(sizes, self._limit))
            read = self._stored if self._form is PayloadForm.STORED else self._plain
            found = list(map(read, heads, sizes.tolist()))
        else:
            places = zip(records.body_at.tolist(), sizes.tolist(), flags.tolist(), sound.tolist(), strict=True)
            data = records.data
            found = [self._read(data[at : at + size], flags) if ok else _OTHER for at, size, flags, ok in places]
        for row in np.flatnonzero(~sound).tolist():
            found[row] = _OTHER
            self.faults += 1
        return found

    def _stored(self, head: bytes, size: int) -> BodyValues:
        return None, None, None, head.hex().upper(), size - len(head) or None, None

    def _plain(self, head: bytes, size: int) -> BodyValues:
        cut = size - len(head)
        text = payload_text(self._form, head, is_cut=bool(cut))
        return size, text, head.hex().upper() if text is None else None, None, cut or None, None

    def _read(self, body: memoryview, flags: int) -> BodyValues:
        try:
            head, whole = decompressed(body, flags, self._limit)
        except FormatError as error:
            self.faults += 1
            return None, None, None, None, None, str(error)
        return self._plain(head, whole)


def decompressed(body: memoryview, system_flags: int, keep: int) -> tuple[bytes, int]:
    """The first `keep` bytes of a body as sent, and its size. Raises `FormatError` if it cannot be read."""
    try:
        compression = compression_of(system_flags)
    except ValueError:
        raise FormatError("Record.system_flags", 0, "the body is compressed in a way that is unknown") from None
    if compression is None:
        return bytes(body[:keep]), len(body)
    if compression is CompressionType.ZLIB:
        return inflate(body, keep)
    return inflate_other(body, compression, keep, DECOMPRESSED_SIZE_MAX)
