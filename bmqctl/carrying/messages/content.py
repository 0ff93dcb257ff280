"""Messages as lines of JSON, to post and as received.

    {"payload": "order 1", "properties": {"customer": "Ada", "amount": 12}, "tag": "paid", "keys": ["o-1"]}

A payload that is not UTF-8 is `payload_base64`. A property is a text, a whole number, true or false; other types are
objects, {"type": "INT32", "value": 7} or {"type": "BINARY", "base64": "AAE="}.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from formats.bmq.wire.properties import Property, PropertyType, PropertyValue

__all__ = [
    "DELAY_S_MAX",
    "PLACE_FIELDS",
    "PRIORITY_MAX",
    "BadInput",
    "Outgoing",
    "payload_row",
    "property_of",
    "property_rows",
    "read_message",
    "to_text_properties",
]

# A hundred years; brokers have their own limit, timerMaxDelaySec.
DELAY_S_MAX: Final = 100 * 365 * 86_400
PRIORITY_MAX: Final = (1 << 31) - 1
PLACE_FIELDS: Final = frozenset(
    {
        *("guid", "message_id", "topic", "broker", "queue", "offset", "attempt", "born_at", "decoded"),
        *("original_topic", "dead_since", "sent_again"),
    }
)
"""Fields of received messages about their place, and the decoded payload; ignored when posted again."""

_FIELDS: Final = frozenset(
    {"payload", "payload_base64", "properties", "tag", "keys", "sharding_key", "delay_s", "priority"}
)
_PLAIN: Final = {bool: PropertyType.BOOL, int: PropertyType.INT64, str: PropertyType.STRING}
_NUMBERS: Final = frozenset({PropertyType.SHORT, PropertyType.INT32, PropertyType.INT64})
_RAW: Final = frozenset({PropertyType.BINARY, PropertyType.CHAR})
_SHOWN: Final = 60


class BadInput(ValueError):
    """Input that is not a message; one line."""


class Outgoing(NamedTuple):
    """A message to post. The fields after the properties are only for RocketMQ.

    Consumers get it `delay_s` seconds after it is posted, 0 immediately; None uses the common value.
    """

    payload: bytes
    properties: Sequence[Property] = ()
    tag: str | None = None
    keys: Sequence[str] = ()
    sharding_key: str | None = None
    delay_s: float | None = None
    priority: int | None = None


# To be posted


def read_message(line: bytes) -> Outgoing:
    """Read a line of JSON. Raises `BadInput`."""
    found = _parsed(line)
    if not isinstance(found, dict):
        raise BadInput("expected a JSON object")
    unknown = found.keys() - _FIELDS - PLACE_FIELDS
    if unknown:
        raise BadInput(f"unknown field {_shown(min(unknown))}: expected {', '.join(sorted(_FIELDS))}")
    properties = found.get("properties", {})
    if not isinstance(properties, dict):
        raise BadInput("properties: expected an object")
    keys = found.get("keys", [])
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise BadInput("keys: expected a list of texts")
    return Outgoing(
        _payload(found),
        [property_of(name, value) for name, value in properties.items()],
        _optional_text(found, "tag"),
        keys,
        _optional_text(found, "sharding_key"),
        _delay_s(found["delay_s"]) if "delay_s" in found else None,
        _priority(found.get("priority")),
    )


def property_of(name: str, value: object) -> Property:
    """Make a property of a value of JSON. Raises `BadInput`."""
    kind = _PLAIN.get(type(value))
    if kind is not None:
        return Property(name, kind, value)  # type: ignore[arg-type] # its type is one of the keys
    if isinstance(value, dict):
        return _typed_property(name, value)
    raise BadInput(f"property {_shown(name)}: {_shown(value)} is no text, no whole number, and not true or false")


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise BadInput("is not UTF-8") from None
    except json.JSONDecodeError as fault:
        raise BadInput(f"is not JSON: {fault.msg} at column {fault.colno}") from None
    except BadInput:
        raise
    except (ValueError, RecursionError):
        raise BadInput("is not JSON that can be read: a number is too long, or it is nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput(f"{_shown(twice)} comes twice")
    return found


def _no_constant(text: str) -> NoReturn:
    raise BadInput(f"is not JSON: {text}")


def _payload(found: Mapping[str, Any]) -> bytes:
    if "payload" in found and "payload_base64" in found:
        raise BadInput("a message has payload or payload_base64, not both")
    if "payload_base64" in found:
        return _from_base64("payload_base64", found["payload_base64"])
    payload = found.get("payload", "")
    if not isinstance(payload, str):
        raise BadInput("payload: expected a text; encode other JSON as one")
    try:
        return payload.encode()
    except UnicodeEncodeError:
        raise BadInput("payload: has half of a surrogate pair, which is no text") from None


def _optional_text(found: Mapping[str, Any], name: str) -> str | None:
    value = found.get(name)
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{name}: expected a text")
    return value


def _delay_s(value: object) -> float:
    if type(value) in (int, float) and 0 <= value <= DELAY_S_MAX:  # type: ignore[operator] # a number, and no bool
        return value  # type: ignore[return-value]
    raise BadInput(f"delay_s: expected a number of seconds, at most {DELAY_S_MAX:,}")


def _priority(value: object) -> int | None:
    if value is None or (type(value) is int and 0 <= value <= PRIORITY_MAX):
        return value
    raise BadInput(f"priority: expected a whole number from 0 to {PRIORITY_MAX:,}")


def _typed_property(name: str, value: Mapping[str, Any]) -> Property:
    where = f"property {_shown(name)}"
    given = value.get("type")
    kind = PropertyType.__members__.get(given) if isinstance(given, str) else None
    content = "base64" if kind in _RAW else "value"
    if kind is None or value.keys() != {"type", content}:
        kinds = ", ".join(PropertyType.__members__)
        raise BadInput(f"{where}: expected type (one of {kinds}), and value; base64 for BINARY and CHAR")
    if kind in _RAW:
        return Property(name, kind, _from_base64(where, value[content]))
    wanted = int if kind in _NUMBERS else bool if kind is PropertyType.BOOL else str
    if type(value[content]) is not wanted:
        raise BadInput(f"{where}: {_shown(value[content])} is no {kind.name}")
    return Property(name, kind, value[content])


def _from_base64(where: str, text: object) -> bytes:
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
    except ValueError:
        pass
    raise BadInput(f"{where}: is not base64")


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def to_text_properties(properties: Sequence[Property]) -> dict[str, str]:
    """Properties for RocketMQ, where all are texts. Raises `BadInput` for bytes."""
    found: dict[str, str] = {}
    for name, kind, value in properties:
        if isinstance(value, bytes):
            raise BadInput(f"property {_shown(name)}: RocketMQ has texts, and no {kind.name}")
        found[name] = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return found


# That were received


def payload_row(payload: bytes) -> dict[str, str]:
    try:
        return {"payload": payload.decode("utf-8")}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


def property_rows(properties: Sequence[Property]) -> dict[str, object]:
    return {each.name: _property_row(each.type, each.value) for each in properties}


def _property_row(kind: PropertyType, value: PropertyValue) -> object:
    if isinstance(value, bytes):
        return {"type": kind.name, "base64": base64.b64encode(value).decode()}
    return value if _PLAIN.get(type(value)) is kind else {"type": kind.name, "value": value}
