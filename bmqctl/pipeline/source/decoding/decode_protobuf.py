"""Protobuf payloads decoded by a FileDescriptorSet (`protoc --include_imports --descriptor_set_out=FILE ...`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from bmqctl.common.decoding.protobuf import find_message_type

__all__ = ["protobuf_codec"]

_SIMPLE = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}


def protobuf_codec(descriptors: str, name: str) -> tuple[pa.StructType, Callable[[bytes], Any]]:
    """Make the Arrow type and the decoder of message type `name`, in the FileDescriptorSet at path `descriptors`."""
    found = find_message_type(descriptors, name)
    return _struct_of(found.descriptor, ()), lambda payload: _value_of(found.parse(payload))


def _struct_of(descriptor: Descriptor, within: tuple[str, ...]) -> pa.StructType:
    if descriptor.full_name in within:
        raise ValueError(f"{descriptor.full_name} contains itself, which a column cannot")
    below = (*within, descriptor.full_name)
    return pa.struct([(field.name, _type_of(field, below)) for field in descriptor.fields])


def _type_of(field: FieldDescriptor, within: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        key, value = (_type_of(field.message_type.fields_by_name[name], within) for name in ("key", "value"))
        return pa.map_(key, value)
    kind: pa.DataType
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        kind = _struct_of(field.message_type, within)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        kind = pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else pa.string()
    else:
        kind = _SIMPLE[field.cpp_type]
    return pa.list_(kind) if field.is_repeated else kind


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _value_of(message: Message) -> dict[str, Any]:
    """Convert a message for Arrow; a missing field with presence is null."""
    out: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            out[field.name] = None
            continue
        value = getattr(message, field.name)
        if _is_map(field):
            item = field.message_type.fields_by_name["value"]
            out[field.name] = [(key, _plain(item, value[key])) for key in value]
        elif field.is_repeated:
            out[field.name] = [_plain(field, one) for one in value]
        else:
            out[field.name] = _plain(field, value)
    return out


def _plain(field: FieldDescriptor, value: Any) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        return _value_of(value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    return value
