"""The contents of messages for people, ready for JSON: properties, and the payload in its various forms. Pure.

Contents are untrusted: sizes are bounded, and unreadable parts are marked as such.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any, Final

from bmqctl.carrying.messages.listing import Contents
from bmqctl.common.pretty import pretty_front
from formats.bmq.wire.properties import Property

__all__ = ["contents_value", "hex_lines"]

TEXT_CHARACTERS_MAX: Final = 256 << 10
HEX_BYTES_MAX: Final = 16 << 10
_LINE: Final = 16
# The first bytes of an Avro object container file.
_AVRO_FILE: Final = b"Obj\x01"


def contents_value(contents: Contents) -> dict[str, Any]:
    payload = contents.payload
    return {
        "fault": contents.fault,
        "properties": [
            {"name": each.name, "type": each.type.name, "value": _property_text(each)} for each in contents.properties
        ],
        "size": len(payload),
        "base64": base64.b64encode(payload).decode("ascii"),
        "forms": list(_forms(payload)),
    }


def hex_lines(data: bytes) -> str:
    lines = []
    for at in range(0, min(len(data), HEX_BYTES_MAX), _LINE):
        part = data[at : at + _LINE]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):<47}  {shown}")
    return "\n".join(lines)


def _forms(payload: bytes) -> Iterable[dict[str, Any]]:
    text = _text(payload)
    if text is not None and (value := _json(text)) is not None:
        shown, is_cut = pretty_front(value, 2, TEXT_CHARACTERS_MAX)
        yield {"name": "JSON", "text": shown, "is_cut": is_cut}
    if payload.startswith(_AVRO_FILE):
        # Decoded on request, with a schema from the user.
        yield {"name": "Avro", "text": None, "is_cut": False}
    if text is not None:
        is_cut = len(text) > TEXT_CHARACTERS_MAX
        yield {"name": "Text", "text": text[:TEXT_CHARACTERS_MAX], "is_cut": is_cut}
    yield {"name": "Hex", "text": hex_lines(payload), "is_cut": len(payload) > HEX_BYTES_MAX}


def _text(payload: bytes) -> str | None:
    try:
        return payload.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _json(text: str) -> Any:
    """Parse an object or a list of JSON; return None for anything else, or if it cannot be written again."""
    try:
        found = json.loads(text)
        json.dumps(found)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None


def _property_text(each: Property) -> str:
    if isinstance(each.value, bytes):
        return f"0x{each.value.hex()}"
    return ("true" if each.value else "false") if isinstance(each.value, bool) else str(each.value)
