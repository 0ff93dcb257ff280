"""Any bytes as an options area are refused, or are options, of known and unknown types, that make up the same bytes.

Subscriptions and a message's group are read from the same area, or refused.
"""

from __future__ import annotations

from typing import NamedTuple

from formats.bmq.codes import EventType
from formats.bmq.wire.options import (
    OPTION_HEADER,
    Option,
    OptionHeader,
    SubQueueInfo,
    iter_options,
    message_group_id,
    pack_message_group_id,
    sub_queue_infos,
)
from formats.bmq.wire.push import iter_pushes
from tests.fuzz.seeds import bodies

__all__ = ["decode", "seeds", "verify"]


class Read(NamedTuple):
    options: list[Option]
    infos: list[SubQueueInfo]
    group: bytes | None


def decode(data: bytes) -> Read:
    area = memoryview(data)
    return Read(list(iter_options(area)), sub_queue_infos(area), message_group_id(area))


def verify(data: bytes, read: Read) -> None:
    written = b"".join(
        OPTION_HEADER.pack(OptionHeader(each.type, each.packed, each.type_specific, each.words)) + each.content
        for each in read.options
    )
    assert written == data
    if read.group is not None:
        assert message_group_id(memoryview(pack_message_group_id(read.group))) == read.group


def seeds() -> list[bytes]:
    pushed = {
        bytes(push.options) for body in bodies(EventType.PUSH) for push in iter_pushes(memoryview(body), 0, len(body))
    }
    return [*sorted(pushed), pack_message_group_id(b"group"), OPTION_HEADER.pack(OptionHeader(9, 0, 3, 2)) + b"abcd"]
