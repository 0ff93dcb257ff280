"""Bodies of messages for people: decompressed, as text or hexadecimal digits, truncated."""

from __future__ import annotations

from typing import Final

from bmqctl.commitlog.records import LogRecords
from bmqctl.journal.read.columns import Column, Kind, Row
from bmqctl.journal.read.payload import PayloadForm, inflate, payload_text
from formats.bmq.codes import DECOMPRESSED_SIZE_MAX
from formats.errors import FormatError
from formats.rocketmq.flags import CompressionType, compression_of

__all__ = ["PAYLOAD_COLUMNS", "BodyReader", "decompressed"]

PAYLOAD_COLUMNS: Final = (
    Column("payload_size", Kind.NUMBER),
    Column("payload"),
    Column("payload_hex"),
    Column("body_hex"),
    Column("payload_omitted", Kind.NUMBER),
    Column("payload_fault"),
)
_ARROW_NAMES: Final = {CompressionType.LZ4: "lz4", CompressionType.ZSTD: "zstd"}


class BodyReader:
    """Reads bodies; `limit` is in bytes of each, 0 for all of it. `faults` counts those that cannot be read."""

    def __init__(self, form: PayloadForm, limit: int) -> None:
        self._form = form
        self._limit = limit or DECOMPRESSED_SIZE_MAX
        self.faults = 0

    def values(self, records: LogRecords, number: int) -> Row:
        """The values of the columns that one of the records has."""
        at, size = int(records.body_at[number]), int(records.body_sizes[number])
        if self._form is PayloadForm.STORED:
            kept = min(size, self._limit)
            row: Row = {"body_hex": bytes(records.data[at : at + kept]).hex().upper()}
            return row | ({"payload_omitted": size - kept} if kept < size else {})
        try:
            head, whole = decompressed(records.data[at : at + size], int(records.flags[number]), self._limit)
        except FormatError as error:
            self.faults += 1
            return {"payload_fault": str(error)}
        cut = whole - len(head)
        text = payload_text(self._form, head, is_cut=bool(cut))
        row = {"payload_size": whole}
        row |= {"payload_hex": head.hex().upper()} if text is None else {"payload": text}
        return row | ({"payload_omitted": cut} if cut else {})


def decompressed(body: memoryview, system_flags: int, keep: int) -> tuple[bytes, int]:
    """The first `keep` bytes of a body as it was sent, and its size. Raises `FormatError` if it cannot be read."""
    try:
        compression = compression_of(system_flags)
    except ValueError:
        raise FormatError("Record.system_flags", 0, "the body is compressed in a way that is unknown") from None
    if compression is None:
        return bytes(body[:keep]), len(body)
    if compression is CompressionType.ZLIB:
        return inflate(body, keep)
    name = _ARROW_NAMES[compression]
    try:
        from bmqctl.commitlog.arrow import inflate_by_arrow
    except ImportError:
        reason = "needs pyarrow, which is not installed: pip install 'bmqctl[arrow]'"
        raise FormatError(name, 0, reason) from None
    return inflate_by_arrow(body, name, keep)
