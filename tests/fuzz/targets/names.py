"""Any text as a queue's URI, a GUID or a file's name is refused, or is what prints as the same text."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from formats.bmq.disk.files import StoreFileName, group_file_sets, parse_file_name
from formats.bmq.disk.ledger import LedgerFileName, parse_ledger_file_name
from formats.bmq.guid import format_guid, parse_guid
from formats.bmq.uri import QueueUri, parse_uri
from formats.errors import FormatError

__all__ = ["decode", "seeds", "verify"]


T = TypeVar("T")


class Read(NamedTuple):
    uri: QueueUri | None
    guid: bytes | None
    store: StoreFileName | None
    ledger: LedgerFileName | None


def _or_none(parse: Callable[[str], T], text: str) -> T | None:
    try:
        return parse(text)
    except FormatError:
        return None


def decode(data: bytes) -> Read:
    text = data.decode("utf-8", "replace")
    return Read(
        _or_none(parse_uri, text), _or_none(parse_guid, text), parse_file_name(text), parse_ledger_file_name(text)
    )


def verify(data: bytes, read: Read) -> None:
    text = data.decode("utf-8", "replace")
    if read.uri is not None:
        assert str(read.uri) == text
        assert parse_uri(read.uri.canonical).app_id == ""
    if read.guid is not None:
        assert format_guid(read.guid) == text
    if read.store is not None:
        assert str(read.store) == text
        (found,) = group_file_sets([text])
        assert text in found
    if read.ledger is not None:
        assert str(read.ledger) == text


def seeds() -> list[bytes]:
    texts = (
        "bmq://bmq.test.mem.priority/first-queue",
        "bmq://domain.~tier/queue?id=app",
        "ABCDEF0123456789ABCDEF0123456789",
        "bmq_0.20261121_060102.bmq_data",
        "bmq_12.20261121_060102.bmq_journal",
        "bmq_csl_20261121_060102_0123456789.bmq_csl",
    )
    return [text.encode() for text in texts]
