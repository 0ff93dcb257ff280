"""Messages as brokers deliver them, with their receipt handles."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.rocketmq.grpc.consuming.handles import ReceiptHandle
from formats.rocketmq.files.record import Record
from formats.rocketmq.lite import LITE_TOPIC, QUEUE_ID, branch_of
from formats.rocketmq.numbers import read_digits
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers import consuming
from formats.rocketmq.remoting.headers.codec import read_header
from formats.rocketmq.remoting.popped import popped_records, read_popped
from formats.rocketmq.remoting.receipts import Receipt, kind_of_topic

__all__ = ["PoppedMessage", "ReadGiven", "given_messages", "lite_messages"]


class PoppedMessage(NamedTuple):
    """A delivered message, its handle, and the number of earlier deliveries."""

    record: Record
    handle: ReceiptHandle
    attempts: int


ReadGiven = Callable[[str, Frame], list[PoppedMessage]]


def given_messages(broker: str, frame: Frame) -> list[PoppedMessage]:
    return [
        PoppedMessage(record, ReceiptHandle(receipt, record.physical_offset), attempts)
        for record, receipt, attempts in read_popped(broker, frame.ext_fields, frame.body)
    ]


def lite_messages(broker: str, frame: Frame) -> list[PoppedMessage]:
    """Return the messages of an answer to a POP of lite topics; each has its offset in its lite topic."""
    terms = read_header(consuming.PopLiteMessageResponse, frame.ext_fields or {})
    records = list(popped_records(frame.body))
    texts = (terms.order_count_info or "").split(";")
    counts = [count for count in map(read_digits, texts) if count is not None]
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
        handle = ReceiptHandle(receipt, record.physical_offset, properties[LITE_TOPIC])
        found.append(PoppedMessage(record._replace(queue_offset=branch.offset), handle, attempts))
    return found
