"""Our declarations say what the reference's schema says: every type, element, tag, default and enumerator.

`reference_schema.txt` beside this file holds the facts of the schema; our declarations are printed in its notation.
"""

from __future__ import annotations

import json
from dataclasses import MISSING
from enum import IntEnum
from pathlib import Path
from typing import Any

from formats.bmq.control import messages
from formats.bmq.control.schema import (
    Boolean,
    Choice,
    Description,
    Element,
    Enumeration,
    Int,
    Integer,
    Kind,
    Long,
    Octets,
    Text,
    UInt,
    ULong,
    describe,
)

FACTS = [
    line
    for line in (Path(__file__).parent / "reference_schema.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
INTEGERS: dict[Integer, str] = {
    Int.__metadata__[0]: "int",  # type: ignore[attr-defined]
    UInt.__metadata__[0]: "unsignedInt",  # type: ignore[attr-defined]
    Long.__metadata__[0]: "long",  # type: ignore[attr-defined]
    ULong.__metadata__[0]: "unsignedLong",  # type: ignore[attr-defined]
}


def type_name(kind: Kind, said: str) -> str:
    """The schema's name of a type; `said` is its name in the facts, as two of them are one to both codecs."""
    match kind:
        case Integer():
            return INTEGERS[kind]
        case Boolean():
            return "boolean"
        case Text():
            return "string"
        case Octets():
            return said if said in ("hexBinary", "base64Binary") else "octets"
        case Enumeration(cls):
            return cls.__name__
        case Description():
            return kind.name
    raise AssertionError(kind)


def element_line(element: Element, said: str) -> str:
    if isinstance(element.kind, Choice):
        assert (element.optional, element.array, element.default) == (False, False, MISSING)
        return "{" + ", ".join(f"{each.tag} {each.name}" for each in element.kind.alternatives) + "}"
    mark = "*" if element.array else "?" if element.optional else ""
    words = said.split()
    line = f"{element.name} {type_name(element.kind, words[1].rstrip('*?') if len(words) > 1 else '')}{mark}"
    # Arrays and optional elements have an empty default of their own, which the schema does not say.
    if element.default is MISSING or (element.array and element.default == ()) or element.default is None:
        return line
    default = f"E_{element.default.name}" if isinstance(element.default, IntEnum) else element.default
    return f"{line} = {json.dumps(default)}"


def message_line(cls: type[Any], said: str) -> str:
    elements = describe(cls).elements
    assert [element.tag for element in elements] == list(range(len(elements)))
    parts = said.partition(": ")[2].split("; ")
    lines = [element_line(element, parts[at] if at < len(parts) else "") for at, element in enumerate(elements)]
    return f"message {cls.__name__}" + (f": {'; '.join(lines)}" if lines else "")


def enum_line(cls: type[IntEnum]) -> str:
    return f"enum {cls.__name__}: " + ", ".join(f"{member.name} {member.value}" for member in cls)


def test_every_type_is_declared_as_the_reference_has_it() -> None:
    declared: list[str] = []
    for line in FACTS:
        cls = getattr(messages, line.split()[1].rstrip(":"))
        declared.append(enum_line(cls) if issubclass(cls, IntEnum) else message_line(cls, line))
    assert declared == FACTS
    assert len(declared) == 99


def test_no_type_is_declared_that_the_reference_does_not_have() -> None:
    # The reference declares these as one empty type.
    gone = {"PlaceHolder", "ClusterSyncRequest", "ClusterSyncResponse", "QueueUnassignedAdvisory"}
    assert set(messages.__all__) - gone == {line.split()[1].rstrip(":") for line in FACTS}
    for name in gone:
        assert describe(getattr(messages, name)).elements == ()
