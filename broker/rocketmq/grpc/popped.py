"""Messages as brokers give them out, and the receipt handles of each (source: MQClientAPIImpl)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from broker.rocketmq.grpc.handles import Handle
from formats.errors import FormatError
from formats.rocketmq.frame import Frame
from formats.rocketmq.headers import consuming
from formats.rocketmq.headers.codec import HeaderCodec
from formats.rocketmq.lite import LITE_TOPIC, QUEUE_ID, branch_of
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.receipts import Receipt, kind_of_topic, parse_receipt
from formats.rocketmq.record import Record, decode_record

__all__ = ["Given", "ReadGiven", "given_messages", "lite_messages"]

_POPPED = HeaderCodec(consuming.PopMessageResponse)
_POPPED_LITE = HeaderCodec(consuming.PopLiteMessageResponse)


class Given(NamedTuple):
    """A message that was given out, its handle, and how often it was given out before."""

    record: Record
    handle: Handle
    attempts: int


# Reads the messages of a broker's answer.
ReadGiven = Callable[[str, Frame], list[Given]]


def given_messages(broker: str, frame: Frame) -> list[Given]:
    """The messages of an answer to a POP."""
    terms = _POPPED.read(frame.ext_fields or {})
    starts = _starts(terms.start_offset_info or "")
    counts = _counts(terms.order_count_info or "")
    found = []
    for record in _records(frame):
        attempts = counts.get((record.queue_id, record.queue_offset), record.reconsume_times)
        found.append(Given(record, _handle(broker, record, terms, starts), attempts))
    return found


def lite_messages(broker: str, frame: Frame) -> list[Given]:
    """The messages of an answer to a POP of lite topics; each has the offset in its lite topic."""
    terms = _POPPED_LITE.read(frame.ext_fields or {})
    records = list(_records(frame))
    counts = [int(each) for each in (terms.order_count_info or "").split(";") if each.isascii() and each.isdecimal()]
    if len(counts) != len(records):
        counts = [0] * len(records)
    found = []
    for record, attempts in zip(records, counts, strict=True):
        properties = decode_properties(record.properties)
        branch = branch_of(record.topic, properties)
        if branch is None:
            continue
        receipt = Receipt(
            0,
            terms.popped_ms,
            terms.invisible_ms,
            terms.revive_queue_id,
            kind_of_topic(record.topic),
            broker,
            QUEUE_ID,
            branch.offset,
        )
        handle = Handle(receipt, record.physical_offset, properties[LITE_TOPIC])
        found.append(Given(record._replace(queue_offset=branch.offset), handle, attempts))
    return found


def _records(frame: Frame) -> Iterator[Record]:
    at = 0
    while at < len(frame.body):
        record = decode_record(frame.body, at)
        if not isinstance(record, Record):
            return
        at += int.from_bytes(frame.body[at : at + 4], "big")
        yield record


def _handle(
    broker: str, record: Record, terms: consuming.PopMessageResponse, starts: dict[tuple[str, int], int]
) -> Handle:
    """The handle of a message that a broker has given out."""
    given = _given_receipt(record)
    if given is not None:
        return Handle(given, record.physical_offset)
    kind = kind_of_topic(record.topic)
    receipt = Receipt(
        starts.get((kind, record.queue_id), record.queue_offset),
        terms.popped_ms,
        terms.invisible_ms,
        terms.revive_queue_id,
        kind,
        broker,
        record.queue_id,
        record.queue_offset,
    )
    return Handle(receipt, record.physical_offset)


def _given_receipt(record: Record) -> Receipt | None:
    """The receipt that the broker has put into a message of a retry topic.

    Those of a batch are stored with what their senders say; a receipt that is none, or of another message, is theirs.
    """
    try:
        receipt = parse_receipt(decode_properties(record.properties).get("POP_CK", ""))
    except FormatError:
        return None
    is_of_record = (receipt.queue_id, receipt.queue_offset) == (record.queue_id, record.queue_offset)
    return receipt if is_of_record else None


def _starts(info: str) -> dict[tuple[str, int], int]:
    """The first offset, by kind of topic and queue, of what was popped."""
    found = {}
    for piece in filter(None, info.split(";")):
        kind, queue, start = piece.split(" ")
        found[kind, int(queue)] = int(start)
    return found


def _counts(info: str) -> dict[tuple[int, int], int]:
    """The number of times that messages were popped before, to be consumed in order, by queue and offset."""
    found = {}
    for piece in filter(None, info.split(";")):
        _, place, count = piece.split(" ")
        if place.startswith("qo"):
            queue, _, offset = place[2:].partition("%")
            found[int(queue), int(offset)] = int(count)
    return found
