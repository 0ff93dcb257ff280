# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Fast reader of SEND_MESSAGE_V2 frames as Java clients write them.

The headers that a producer sends to a topic differ only in queue, time, properties and request number. A pattern for
each encoding, made from the header's declaration, separates these fields from the rest; the first header with the same
rest (`Posted.rest`) gives the values of the others.

The patterns match printable ASCII, fields in the order of the declaration, and properties with a name and a value each.
Other frames are left to `frame.next_frame`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from formats.rocketmq.hosts import Host
from formats.rocketmq.message_ids import OffsetId
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import FRAME_BYTES_MAX, Frame, FrameFlag, HeaderEncoding, encode_frame
from formats.rocketmq.remoting.frame_layout import BINARY_FRONT
from formats.rocketmq.remoting.headers.codec import HeaderField, codec_of
from formats.rocketmq.remoting.headers.sending import SendMessageRequestV2, SendMessageResponse
from formats.rocketmq.remoting.versions import VERSION

__all__ = [
    "JSON_PARTS",
    "JSON_SEPARATORS",
    "AnswerMaker",
    "FramePlace",
    "Posted",
    "PostedRest",
    "answer_fields",
    "answer_maker",
    "frame_place",
    "json_header",
    "offset_id_front",
    "posted_of",
    "read_posted",
]

_CODEC = codec_of(SendMessageRequestV2)
_RESPONSE = codec_of(SendMessageResponse)
_CODE: Final = int(RequestCode.SEND_MESSAGE_V2)
_SUCCESS, _ANSWERS = ResponseCode.SUCCESS, FrameFlag.RESPONSE


# The fixed parts of a frame, or the fields of a decoded frame.
PostedRest = tuple[bytes | str | None, ...]

# The encoding of a frame, and the start and end of its body.
FramePlace = tuple[int, int, int]


class Posted(NamedTuple):
    """A request to store a message. `opaque` is as the answer repeats it; `body_at` and `end` are offsets.

    `properties` has names and values in turn, and one empty piece at the end.
    """

    rest: PostedRest
    queue_id: int
    born_ms: int
    properties: list[bytes]
    opaque: bytes
    body_at: int
    end: int


# -- patterns

_LENGTHS: Final = struct.Struct(">II")
_unpack_lengths: Final = _LENGTHS.unpack_from
_LENGTHS_BYTES: Final = 8
_JSON: Final = int(HeaderEncoding.JSON)
_BINARY: Final = int(HeaderEncoding.BINARY)
_pack_size: Final = struct.Struct(">I").pack
_LENGTH_BYTES: Final = 4
_HEADER_BYTES_MAX: Final = 0xFFFFFF

# The variable fields; only numbers that are certain to fit their types match.
_NUMBERS: Final = {"queue_id": rb"(?:0|[1-9]\d{0,8})", "born_ms": rb"(?:0|[1-9]\d{0,17})"}
_PROPERTIES: Final = "properties"


def _joined(field_pattern: Callable[[int, HeaderField], bytes]) -> bytes:
    return b"".join(field_pattern(number, field) for number, field in enumerate(_CODEC.fields))


# Printable ASCII without characters that need escapes, except the separators of properties.
_JSON_TEXT: Final = rb"[ !#-\[\]-~]"
_JSON_PROPERTIES: Final = rb"(?:%b+\\u0001%b+\\u0002)+" % (_JSON_TEXT, _JSON_TEXT)
JSON_SEPARATORS: Final = (rb"\u0001", rb"\u0002")
# Number of fixed parts of a header, between which the variable fields lie.
JSON_PARTS: Final = 5
# Numbers that fit an int, in their canonical spelling.
_OPAQUE: Final = rb"(?:0|-?(?:[1-9]\d{0,8}|1\d{9}|20\d{8}|21[0-3]\d{7}))"


def _json_field(number: int, field: HeaderField) -> bytes:
    name = b'%b"%b":"' % (b"," if number else b"", field.wire_name.encode())
    if field.name in _NUMBERS:
        return b'%b)(%b)("' % (name, _NUMBERS[field.name])
    if field.name == _PROPERTIES:
        return b'%b)(%b)("' % (name, _JSON_PROPERTIES)
    whole = b'%b%b*"' % (name, _JSON_TEXT)
    return whole if field.is_required else b"(?:%b)?" % whole


def _json_pattern() -> re.Pattern[bytes]:
    """Make the pattern of JSON headers: five groups of fixed parts around the variable fields."""
    begin = rb'(\{"code":%d,"extFields":\{' % _CODE
    middle = rb'\},"flag":[02],"language":"[A-Z_]+","opaque":)(%b)(' % _OPAQUE
    end = rb',"serializeTypeCurrentRPC":"JSON","version":[1-9]\d{0,4}\})'
    return re.compile(begin + _joined(_json_field) + middle + end)


_BINARY_PROPERTIES: Final = rb"(?:[ -~]+\x01[ -~]+\x02)+"
_BINARY_SEPARATORS: Final = b"\1", b"\2"


def _binary_field(number: int, field: HeaderField) -> bytes:
    name = rb"\x00\x01" + field.wire_name.encode()
    if field.name in _NUMBERS:
        return rb"%b\x00\x00\x00)(.)(%b)(" % (name, _NUMBERS[field.name])
    if field.name == _PROPERTIES:
        return b"%b)(....)(%b)(" % (name, _BINARY_PROPERTIES)
    whole = rb"%b\x00\x00..[ -~]*" % name
    return whole if field.is_required else b"(?:%b)?" % whole


def _binary_pattern() -> re.Pattern[bytes]:
    """Make the pattern of binary headers, where a length precedes each variable part."""
    begin = rb"(\x%02x\x%02x...)(....)(\x00\x00\x00[\x00\x02]\x00\x00\x00\x00)(....)(" % (_CODE >> 8, _CODE & 255)
    return re.compile(begin + _joined(_binary_field) + b")", re.DOTALL)


_match_json: Final = _json_pattern().fullmatch
_match_binary: Final = _binary_pattern().fullmatch
# Bytes that the length of a binary header's fields does not count.
_BINARY_BYTES: Final = BINARY_FRONT.size + 2 * _LENGTH_BYTES


def frame_place(data: memoryview, at: int, end: int) -> FramePlace | None:
    """The place of the frame at `at`; None if it is incomplete or invalid."""
    header_at = at + _LENGTHS_BYTES
    if end < header_at:
        return None
    length, word = _unpack_lengths(data, at)
    frame_end = at + _LENGTH_BYTES + length
    body_at = header_at + (word & _HEADER_BYTES_MAX)
    if frame_end > end or body_at > frame_end or length > FRAME_BYTES_MAX:
        return None
    return word >> 24, body_at, frame_end


def json_header(data: memoryview, at: int, place: FramePlace) -> bytes | None:
    """The header of the frame at `at`; None unless it is in JSON."""
    return bytes(data[at + _LENGTHS_BYTES : place[1]]) if place[0] == _JSON else None


def read_posted(data: memoryview, at: int, place: FramePlace) -> Posted | None:
    """Read the request at `at`; None if it is another request, or not of the common form."""
    encoding, body_at, frame_end = place
    header_at = at + _LENGTHS_BYTES
    if encoding != _JSON:
        return _read_binary(data, header_at, body_at, frame_end) if encoding == _BINARY else None
    found = _match_json(data, header_at, body_at)
    if found is None:
        return None
    first, queue, second, born, third, text, fourth, opaque, last = found.groups()
    name_end, value_end = JSON_SEPARATORS
    properties = text.replace(value_end, name_end).split(name_end)
    return Posted((first, second, third, fourth, last), int(queue), int(born), properties, opaque, body_at, frame_end)


def _read_binary(data: memoryview, at: int, body_at: int, frame_end: int) -> Posted | None:
    found = _match_binary(data, at, body_at)
    if found is None:
        return None
    front, opaque, flag, fields, first, queue_size, queue, second, born_size, born, third, size, text, last = (
        found.groups()
    )
    sizes = fields, queue_size, born_size, size
    if sizes != (
        _pack_size(body_at - at - _BINARY_BYTES),
        bytes((len(queue),)),
        bytes((len(born),)),
        _pack_size(len(text)),
    ):
        return None
    name_end, value_end = _BINARY_SEPARATORS
    properties = text.replace(value_end, name_end).split(name_end)
    rest = front, flag, first, second, third, last
    return Posted(rest, int(queue), int(born), properties, opaque, body_at, frame_end)


# -- frames that were already decoded

_WIRE_NAMES: Final = {field.name: field.wire_name for field in _CODEC.fields}
_QUEUE_NAME, _BORN_NAME, _PROPERTIES_NAME = (_WIRE_NAMES[name] for name in ("queue_id", "born_ms", _PROPERTIES))
_REST_NAMES: Final = tuple(
    name for name in _WIRE_NAMES.values() if name not in (_QUEUE_NAME, _BORN_NAME, _PROPERTIES_NAME)
)
_match_properties: Final = re.compile(_BINARY_PROPERTIES).fullmatch
_QUEUE_DIGITS_MAX, _BORN_DIGITS_MAX = 9, 18


def posted_of(frame: Frame) -> Posted | None:
    """Convert a frame to the result of `read_posted`; None for another request or form."""
    fields = frame.ext_fields
    if frame.code != _CODE or fields is None:
        return None
    get = fields.get
    queue, born, text = get(_QUEUE_NAME, ""), get(_BORN_NAME, ""), get(_PROPERTIES_NAME, "")
    if not (_is_number(queue, _QUEUE_DIGITS_MAX) and _is_number(born, _BORN_DIGITS_MAX) and text.isascii()):
        return None
    data = text.encode()
    if _match_properties(data) is None:
        return None
    name_end, value_end = _BINARY_SEPARATORS
    properties = data.replace(value_end, name_end).split(name_end)
    rest = tuple([get(name) for name in _REST_NAMES])
    return Posted(rest, int(queue), int(born), properties, b"", 0, len(frame.body))


def _is_number(text: str, digits_max: int) -> bool:
    return len(text) <= digits_max and text.isascii() and text.isdecimal()


# -- answers

# Makes an answer of the message's offset, queue, queue offset and id, and the request's number.
AnswerMaker = Callable[[int, int, int, bytes, bytes], bytes]

# Placeholders in an answer. None contains another.
_OFFSET_ID, _QUEUE_ID, _QUEUE_OFFSET, _UNIQUE_ID, _NUMBER = (
    "@OFFSET",
    1_900_000_001,
    1_900_000_002,
    "@UNIQUE",
    0x7A7B7C7D,
)


def _split(encoding: HeaderEncoding, fields: dict[str, str], samples: tuple[bytes, ...]) -> list[bytes]:
    """Split an answer's header at the samples, which occur in order."""
    response = SendMessageResponse(_OFFSET_ID, _QUEUE_ID, _QUEUE_OFFSET, transaction_id=_UNIQUE_ID)
    ext_fields = {**fields, **_RESPONSE.write(response)}
    frame = Frame(_SUCCESS, _NUMBER, _ANSWERS, ext_fields=ext_fields, version=VERSION, encoding=encoding)
    rest, parts = encode_frame(frame)[_LENGTHS.size :], []
    for sample in samples:
        part, found, rest = rest.partition(sample)
        if not found or sample in rest:
            raise ValueError(f"an answer has {sample!r} not once, or elsewhere")
        parts.append(part)
    return [*parts, rest]


def offset_id_front(address: Host) -> str:
    """Return the common beginning of a broker's offset ids; 16 hexadecimal digits follow it."""
    return str(OffsetId(address, 0)).removesuffix("0" * 16)


def answer_fields(message_id: str, queue_id: int, queue_offset: int, unique_id: str) -> dict[str, str]:
    return _RESPONSE.write(SendMessageResponse(message_id, queue_id, queue_offset, transaction_id=unique_id))


def answer_maker(encoding: HeaderEncoding, address: Host, fields: dict[str, str]) -> AnswerMaker:
    """Return a maker of answers to successful requests; `fields` precede those of the declaration."""
    offset_id = offset_id_front(address).encode() + b"%016X"
    maker = _json_maker if encoding is HeaderEncoding.JSON else _binary_maker
    return maker(offset_id, fields)


def _json_maker(offset_id: bytes, fields: dict[str, str]) -> AnswerMaker:
    texts = (_OFFSET_ID, _QUEUE_ID, _QUEUE_OFFSET, _UNIQUE_ID, _NUMBER)
    parts = _split(HeaderEncoding.JSON, fields, tuple(str(text).encode() for text in texts))
    first, *others = (part.replace(b"%", b"%%") for part in parts)
    template = first + b"".join(map(bytes.__add__, (offset_id, b"%d", b"%d", b"%b", b"%b"), others))
    pack = _LENGTHS.pack

    def make(offset: int, queue_id: int, queue_offset: int, unique_id: bytes, opaque: bytes) -> bytes:
        header = template % (offset, queue_id, queue_offset, unique_id, opaque)
        size = len(header)
        return pack(_LENGTH_BYTES + size, size) + header

    return make


def _binary_maker(offset_id: bytes, fields: dict[str, str]) -> AnswerMaker:
    """Make the `answer_maker` of the binary encoding, where a length precedes each text and the fields as a whole."""
    texts = [str(text).encode() for text in (_OFFSET_ID, _QUEUE_ID, _QUEUE_OFFSET, _UNIQUE_ID)]
    samples = (_pack_size(_NUMBER), *(_pack_size(len(text)) + text for text in texts))
    front, named, *others = _split(HeaderEncoding.BINARY, fields, samples)
    flags, begin = (
        named[: _BINARY_BYTES - len(front) - 2 * _LENGTH_BYTES],
        named[_BINARY_BYTES - len(front) - _LENGTH_BYTES :],
    )
    pack = _LENGTHS.pack

    def make(offset: int, queue_id: int, queue_offset: int, unique_id: bytes, opaque: bytes) -> bytes:
        values = offset_id % offset, b"%d" % queue_id, b"%d" % queue_offset, unique_id
        written = [begin]
        for value, behind in zip(values, others, strict=True):
            written += (_pack_size(len(value)), value, behind)
        ext_fields = b"".join(written)
        size = _BINARY_BYTES + len(ext_fields)
        lengths = pack(_LENGTH_BYTES + size, HeaderEncoding.BINARY << 24 | size)
        return b"".join((lengths, front, opaque, flags, _pack_size(len(ext_fields)), ext_fields))

    return make
