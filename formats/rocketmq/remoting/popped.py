"""Messages in the answer to a POP, each with its receipt handle (source: MQClientAPIImpl.processPopResponse)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from formats.errors import FormatError
from formats.rocketmq.files.record import Record, decode_record
from formats.rocketmq.numbers import read_digits
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.headers.codec import codec_of
from formats.rocketmq.remoting.headers.consuming import PopMessageResponse
from formats.rocketmq.remoting.receipts import Receipt, kind_of_topic, parse_receipt
from formats.schema import Buffer

__all__ = ["Popped", "popped_records", "read_popped"]

_TERMS: Final = codec_of(PopMessageResponse)


class Popped(NamedTuple):
    """A popped message, its receipt handle, and the number of earlier deliveries."""

    record: Record
    receipt: Receipt
    attempts: int


def read_popped(broker: str, fields: Mapping[str, str] | None, body: Buffer) -> list[Popped]:
    """Decode a broker's answer. Raises `FormatError` if its header or body is malformed."""
    terms = _TERMS.read(fields or {})
    starts = _starts(terms.start_offset_info or "")
    counts = _counts(terms.order_count_info or "")
    found = []
    for record in popped_records(body):
        attempts = counts.get((record.queue_id, record.queue_offset), record.reconsume_times)
        found.append(Popped(record, _receipt(broker, record, terms, starts), attempts))
    return found


def popped_records(body: Buffer) -> Iterator[Record]:
    """Yield the records of an answer's body. Raises `FormatError` for anything else in it."""
    view, at = memoryview(body), 0
    while at < len(view):
        record = decode_record(view, at)
        if not isinstance(record, Record):
            raise FormatError("PopMessageResponse.body", at, "has no message here")
        at += int.from_bytes(view[at : at + 4], "big")
        yield record


def _receipt(broker: str, record: Record, terms: PopMessageResponse, starts: dict[tuple[str, int], int]) -> Receipt:
    given = _given_receipt(record)
    if given is not None:
        return given
    kind = kind_of_topic(record.topic)
    return Receipt(
        starts.get((kind, record.queue_id), record.queue_offset),
        terms.popped_ms,
        terms.invisible_ms,
        terms.revive_queue_id,
        kind,
        broker,
        record.queue_id,
        record.queue_offset,
    )


def _given_receipt(record: Record) -> Receipt | None:
    """Return the receipt that the broker has put into a message of a retry topic.

    A batch is stored as its senders wrote it: a malformed receipt, or another message's, comes from them and is
    ignored.
    """
    try:
        receipt = parse_receipt(decode_properties(record.properties).get("POP_CK", ""))
    except FormatError:
        return None
    is_of_record = (receipt.queue_id, receipt.queue_offset) == (record.queue_id, record.queue_offset)
    return receipt if is_of_record else None


def _starts(info: str) -> dict[tuple[str, int], int]:
    """The first popped offset, by kind of topic and queue."""
    return {(kind, _number(queue)): _number(start) for kind, queue, start in _pieces(info)}


def _counts(info: str) -> dict[tuple[int, int], int]:
    """The number of earlier pops of messages consumed in order, by queue and offset."""
    found = {}
    for _, place, count in _pieces(info):
        if place.startswith("qo"):
            queue, _, offset = place[2:].partition("%")
            found[_number(queue), _number(offset)] = _number(count)
    return found


def _pieces(info: str) -> Iterator[list[str]]:
    for piece in filter(None, info.split(";")):
        words = piece.split(" ")
        if len(words) != 3:
            raise FormatError("PopMessageResponse", 0, f"{piece[:80]!r} does not have three words")
        yield words


def _number(text: str) -> int:
    number = read_digits(text)
    if number is None:
        raise FormatError("PopMessageResponse", 0, f"{text[:40]!r} is no number")
    return number
