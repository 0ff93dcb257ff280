"""Schema messages as the reference writes them into logs and dumps: `[ uri = "bmq://a/b" qId = 1 subIdInfo = NULL ]`.

Source: its generated classes' `print`, on one line (bslim::Printer).
"""

from __future__ import annotations

from typing import Any

from formats.bmq.control.schema import Boolean, Choice, Description, Enumeration, Kind, Octets, Text, describe

__all__ = ["printed"]

HIDDEN = "********"


def printed(message: object) -> str:
    return _message(describe(type(message)), message)


def _message(description: Description, message: object) -> str:
    parts = []
    for element in description.elements:
        item: Any = getattr(message, element.attribute)
        if item is None:
            text = "NULL"
        elif element.secret:
            text = HIDDEN
        elif element.array:
            assert isinstance(element.kind, Description)
            text = " ".join(["[", *(_message(element.kind, entry) for entry in item), "]"])
        else:
            text = _value(element.kind, item)
        parts.append(f"{element.name} = {text}")
    return " ".join(["[", *parts, "]"])


def _value(kind: Kind, item: Any) -> str:
    match kind:
        case Description():
            return _message(kind, item)
        case Choice():
            chosen = kind.by_class[type(item)]
            return f"[ {chosen.name} = {_message(chosen.description, item)} ]"
        case Text():
            return f'"{item}"'
        case Octets():
            return f'"{item.hex().upper()}"'
        case Boolean():
            return "true" if item else "false"
        case Enumeration():
            return f"E_{kind.cls(item).name}"
        case _:
            return str(item)
