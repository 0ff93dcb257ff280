"""The receipt handles of clients (source: ReceiptHandle).

After the words of the broker's own they have the message's offset in the commit log, by which it is moved to the dead
letters.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.rocketmq.grpc.statuses import CallRejected
from formats.errors import FormatError
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.numbers import read_digits
from formats.rocketmq.remoting.receipts import Receipt, parse_receipt

__all__ = ["ReceiptHandle", "parse_handle"]

_HANDLE_WORDS: Final = 9
_INT_MAX: Final = (1 << 31) - 1


class ReceiptHandle(NamedTuple):
    """A receipt handle of a client: the broker's, and the offset in the commit log (-1 for none).

    It does not name the message's lite topic; clients do.
    """

    receipt: Receipt
    commit_log_offset: int
    lite_topic: str | None = None

    def __str__(self) -> str:
        return f"{self.receipt} {self.commit_log_offset}"


def parse_handle(text: str) -> ReceiptHandle:
    """Read a handle. Raises `CallRejected`."""
    words = text.split(" ")
    try:
        receipt = parse_receipt(text)
        if not 0 <= receipt.queue_id <= _INT_MAX or receipt.queue_offset < 0:
            raise FormatError("Receipt", 0, "names no message")
    except FormatError as error:
        raise CallRejected(Code.INVALID_RECEIPT_HANDLE, f"receipt handle is invalid: {error}") from None
    offset = read_digits(words[_HANDLE_WORDS - 1]) if len(words) >= _HANDLE_WORDS else None
    return ReceiptHandle(receipt, -1 if offset is None else offset)
