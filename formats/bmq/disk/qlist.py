"""Records of the QLIST file: the queues and apps of a journal's CREATION and ADDITION records.

Source: mqbs::QueueRecordHeader, mqbs::AppIdHeader and mqbs::FileStore::writeQueueCreationRecord.

    QueueRecordHeader, 20 bytes
    URI, padded to words
    hash of the queue, 16 bytes: the queue key and zeros
    for each app
        AppIdHeader, 4 bytes
        app id, padded to words
        hash of the app, 16 bytes: the app key and zeros
    magic "qUrI"
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from formats.bmq.disk.keys import HASH_SIZE, KEY_SIZE
from formats.bmq.disk.padding import WORD, padding, unpadded_size
from formats.errors import FormatError
from formats.schema import Annotated, Buffer, Layout, bits, u16, zeros

__all__ = [
    "APP_ID_HEADER",
    "QUEUE_RECORD_HEADER",
    "QUEUE_RECORD_MAGIC",
    "AppInfo",
    "QueueRecord",
    "build_queue_record",
    "parse_queue_record",
]

QUEUE_RECORD_MAGIC = 0x71557249  # qUrI
_MAGIC = struct.pack(">I", QUEUE_RECORD_MAGIC)


class QueueRecordHeader(NamedTuple):
    """The header of a record; `queue_record_words` counts the whole record, the magic included.

    mqbs::QueueRecordHeader, 20 bytes:

        0 | queue_uri_length_words 16 | num_app_ids 16 |
        4 | header_words 8 | queue_record_words 24     |
        8 | reserved 96                                |
    """

    queue_uri_length_words: Annotated[int, u16, "Words of the padded URI."]
    num_app_ids: Annotated[int, u16, "How many apps follow."]
    header_words: Annotated[int, bits(8, word=32), "Words of this header."]
    queue_record_words: Annotated[int, bits(24), "Words of the whole record, its magic included."]
    reserved: Annotated[bytes, zeros(12), "Reserved; written as zero."]


class AppIdHeader(NamedTuple):
    """The header of an app id.

    mqbs::AppIdHeader, 4 bytes:

        0 | reserved 16 | app_id_length_words 16 |
    """

    reserved: Annotated[int, u16, "Reserved; written as zero."]
    app_id_length_words: Annotated[int, u16, "Words of the padded app id."]


QUEUE_RECORD_HEADER = Layout(QueueRecordHeader, size=20, upstream="mqbs::QueueRecordHeader")
APP_ID_HEADER = Layout(AppIdHeader, size=4, upstream="mqbs::AppIdHeader")


class AppInfo(NamedTuple):
    app_id: str
    app_key: bytes


class QueueRecord(NamedTuple):
    """A queue and its apps; `offset` and `end` are in bytes from the start of the parsed buffer."""

    uri: str
    queue_key: bytes
    apps: tuple[AppInfo, ...]
    offset: int
    end: int


def build_queue_record(uri: str, queue_key: bytes, apps: Sequence[tuple[str, bytes]]) -> bytes:
    """Encode a record; `apps` are (app id, app key), in the order of the record."""
    uri_words, parts = _padded(uri)
    parts.append(queue_key.ljust(HASH_SIZE, b"\0"))
    for app_id, app_key in apps:
        words, text = _padded(app_id)
        parts += [APP_ID_HEADER.pack(AppIdHeader(0, words)), *text, app_key.ljust(HASH_SIZE, b"\0")]
    parts.append(_MAGIC)
    header_words = QUEUE_RECORD_HEADER.size // WORD
    record_words = header_words + sum(map(len, parts)) // WORD
    header = QueueRecordHeader(uri_words, len(apps), header_words, record_words, bytes(12))
    return b"".join([QUEUE_RECORD_HEADER.pack(header), *parts])


def _padded(text: str) -> tuple[int, list[bytes]]:
    encoded = text.encode()
    pad = padding(len(encoded), WORD)
    return (len(encoded) + len(pad)) // WORD, [encoded, pad]


def parse_queue_record(buffer: Buffer, offset: int) -> QueueRecord:
    """Parse the record at `offset`. FormatError if it is cut short, its lengths disagree or a text is not UTF-8."""
    header = QUEUE_RECORD_HEADER.unpack(buffer, offset)
    uri_words, num_app_ids, header_words, record_words, _ = header
    end = offset + record_words * WORD
    if end > len(buffer):
        raise FormatError("QueueRecordHeader.queue_record_words", offset + 4, f"{record_words} words go beyond the end")
    if header_words * WORD < QUEUE_RECORD_HEADER.size or header_words >= record_words:
        reason = f"{header_words} of {record_words} words"
        raise FormatError("QueueRecordHeader.header_words", offset + 4, reason)
    if bytes(buffer[end - WORD : end]) != _MAGIC:
        raise FormatError("QueueRecord.magic", end - WORD, f"{bytes(buffer[end - WORD : end])!r} is not 'qUrI'")
    last = end - WORD
    at = offset + header_words * WORD
    uri, queue_key, at = _name_and_key(buffer, at, uri_words, last, "QueueRecord.uri")
    apps: list[AppInfo] = []
    for _ in range(num_app_ids):
        if at + APP_ID_HEADER.size > last:
            raise FormatError("QueueRecordHeader.num_app_ids", offset + 2, f"{num_app_ids} apps do not fit the record")
        words = APP_ID_HEADER.unpack(buffer, at).app_id_length_words
        app_id, app_key, at = _name_and_key(buffer, at + APP_ID_HEADER.size, words, last, "QueueRecord.app_id")
        apps.append(AppInfo(app_id, app_key))
    if at != last:
        raise FormatError("QueueRecordHeader.queue_record_words", offset + 4, f"{last - at} bytes after the last app")
    return QueueRecord(uri, queue_key, tuple(apps), offset, end)


def _name_and_key(buffer: Buffer, at: int, words: int, last: int, path: str) -> tuple[str, bytes, int]:
    end = at + words * WORD
    if end + HASH_SIZE > last:
        raise FormatError(path, at, f"{words} words and a hash go beyond the record")
    size = unpadded_size(buffer, at, end, WORD, path)
    try:
        text = bytes(buffer[at : at + size]).decode()
    except UnicodeDecodeError as error:
        raise FormatError(path, at + error.start, "not UTF-8") from None
    return text, bytes(buffer[end : end + KEY_SIZE]), end + HASH_SIZE
