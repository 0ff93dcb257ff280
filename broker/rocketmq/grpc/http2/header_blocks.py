"""Header blocks in their common form, read and written without `hpack`'s steps for each field.

A client's calls begin with the same fields, from the table of HPACK, and have the others as plain literals that do not
change it. Such blocks are decoded here, and blocks wholly from the table are encoded here. `hpack` handles all others:
blocks that change a table, and invalid ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from hpack import Decoder, Encoder, HeaderTuple, HPACKError

__all__ = ["BlockDecoder", "BlockEncoder"]

# Added to a field's name and value in the table's size (RFC 7541, 4.1).
_FIELD_BYTES: Final = 32
# The first bytes of a field in the table; a literal that does not change the table begins with the other value.
_TABLE_LEAST, _TABLE_GREATEST = 0x81, 0xFE
_LITERAL: Final = 0x00
# Shorter texts have their length in one byte. Greater bytes begin a Huffman code.
_LONG: Final = 0x7F
_TWO_BYTES_MAX: Final = _LONG + 0x7F
_KNOWN_MAX: Final = 16

_new = tuple.__new__


class BlockDecoder(Decoder):
    """The decoder of a connection; see `hpack.Decoder`."""

    def __init__(self) -> None:
        super().__init__()
        # The table's fields at the front of the last block, and their size; valid until the table changes.
        self._front = b""
        self._front_fields: list[HeaderTuple] = []
        self._front_size = 0

    def decode(self, data: bytes, raw: bool = False) -> Iterable[HeaderTuple]:
        """Read a block. Raises `hpack.HPACKError`."""
        fields = self._read(data) if raw else None
        if fields is not None:
            return fields
        self._front, self._front_fields, self._front_size = b"", [], 0
        decoded: Iterable[HeaderTuple] = super().decode(data, raw)
        return decoded

    def _read(self, data: bytes) -> list[HeaderTuple] | None:
        """Read a block of the common form; return None, with the table unchanged, for any other."""
        try:
            if not self._front or not data.startswith(self._front):
                self._learn_front(data)
            fields, size, at, end = self._front_fields.copy(), self._front_size, len(self._front), len(data)
            while at < end:
                if data[at] != _LITERAL:
                    return None
                name_at = at + 2
                name_end = name_at + data[at + 1]
                length, value_at = data[name_end], name_end + 1
                if length >= _LONG or data[at + 1] >= _LONG:
                    if length != _LONG or data[at + 1] >= _LONG or data[value_at] > _TWO_BYTES_MAX - _LONG:
                        return None
                    length += data[value_at]
                    value_at += 1
                at = value_at + length
                fields.append(_new(HeaderTuple, (data[name_at:name_end], data[value_at:at])))
                size += _FIELD_BYTES + name_end - name_at + length
        except (IndexError, HPACKError):
            return None
        is_whole = at == end and size <= self.max_header_list_size
        return fields if is_whole and self.header_table.maxsize <= self.max_allowed_table_size else None

    def _learn_front(self, data: bytes) -> None:
        fields: list[HeaderTuple] = []
        for byte in data:
            if not _TABLE_LEAST <= byte <= _TABLE_GREATEST:
                break
            fields.append(_new(HeaderTuple, self.header_table.get_by_index(byte - _TABLE_LEAST + 1)))
        self._front, self._front_fields = data[: len(fields)], fields
        self._front_size = sum(_FIELD_BYTES + len(name) + len(value) for name, value in fields)


class BlockEncoder(Encoder):
    """The encoder of a connection; see `hpack.Encoder`. Caches encoded fields while the table stays the same."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[Any, ...], bytes] = {}

    @property
    def header_table_size(self) -> int:
        size: int = self.header_table.maxsize
        return size

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        self._known.clear()
        Encoder.header_table_size.fset(self, value)  # type: ignore[attr-defined]

    def encode(self, headers: Iterable[Any], huffman: bool = True) -> bytes:
        fields = tuple(headers)
        known = self._known.get(fields)
        if known is not None:
            return known
        block: bytes = super().encode(fields, huffman)
        if not all(_TABLE_LEAST <= byte <= _TABLE_GREATEST for byte in block):
            # The table has changed.
            self._known.clear()
        elif len(self._known) < _KNOWN_MAX:
            self._known[fields] = block
        return block
