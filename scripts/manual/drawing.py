"""Drawings of structures, bit by bit: SVG for a page, in the page's colours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import NamedTuple

__all__ = ["structure_drawing"]

_BIT = 24  # width of a bit
_ROW = 30  # height of a row whose labels lie flat
_LETTER = 6.9  # width of a letter in labels
_MARGIN = 40  # for the rows' offsets
_TOP = 16  # for the bits' numbers
_ROW_BITS = 32


class _Piece(NamedTuple):
    """The part of a field that lies in one row."""

    name: str
    start: int
    width: int
    label: str


def structure_drawing(title: str, fields: Mapping[str, int]) -> str:
    """Draw fields, given as their numbers of bits, in rows of 32 bits; a row's number is its offset in bytes."""
    rows = list(_rows(fields))
    row_bits = max(piece.start + piece.width for row in rows for piece in row)
    parts: list[str] = []
    top: float = _TOP
    for number, row in enumerate(rows):
        height = max(_ROW, *(_height(piece) for piece in row))
        parts.append(f'<text x="{_MARGIN - 6}" y="{top + height / 2 + 4:g}" text-anchor="end">{number * 4}</text>')
        parts += [part for piece in row for part in _drawn(piece, top, height)]
        top += height
    marks = (_mark(bit) for bit in (0, 7, 8, 15, 16, 23, 24, 31) if bit < row_bits)
    width = _MARGIN + row_bits * _BIT + 2
    return "\n".join(
        (
            '<figure class="structure">',
            f'<svg viewBox="0 0 {width} {top + 2:g}" role="img" style="max-width: {width}px">',
            f"<title>{escape(title)}</title>",
            *marks,
            *parts,
            "</svg>",
            "</figure>",
        )
    )


def _rows(fields: Mapping[str, int]) -> Iterator[list[_Piece]]:
    """Pieces row by row; a field's name stands in the first of its widest pieces."""
    row: list[_Piece] = []
    at = 0
    for name, bits in fields.items():
        widths: list[int] = []
        left, start = bits, at
        while left:
            widths.append(min(left, _ROW_BITS - start))
            left -= widths[-1]
            start = 0
        named = widths.index(max(widths))
        for index, width in enumerate(widths):
            row.append(_Piece(name, at, width, name if index == named else ""))
            at += width
            if at == _ROW_BITS:
                yield row
                row, at = [], 0
    if row:
        yield row


def _is_upright(piece: _Piece) -> bool:
    return len(piece.label) * _LETTER + 6 > piece.width * _BIT


def _height(piece: _Piece) -> float:
    return len(piece.label) * _LETTER + 10 if _is_upright(piece) else _ROW


def _drawn(piece: _Piece, top: float, height: float) -> Iterator[str]:
    left, width = _MARGIN + piece.start * _BIT, piece.width * _BIT
    kind = "reserved" if piece.name.startswith("reserved") else "field"
    yield f'<rect class="{kind}" x="{left}" y="{top:g}" width="{width}" height="{height:g}"/>'
    if not piece.label:
        return
    x, y = left + width / 2, top + height / 2
    turn = f' transform="rotate(-90 {x:g} {y:g})"' if _is_upright(piece) else ""
    yield f'<text x="{x:g}" y="{y + 4:g}" text-anchor="middle"{turn}>{escape(piece.label)}</text>'


def _mark(bit: int) -> str:
    return f'<text class="bit" x="{_MARGIN + bit * _BIT + _BIT / 2:g}" y="{_TOP - 4}" text-anchor="middle">{bit}</text>'
