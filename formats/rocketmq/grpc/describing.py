"""Files of Protocol Buffers, described from declarations, and the types of their messages.

Each file has its own pool, so that programs can load the original's generated code as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2
from google.protobuf.message import DecodeError

from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["KNOWN_FILES", "Declared", "Field", "Method", "Types"]

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
# The files of the known messages, encoded, by name.
KNOWN_FILES: Final = {each.DESCRIPTOR.name: each.DESCRIPTOR.serialized_pb for each in (timestamp_pb2, duration_pb2)}


class Field(NamedTuple):
    """A field of a message.

    `kind` is a type of Protocol Buffers, `map` (of texts to texts), or the name of a message or an enumeration. A `*`
    before it means any number of values, and a `?` that absence is distinguished from the default. A message has at
    most one of the fields with the same `choice`.
    """

    number: int
    name: str
    kind: str
    choice: str = ""


class Method(NamedTuple):
    """A call: its request and response messages, and whether each is a stream."""

    request: str
    response: str
    streams_requests: bool = False
    streams_responses: bool = False


class Declared(NamedTuple):
    """A file with one service."""

    path: str
    package: str
    service: str
    methods: Mapping[str, Method]
    messages: Mapping[str, tuple[Field, ...]]
    enums: Mapping[str, type[IntEnum]]

    @property
    def service_name(self) -> str:
        return f"{self.package}.{self.service}"


def _describe(declared: Declared) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name=declared.path, package=declared.package, syntax="proto3")
    kinds = {field.kind.lstrip("*?") for fields in declared.messages.values() for field in fields}
    if not kinds.isdisjoint(_KNOWN):
        file.dependency.extend(KNOWN_FILES)
    for name, values in declared.enums.items():
        enum = file.enum_type.add(name=name)
        for each in values:
            enum.value.add(name=each.name, number=each.value)
    for name, fields in declared.messages.items():
        _describe_message(file.message_type.add(name=name), fields, declared)
    service = file.service.add(name=declared.service)
    for name, method in declared.methods.items():
        service.method.add(
            name=name,
            input_type=f".{declared.package}.{method.request}",
            output_type=f".{declared.package}.{method.response}",
            client_streaming=method.streams_requests,
            server_streaming=method.streams_responses,
        )
    return file


def _describe_message(message: Any, fields: tuple[Field, ...], declared: Declared) -> None:
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
            described.type = _FIELD.TYPE_MESSAGE
            described.type_name = _describe_map(message, field.name, declared.package)
        elif kind in _TYPES:
            described.type = _TYPES[kind]
        elif kind in declared.enums:
            described.type, described.type_name = _FIELD.TYPE_ENUM, f".{declared.package}.{kind}"
        else:
            described.type = _FIELD.TYPE_MESSAGE
            described.type_name = _KNOWN.get(kind, f".{declared.package}.{kind}")
        if field.choice:
            described.oneof_index = choices[field.choice]
        elif mark == "?":
            # As protoc does: an optional field is the only member of its own choice, after the declared choices.
            described.proto3_optional = True
            described.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def _describe_map(message: Any, field: str, package: str) -> str:
    name = "".join(word.capitalize() for word in field.split("_")) + "Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    for number, part in enumerate(("key", "value"), 1):
        entry.field.add(name=part, number=number, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_STRING)
    return f".{package}.{message.name}.{name}"


class Types:
    """The types of a file's messages and of the known messages. Protocol Buffers creates the classes at run time."""

    def __init__(self, declared: Declared) -> None:
        self.file = _describe(declared)
        pool = descriptor_pool.DescriptorPool()
        for known in KNOWN_FILES.values():
            pool.AddSerializedFile(known)
        pool.AddSerializedFile(self.file.SerializeToString())
        names = {name: f"{declared.package}.{name}" for name in declared.messages}
        names |= {name: full[1:] for name, full in _KNOWN.items()}
        self._classes: dict[str, Any] = {
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(full)) for name, full in names.items()
        }

    def make(self, name: str, /, **fields: Any) -> Any:
        return self._classes[name](**fields)

    def decode(self, name: str, data: Buffer) -> Any:
        """Read a message. Raises `FormatError`."""
        try:
            return self._classes[name].FromString(bytes(data))
        except DecodeError as error:
            raise FormatError(name, 0, f"is no such message: {error}") from None
