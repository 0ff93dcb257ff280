"""The declarations of structures as `construct`'s: a slow, independent decoder of the same bytes."""

from __future__ import annotations

from typing import Any

import construct as cs

from formats.schema import Buffer, Kind, Layout

_KINDS = {
    "B": cs.Int8ub,
    "H": cs.Int16ub,
    "I": cs.Int32ub,
    "Q": cs.Int64ub,
    "b": cs.Int8sb,
    "h": cs.Int16sb,
    "i": cs.Int32sb,
    "q": cs.Int64sb,
}


def as_construct(layout: Layout[Any]) -> Any:
    """Return a `construct.Struct`; bit fields lie in a nested `BitStruct` of their word."""
    return cs.Struct(
        *(
            word.name
            / (cs.BitStruct(*(n / cs.BitsInteger(w) for n, w in word.parts)) if word.parts else _field(word.kind))
            for word in layout._words
        )
    )


def _field(kind: Kind) -> Any:
    code = kind.struct_code
    return cs.Bytes(int(code[:-1])) if code.endswith("s") else _KINDS[code]


def parse_readable(layout: Layout[Any], data: Buffer) -> dict[str, Any]:
    """Decode the fields by name."""
    parsed = as_construct(layout).parse(bytes(data))
    out: dict[str, Any] = {}
    for word in layout._words:
        value = parsed[word.name]
        if word.parts:
            out.update((name, value[name]) for name, _ in word.parts)
        else:
            out[word.name] = value
    return out
