"""The choice of a decoder of payloads."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from bmqctl.common.decoding.values import to_json_value
from bmqctl.common.installed import installing

__all__ = ["BadPayload", "CannotDecode", "Decode", "Format", "Wanted", "make_decoder"]

Decode = Callable[[bytes], Any]
"""Decodes a payload to a value of JSON. Raises `BadPayload`."""

_REASON_SHOWN: Final = 200
_FAULTS: Final = (ValueError, TypeError, OverflowError, RecursionError, LookupError, ArithmeticError)


class Format(StrEnum):
    """The encodings of payloads that can be decoded."""

    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    MSGPACK = "msgpack"
    HEX = "hex"


class CannotDecode(Exception):
    """Contradictory options, or a missing schema or package; one line."""


class BadPayload(ValueError):
    """A payload that is not in the stated encoding; one line."""


class Wanted(NamedTuple):
    """The encoding of payloads: Avro needs a schema, Protobuf a file of descriptors and the name of a message."""

    format: Format
    schema: Path | None = None
    descriptor: Path | None = None
    message: str | None = None


def make_decoder(wanted: Wanted) -> Decode:
    """Make a decoder of payloads. Raises `CannotDecode`."""
    if wanted.schema is not None and wanted.format is not Format.AVRO:
        raise CannotDecode(f"--schema is for --decode avro, not {wanted.format}")
    has_type = wanted.descriptor is not None, wanted.message is not None
    if any(has_type) and wanted.format is not Format.PROTOBUF:
        raise CannotDecode(f"--descriptor and --message are for --decode protobuf, not {wanted.format}")
    if wanted.format is Format.PROTOBUF and not all(has_type):
        raise CannotDecode("--decode protobuf needs --descriptor FILE and --message NAME")
    try:
        return _guarded(wanted.format, _MAKERS[wanted.format](wanted))
    except ImportError as fault:
        package = str(fault.name).partition(".")[0]
        raise CannotDecode(
            f"--decode {wanted.format} needs {package}, which is not installed: {installing('decode')}"
        ) from None
    except OSError as fault:
        raise CannotDecode(f"{fault.filename}: {fault.strerror}") from None
    except ValueError as fault:
        raise CannotDecode(f"{wanted.schema or wanted.descriptor}: {_short(fault)}") from None


def _guarded(form: Format, decode: Decode) -> Decode:
    def guarded(payload: bytes) -> Any:
        try:
            return decode(payload)
        except _FAULTS as fault:
            reason = "it is nested too deeply" if isinstance(fault, RecursionError) else _short(fault)
            raise BadPayload(f"the payload is not {form}: {reason}") from None

    return guarded


def _short(fault: Exception) -> str:
    text = " ".join((str(fault) or type(fault).__name__).split())
    return text if len(text) <= _REASON_SHOWN else f"{text[:_REASON_SHOWN]}..."


def _json(wanted: Wanted) -> Decode:
    def decode(payload: bytes) -> Any:
        return json.loads(payload.decode("utf-8"), parse_constant=_no_constant)

    return decode


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no value of JSON")


def _avro(wanted: Wanted) -> Decode:
    from bmqctl.common.decoding.avro import (
        CONTAINER_MAGIC,
        parse_avro_schema,
        read_container,
        read_record,
        record_reader,
    )

    parsed = None if wanted.schema is None else parse_avro_schema(str(wanted.schema.absolute()))
    read = None if parsed is None else record_reader(parsed)

    def decode(payload: bytes) -> Any:
        if payload.startswith(CONTAINER_MAGIC):
            return to_json_value(read_container(payload))
        if parsed is None:
            raise ValueError("it is no object container: give the schema of its records, --schema FILE")
        return to_json_value(read_record(parsed, payload, read))

    return decode


def _protobuf(wanted: Wanted) -> Decode:
    from bmqctl.common.decoding.protobuf import find_message_type

    return find_message_type(str(wanted.descriptor), str(wanted.message)).to_json_value


def _msgpack(wanted: Wanted) -> Decode:
    from bmqctl.common.decoding.message_pack import read_message_pack

    return read_message_pack


def _hex(wanted: Wanted) -> Decode:
    return bytes.hex


_MAKERS: Final[dict[Format, Callable[[Wanted], Decode]]] = {
    Format.JSON: _json,
    Format.AVRO: _avro,
    Format.PROTOBUF: _protobuf,
    Format.MSGPACK: _msgpack,
    Format.HEX: _hex,
}
