"""Messages of the gRPC protocol, encoded and decoded by Protocol Buffers from the declarations here.

`make` returns a message with the given fields, which are attributes (see `declarations.MESSAGES`). The declarations
have a pool of their own, so that programs can load the original's generated code as well.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2
from google.protobuf.message import DecodeError

from formats.errors import FormatError
from formats.rocketmq.grpc.codes import ENUMS
from formats.rocketmq.grpc.declarations import MESSAGES, Field
from formats.schema import Buffer

__all__ = [
    "PACKAGE",
    "SERVICE",
    "Message",
    "decode",
    "duration_of_ms",
    "has_more_fields",
    "is_time",
    "make",
    "ms_of",
    "time_of_ms",
]

PACKAGE: Final = "apache.rocketmq.v2"
SERVICE: Final = f"{PACKAGE}.MessagingService"

# Wire types, the last bits of a tag, and the sizes of the types with a fixed size. A group is two tags.
_KIND_MASK: Final = 7
_VARINT, _BYTES = 0, 2
_SIZES: Final = {1: 8, 3: 0, 4: 0, 5: 4}
_SHIFT_MAX: Final = 63

# The first and the last second of a `Timestamp`.
_SECONDS_MIN: Final = -62_135_596_800
_SECONDS_MAX: Final = 253_402_300_799

# Protocol Buffers creates the classes at run time.
Message = Any

_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_TYPES: Final = {
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
    "bool": _FIELD.TYPE_BOOL,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "float": _FIELD.TYPE_FLOAT,
}
_KNOWN: Final = {"Timestamp": ".google.protobuf.Timestamp", "Duration": ".google.protobuf.Duration"}


def _describe() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="apache/rocketmq/v2/messages", package=PACKAGE, syntax="proto3")
    file.dependency.extend([timestamp_pb2.DESCRIPTOR.name, duration_pb2.DESCRIPTOR.name])
    for name, values in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for each in values:
            enum.value.add(name=each.name, number=each.value)
    for name, fields in MESSAGES.items():
        _describe_message(file.message_type.add(name=name), fields)
    return file


def _describe_message(message: Any, fields: tuple[Field, ...]) -> None:
    choices: dict[str, int] = {}
    for field in fields:
        if field.choice and field.choice not in choices:
            choices[field.choice] = len(choices)
            message.oneof_decl.add(name=field.choice)
    for field in fields:
        mark, kind = (field.kind[0], field.kind[1:]) if field.kind[0] in "*?" else ("", field.kind)
        many = mark == "*" or kind == "map"
        described = message.field.add(
            name=field.name, number=field.number, label=_FIELD.LABEL_REPEATED if many else _FIELD.LABEL_OPTIONAL
        )
        if kind == "map":
            described.type, described.type_name = _FIELD.TYPE_MESSAGE, _describe_map(message, field.name)
        elif kind in _TYPES:
            described.type = _TYPES[kind]
        elif kind in ENUMS:
            described.type, described.type_name = _FIELD.TYPE_ENUM, f".{PACKAGE}.{kind}"
        else:
            described.type, described.type_name = _FIELD.TYPE_MESSAGE, _KNOWN.get(kind, f".{PACKAGE}.{kind}")
        if field.choice:
            described.oneof_index = choices[field.choice]
        elif mark == "?":
            # As protoc does: an optional field is the only member of its own choice, which comes after the declared
            # choices.
            described.proto3_optional = True
            described.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def _describe_map(message: Any, field: str) -> str:
    """Describe the entries of a map of texts to texts; return the name of their type."""
    name = "".join(word.capitalize() for word in field.split("_")) + "Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    for number, part in enumerate(("key", "value"), 1):
        entry.field.add(name=part, number=number, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_STRING)
    return f".{PACKAGE}.{message.name}.{name}"


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    for known in (timestamp_pb2, duration_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(_describe().SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES
    } | {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(full[1:])) for name, full in _KNOWN.items()}


_CLASSES: Final = _classes()


def make(name: str, /, **fields: Any) -> Message:
    return _CLASSES[name](**fields)


def decode(name: str, data: Buffer) -> Message:
    """Read a message. Raises `FormatError`."""
    try:
        return _CLASSES[name].FromString(bytes(data))
    except DecodeError as error:
        raise FormatError(name, 0, f"is no such message: {error}") from None


def has_more_fields(data: bytes, most: int) -> bool:
    """Return whether a message has more than `most` fields; each repetition counts.

    A field of two bytes may take a hundred times as much memory, and takes it during decoding. Nested fields are not
    counted. The result is False for data that is not a message.
    """
    at, end, count = 0, len(data), 0
    while at < end:
        count += 1
        if count > most:
            return True
        tag, at = _varint(data, at)
        kind = tag & _KIND_MASK
        if kind == _BYTES:
            size, at = _varint(data, at)
            at += size
        elif kind == _VARINT:
            _, at = _varint(data, at)
        else:
            at += _SIZES.get(kind, end)
    return False


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a varint; return it and its end, which exceeds the data if it is incomplete."""
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > _SHIFT_MAX:
            break
    return value, len(data) + 1


def ms_of(value: Message) -> int:
    """Convert a time or a duration to milliseconds, rounded down."""
    ms: int = value.seconds * 1000 + value.nanos // 1_000_000
    return ms


def is_time(value: Message) -> bool:
    """Return whether a time is in the years 1 to 9999, the range of Protocol Buffers."""
    return bool(_SECONDS_MIN <= value.seconds <= _SECONDS_MAX and 0 <= value.nanos < 1_000_000_000)


def time_of_ms(ms: int) -> Message:
    return make("Timestamp", seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def duration_of_ms(ms: int) -> Message:
    return make("Duration", seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)
