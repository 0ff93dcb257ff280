"""Protobuf: messages by a FileDescriptorSet (`protoc --include_imports --descriptor_set_out=FILE ...`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict, SerializeToJsonError
from google.protobuf.message import DecodeError, Message

__all__ = ["MessageType", "find_message_type"]


class MessageType(NamedTuple):
    """A type of messages, and the pool that has it and the types of its fields."""

    descriptor: Descriptor
    pool: DescriptorPool
    make: type[Message]

    def parse(self, payload: bytes) -> Message:
        """Parse a message. Raises `ValueError`."""
        message = self.make()
        try:
            message.ParseFromString(payload)
        except DecodeError as fault:
            raise ValueError(str(fault)) from None
        return message

    def to_json_value(self, payload: bytes) -> Any:
        """Convert a message as Protobuf's JSON mapping does, with the names of the fields. Raises `ValueError`."""
        try:
            return MessageToDict(self.parse(payload), preserving_proto_field_name=True, descriptor_pool=self.pool)
        except (SerializeToJsonError, TypeError, KeyError) as fault:
            raise ValueError(str(fault)) from None


def find_message_type(descriptors: str, name: str) -> MessageType:
    """Find message type `name` in the FileDescriptorSet at the path `descriptors`. Raises `ValueError`, `OSError`."""
    descriptor_set = descriptor_pb2.FileDescriptorSet()
    pool = descriptor_pool.DescriptorPool()
    try:
        descriptor_set.ParseFromString(Path(descriptors).read_bytes())
        for file in descriptor_set.file:
            pool.Add(file)
        descriptor = pool.FindMessageTypeByName(name)
    except (DecodeError, TypeError) as fault:
        raise ValueError(f"{descriptors} is not a FileDescriptorSet: {fault}") from None
    except KeyError:
        raise ValueError(f"{descriptors} does not describe a message {name}") from None
    return MessageType(descriptor, pool, message_factory.GetMessageClass(descriptor))
