"""The parts of a store that a command can name: single records, times, keys, and the form of payloads."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from math import ceil

from formats.bmq.disk.keys import KEY_SIZE
from formats.bmq.disk.numbers import RecordNumber

__all__ = ["TIME_MAX_S", "BadFilter", "PayloadForm", "Wanted", "parse_key", "parse_number", "parse_time"]

TIME_MAX_S = (1 << 63) - 1


class BadFilter(ValueError):
    """A filter that is invalid or contradicts another; the text is one line."""


Wanted = bytes | RecordNumber | int
"""A single record, by GUID, number or offset."""


def parse_number(text: str) -> RecordNumber:
    """Parse `LEASE-SEQUENCE`."""
    lease_id, dash, sequence_number = text.partition("-")
    if not (dash and lease_id.isdecimal() and sequence_number.isdecimal()):
        raise BadFilter(f"{text!r} is not a sequence number: write <lease id>-<sequence number>, as 1-4711")
    return RecordNumber(int(lease_id), int(sequence_number))


def parse_time(text: str) -> int:
    """Parse seconds since the epoch, or ISO 8601 (UTC by default); fractions are rounded up, as records have none."""
    try:
        if text.isdecimal() and int(text) <= TIME_MAX_S:
            return int(text)
        time = datetime.fromisoformat(text)
        return ceil(time.replace(tzinfo=time.tzinfo or UTC).timestamp())
    except (ValueError, OverflowError):
        raise BadFilter(f"{text!r} is not a time: write 2026-11-21T05:11:04, or seconds since 1970") from None


def parse_key(text: str) -> bytes | None:
    """Parse a queue's or app's key in hex; None if the text is a name."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        return None
    return key if len(key) == KEY_SIZE and len(text) == 2 * KEY_SIZE else None


class PayloadForm(StrEnum):
    """The format of printed payloads; AUTO prints text as such, and other payloads as hex digits.

    STORED is for RocketMQ: the body's bytes as the record has them, compressed or not, as hex digits.
    """

    TEXT = "text"
    HEX = "hex"
    AUTO = "auto"
    STORED = "stored"
