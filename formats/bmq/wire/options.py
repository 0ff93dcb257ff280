"""Options of a PUT or PUSH message, after its header (source: bmqp::OptionHeader, bmqp::OptionsView).

Every option begins with an `OptionHeader`. The types:

- SUB_QUEUE_IDS_OLD: 32-bit subscription ids, as sent to clients.
- SUB_QUEUE_INFOS: a `SubQueueInfo` for each subscription, `type_specific` words each. If there is only the default
  subscription, the option is packed and `words` holds its delivery attempts.
- MSG_GROUP_ID: a name of up to 31 bytes, padded to words. The current reference refuses to send one.

Options of unknown types are passed on unchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from formats.bmq.codes import DEFAULT_SUBSCRIPTION_ID, OptionType
from formats.bmq.padding import WORD, padding, unpadded_end
from formats.bmq.wire.rda import UNLIMITED
from formats.errors import FormatError
from formats.schema import Annotated, Layout, bits, u8, u32, zeros

__all__ = [
    "OPTION_HEADER",
    "SUB_QUEUE_INFO",
    "Option",
    "OptionHeader",
    "OptionType",
    "SubQueueInfo",
    "iter_options",
    "message_group_id",
    "pack_message_group_id",
    "pack_option",
    "pack_sub_queue_ids",
    "pack_sub_queue_infos",
    "sub_queue_infos",
]


class OptionHeader(NamedTuple):
    """The header of an option; `words` includes it. A packed option is its header alone, and `words` is its value.

    bmqp::OptionHeader, 4 bytes:

        0 | type 6 | packed 1 | type_specific 4 | words 21 |
    """

    type: Annotated[int, bits(6), "An OptionType."]
    packed: Annotated[int, bits(1), "1: the option is this header alone, and `words` is its value."]
    type_specific: Annotated[int, bits(4), "SUB_QUEUE_INFOS: words of each SubQueueInfo."]
    words: Annotated[int, bits(21), "Words of the option, header included; the value of a packed option."]


class SubQueueInfo(NamedTuple):
    """A subscription that receives a message; `rda_info` is the byte of `formats.bmq.wire.rda`.

    bmqp::SubQueueInfo, 8 bytes:

        0 | sub_queue_id 32          |
        4 | rda_info 8 | reserved 24 |
    """

    sub_queue_id: Annotated[int, u32, "The subscription that the message goes to."]
    rda_info: Annotated[int, u8, "Remaining delivery attempts: an RdaInfo."]
    reserved: Annotated[bytes, zeros(3), "Reserved; written as zero."] = bytes(3)


OPTION_HEADER = Layout(OptionHeader, size=4, upstream="bmqp::OptionHeader")
SUB_QUEUE_INFO = Layout(SubQueueInfo, size=8, upstream="bmqp::SubQueueInfo")

_INFO_WORDS = SUB_QUEUE_INFO.size // WORD
_KNOWN = sum(1 << kind for kind in OptionType)
_IDS_OLD = int(OptionType.SUB_QUEUE_IDS_OLD)
_INFOS = int(OptionType.SUB_QUEUE_INFOS)
_header = OPTION_HEADER.words.unpack_from
_info = SUB_QUEUE_INFO.words.iter_unpack
_new = tuple.__new__
_EMPTY = memoryview(b"")


class Option(NamedTuple):
    """An option; `content` is a view of the bytes after its header, empty if it is packed."""

    type: int
    packed: bool
    type_specific: int
    words: int
    content: memoryview


def iter_options(area: memoryview) -> Iterator[Option]:
    """Yield the options of a message's options area. FormatError at the first malformed or repeated one."""
    at, end = 0, len(area)
    seen = 1 << OptionType.UNDEFINED
    while at < end:
        if end - at < WORD:
            raise FormatError("OptionHeader", at, f"needs {WORD} bytes, {end - at} left")
        (word,) = _header(area, at)
        kind, packed, words = word >> 26, bool(word >> 25 & 1), word & 0x1F_FFFF
        size = WORD if packed else words * WORD
        if not packed and words < 2:
            raise FormatError("OptionHeader.words", at, f"{words}: an option that is not packed has content")
        if size > end - at:
            raise FormatError("OptionHeader.words", at, f"{words}, only {(end - at) // WORD} left")
        if seen >> kind & 1:
            raise FormatError("OptionHeader.type", at, f"{kind} is undefined or comes a second time")
        seen |= 1 << kind & _KNOWN
        content = _EMPTY if packed else area[at + WORD : at + size]
        yield _new(Option, (kind, packed, word >> 21 & 0xF, words, content))
        at += size


def sub_queue_infos(area: memoryview) -> list[SubQueueInfo]:
    """The subscriptions that receive a message, from the newer option or else the older."""
    old: list[SubQueueInfo] = []
    for option in iter_options(area):
        if option.type == _INFOS:
            try:
                return _infos(option)
            except FormatError as error:
                raise error.shifted(_offset(area, _INFOS)) from None
        if option.type == _IDS_OLD:
            count = len(option.content) // WORD
            old = [SubQueueInfo(each, UNLIMITED) for each in struct.unpack(f">{count}I", option.content)]
    return old


def _offset(area: memoryview, kind: int) -> int:
    """Return the offset of the option of type `kind`, which must be present."""
    at = 0
    for option in iter_options(area):
        if option.type == kind:
            break
        at += WORD + len(option.content)
    return at


def _infos(option: Option) -> list[SubQueueInfo]:
    if option.packed:
        if option.words > 0xFF:
            raise FormatError("OptionHeader.words", 0, f"{option.words} delivery attempts do not fit a byte")
        return [SubQueueInfo(DEFAULT_SUBSCRIPTION_ID, option.words)]
    step = option.type_specific * WORD
    if option.type_specific < _INFO_WORDS or len(option.content) % step:
        reason = f"items of {option.type_specific} words in {len(option.content)} bytes"
        raise FormatError("OptionHeader.type_specific", 0, reason)
    if option.type_specific == _INFO_WORDS:
        return [SubQueueInfo(*info) for info in _info(option.content)]
    return [SUB_QUEUE_INFO.unpack(option.content, at) for at in range(0, len(option.content), step)]


def message_group_id(area: memoryview) -> bytes | None:
    for option in iter_options(area):
        if option.type == OptionType.MSG_GROUP_ID:
            try:
                end = unpadded_end(option.content, 0, len(option.content), "MsgGroupId.padding")
            except FormatError as error:
                raise error.shifted(_offset(area, OptionType.MSG_GROUP_ID) + WORD) from None
            return bytes(option.content[:end])
    return None


def pack_option(kind: int, content: bytes, type_specific: int = 0) -> bytes:
    """Encode an option that is not packed; `content` must fill whole words."""
    return OPTION_HEADER.pack(OptionHeader(kind, 0, type_specific, 1 + len(content) // WORD)) + content


def pack_sub_queue_ids(ids: Sequence[int]) -> bytes:
    """Encode the older option, for a client; no bytes for no ids."""
    return pack_option(OptionType.SUB_QUEUE_IDS_OLD, struct.pack(f">{len(ids)}I", *ids)) if ids else b""


def pack_sub_queue_infos(infos: Sequence[SubQueueInfo]) -> bytes:
    """Encode the newer option, for a broker or proxy; no bytes for no infos."""
    if len(infos) == 1 and infos[0].sub_queue_id == DEFAULT_SUBSCRIPTION_ID:
        return OPTION_HEADER.pack(OptionHeader(OptionType.SUB_QUEUE_INFOS, 1, 0, infos[0].rda_info))
    content = b"".join(map(SUB_QUEUE_INFO.pack, infos))
    return pack_option(OptionType.SUB_QUEUE_INFOS, content, _INFO_WORDS) if infos else b""


def pack_message_group_id(group: bytes) -> bytes:
    """Encode the name of a message's group, 1 to 31 bytes."""
    return pack_option(OptionType.MSG_GROUP_ID, group + padding(len(group)))
