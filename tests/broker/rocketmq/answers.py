"""The messages in a broker's answers to its consumers."""

from __future__ import annotations

from formats.rocketmq.files.record import Record, decode_record
from formats.rocketmq.remoting.frame import Frame

__all__ = ["records_of"]


def records_of(answer: Frame) -> list[Record]:
    """The messages that an answer carries."""
    found: list[Record] = []
    at = 0
    while at < len(answer.body):
        record = decode_record(answer.body, at)
        assert isinstance(record, Record)
        found.append(record)
        at += int.from_bytes(answer.body[at : at + 4], "big")
    return found
