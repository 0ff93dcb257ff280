# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Frames of the remoting protocol: a header in JSON or in binary, and a body.

Source: RemotingCommand, RocketMQSerializable.

    length 32 | header encoding 8 | header length 24 | header | body

The length counts the bytes after it. An answer has the encoding of its request. `next_frame` trusts none of the
lengths.
"""

from __future__ import annotations

import json
import struct
from enum import IntEnum, IntFlag
from typing import Any, Final, NamedTuple

from formats.errors import FormatError
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.frame_layout import BINARY_FRONT, BinaryFront
from formats.schema import Buffer

__all__ = [
    "FRAME_BYTES_MAX",
    "HEADER_BYTES_MAX",
    "Frame",
    "FrameFlag",
    "HeaderEncoding",
    "LanguageCode",
    "encode_frame",
    "next_frame",
]

# The original's default limit.
FRAME_BYTES_MAX: Final = 16 << 20
# The original has no limit. A waiting request is kept with its header; none needs this size.
HEADER_BYTES_MAX: Final = 1 << 20

_LENGTHS: Final = struct.Struct(">II")
_LENGTH: Final = struct.Struct(">I")
_LENGTH_BYTES: Final = 4
_JSON: Final = 0
_BINARY: Final = 1
_HEADER_LENGTH: Final = 0xFFFFFF


class HeaderEncoding(IntEnum):
    """The encoding of a header (source: SerializeType)."""

    JSON = _JSON
    BINARY = _BINARY


class FrameFlag(IntFlag):
    """Bits of a frame's flag. Without `RESPONSE` a frame is a request; `ONE_WAY` asks for no answer."""

    RESPONSE = 1
    ONE_WAY = 2


class LanguageCode(IntEnum):
    """The programming language of a frame's sender. Unknown names are read as `OTHER`."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


# Plain integers: bit operations on members of an enumeration create members, which is slow.
_RESPONSE: Final = int(FrameFlag.RESPONSE)
_ONE_WAY: Final = int(FrameFlag.ONE_WAY)


_LANGUAGES_BY_NAME: Final = dict(LanguageCode.__members__)
_LANGUAGE_NAMES: Final = {language: language.name for language in LanguageCode}


class Frame(NamedTuple):
    """A request or an answer. `ext_fields` are its header's own fields, converted to text.

    The requester chooses `opaque`, and the answer repeats it. Java distinguishes absent fields (None) from empty ones.
    `body` is a view of the buffer that the frame was read from.
    """

    code: int
    opaque: int
    flag: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] | None = None
    body: Buffer = b""
    language: LanguageCode = LanguageCode.JAVA
    version: int = 0
    encoding: HeaderEncoding = HeaderEncoding.JSON

    @property
    def is_response(self) -> bool:
        return self.flag & _RESPONSE != 0

    @property
    def is_one_way(self) -> bool:
        return self.flag & _ONE_WAY != 0

    @property
    def bare(self) -> Frame:
        """The frame without fields and body, which is kept until a request is answered."""
        return Frame(self.code, self.opaque, self.flag, None, None, b"", self.language, self.version, self.encoding)


def next_frame(data: memoryview, at: int, end: int, bytes_max: int = FRAME_BYTES_MAX) -> tuple[Frame, int] | None:
    """The frame at `at`, and its end; None if it is not whole before `end`.

    Raises `FormatError` for a frame that is longer than `bytes_max`, has too large a header, or is malformed.
    """
    if end - at < _LENGTH_BYTES:
        return None
    (length,) = _LENGTH.unpack_from(data, at)
    if length > bytes_max:
        raise FormatError("Frame.length", at, f"{length} bytes are more than the {bytes_max} that a frame may have")
    if length < _LENGTH_BYTES:
        raise FormatError("Frame.length", at, f"{length} bytes have no room for the header's length")
    frame_end = at + _LENGTH_BYTES + length
    if frame_end > end:
        return None
    _, word = _LENGTHS.unpack_from(data, at)
    header_at = at + _LENGTHS.size
    header_size = word & _HEADER_LENGTH
    body_at = header_at + header_size
    if header_size > HEADER_BYTES_MAX:
        raise FormatError(
            "Frame.header_length", at + 5, f"{header_size} bytes are more than the {HEADER_BYTES_MAX} of a header"
        )
    if body_at > frame_end:
        raise FormatError(
            "Frame.header_length", at + 5, f"the header reaches {body_at - frame_end} bytes beyond the frame"
        )
    body = data[body_at:frame_end]
    try:
        encoding = word >> 24
        if encoding == _JSON:
            return _from_json(data[header_at:body_at], body), frame_end
        if encoding == _BINARY:
            return _from_binary(data[header_at:body_at], body), frame_end
        raise FormatError("Frame.header_encoding", -4, f"{encoding} is neither JSON (0) nor binary (1)")
    except FormatError as error:
        raise error.shifted(header_at) from None


def encode_frame(frame: Frame) -> bytes:
    """Encode a frame. Raises `ValueError` for a number or a text that the header's encoding cannot hold."""
    header = _to_json(frame) if frame.encoding is HeaderEncoding.JSON else _to_binary(frame)
    if len(header) > _HEADER_LENGTH:
        raise ValueError(f"the header has {len(header)} bytes, more than {_HEADER_LENGTH}")
    lengths = _LENGTHS.pack(_LENGTH_BYTES + len(header) + len(frame.body), frame.encoding << 24 | len(header))
    return b"".join((lengths, header, frame.body))


# -- JSON

# The range of a Java int, the type of code, opaque, flag and version.
_INT_MIN: Final = -(1 << 31)
_INT_MAX: Final = (1 << 31) - 1

_load: Final = json.JSONDecoder().decode
_dump: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_quoted: Final = json.encoder.encode_basestring
_TEXT: Final = {str}


def _parse_json(text: str) -> dict[str, Any]:
    try:
        fields = _load(text)
    except (ValueError, RecursionError):
        # Slower; reads everything that fastjson reads, and locates faults.
        fields = fastjson.loads(text)
        if isinstance(fields, dict) and isinstance(fields.get("extFields"), dict):
            # fastjson allows names that are not text.
            fields["extFields"] = _texts(fields["extFields"])
    if not isinstance(fields, dict):
        raise FormatError("Frame.header", 0, "is not a JSON object")
    return fields


def _int_field(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name, 0)
    if type(value) is not int or not _INT_MIN <= value <= _INT_MAX:
        raise FormatError(f"Frame.{name}", 0, f"{str(value)[:40]!r} is not an int of 32 bits")
    return value


def _text_of(name: str, value: Any) -> str:
    """Convert a field to text: some clients write numbers and booleans as such."""
    if type(value) is str:
        return value
    if isinstance(value, (dict, list, tuple)):
        raise FormatError(f"Frame.extFields.{name[:40]}", 0, "is not a single value")
    return _dump(value)


def _from_json(header: memoryview, body: memoryview) -> Frame:
    try:
        text = str(header, "utf-8")
    except UnicodeDecodeError as error:
        raise FormatError("Frame.header", error.start, "is not UTF-8") from None
    fields = _parse_json(text)
    if "code" not in fields:
        raise FormatError("Frame.code", 0, "is missing")
    ext_fields = fields.get("extFields")
    if ext_fields is not None and (type(ext_fields) is not dict or {*map(type, ext_fields.values())} != _TEXT):
        ext_fields = _texts(ext_fields)
    remark = fields.get("remark")
    if remark is not None and not isinstance(remark, str):
        raise FormatError("Frame.remark", 0, "is not a string")
    if "\\ud" in text or "\\uD" in text:
        _check_pairs(remark or "", ext_fields or {})
    return Frame(
        _int_field(fields, "code"),
        _int_field(fields, "opaque"),
        _int_field(fields, "flag"),
        remark,
        ext_fields,
        body,
        _language(fields.get("language", "JAVA")),
        _int_field(fields, "version"),
    )


def _check_pairs(remark: str, ext_fields: dict[str, str]) -> None:
    """Raise `FormatError` for half of a surrogate pair: such a text can be neither forwarded nor answered."""
    for text in (remark, *ext_fields, *ext_fields.values()):
        if fastjson.has_half_pair(text):
            raise FormatError("Frame.header", 0, "has half of a surrogate pair")


def _texts(ext_fields: Any) -> dict[str, str]:
    if not isinstance(ext_fields, dict):
        raise FormatError("Frame.extFields", 0, "is not a JSON object")
    return {
        str(name): value if type(value) is str else _text_of(str(name), value)
        for name, value in ext_fields.items()
        if value is not None
    }


def _language(name: object) -> LanguageCode:
    if not isinstance(name, str):
        raise FormatError("Frame.language", 0, "is not a string")
    return _LANGUAGES_BY_NAME.get(name, LanguageCode.OTHER)


def _to_json(frame: Frame) -> bytes:
    """Encode the header sorted by name, without nulls, like fastjson."""
    ext_fields = ""
    if frame.ext_fields is not None:
        pairs = [f"{_quoted(name)}:{_quoted(value)}" for name, value in frame.ext_fields.items()]
        ext_fields = f'"extFields":{{{",".join(pairs)}}},'
    remark = "" if frame.remark is None else f'"remark":{_quoted(frame.remark)},'
    try:
        return (
            f'{{"code":{frame.code:d},{ext_fields}"flag":{frame.flag:d},"language":"{_LANGUAGE_NAMES[frame.language]}",'
            f'"opaque":{frame.opaque:d},{remark}"serializeTypeCurrentRPC":"JSON","version":{frame.version:d}}}'
        ).encode()
    except UnicodeEncodeError:
        raise UnicodeError("a field of the header has half of a surrogate pair: give a text in UTF-8") from None


# -- binary

_LANGUAGES: Final = {language.value: language for language in LanguageCode}
_SHORT: Final = struct.Struct(">H")
_INT: Final = struct.Struct(">i")


def _take(header: memoryview, at: int, width: struct.Struct, what: str) -> tuple[memoryview, int]:
    """Read a text after its length field; return it and its end."""
    begin = at + width.size
    if begin > len(header):
        raise FormatError(f"Frame.{what}", at, "its length is cut off")
    (size,) = width.unpack_from(header, at)
    if not 0 <= size <= len(header) - begin:
        raise FormatError(f"Frame.{what}", at, f"{size} bytes do not fit into the {len(header) - begin} that are left")
    return header[begin : begin + size], begin + size


def _text(data: memoryview, at: int, what: str) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise FormatError(f"Frame.{what}", at, "is not UTF-8") from None


def _from_binary(header: memoryview, body: memoryview) -> Frame:
    front = BINARY_FRONT.unpack(header)
    remark, at = _take(header, BINARY_FRONT.size, _INT, "remark")
    fields, end = _take(header, at, _INT, "extFields")
    if end != len(header):
        raise FormatError("Frame.header", end, f"{len(header) - end} bytes follow its fields")
    ext_fields: dict[str, str] = {}
    place = 0
    while place < len(fields):
        name, behind = _take(fields, place, _SHORT, "extFields")
        value, behind = _take(fields, behind, _INT, "extFields")
        ext_fields[_text(name, at, "extFields")] = _text(value, at, "extFields")
        place = behind
    return Frame(
        front.code,
        front.opaque,
        front.flag,
        _text(remark, BINARY_FRONT.size, "remark") or None,
        ext_fields or None,
        body,
        _LANGUAGES.get(front.language, LanguageCode.OTHER),
        front.version,
        HeaderEncoding.BINARY,
    )


def _to_binary(frame: Frame) -> bytes:
    try:
        front = BINARY_FRONT.pack(BinaryFront(frame.code, frame.language, frame.version, frame.opaque, frame.flag))
    except struct.error:
        raise ValueError(
            f"code {frame.code}, version {frame.version} or another number does not fit its field"
        ) from None
    parts: list[bytes] = []
    for name, value in (frame.ext_fields or {}).items():
        key, text = name.encode(), value.encode()
        if len(key) > 0x7FFF:
            raise ValueError(f"the name of a field has {len(key)} bytes, more than 32767")
        parts += (_SHORT.pack(len(key)), key, _INT.pack(len(text)), text)
    fields = b"".join(parts)
    remark = (frame.remark or "").encode()
    return b"".join((front, _INT.pack(len(remark)), remark, _INT.pack(len(fields)), fields))
