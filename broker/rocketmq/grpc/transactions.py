"""Calls that end transactions, and the broker's checks of open ones.

Source: EndTransactionActivity, TransactionProcessor, AbstractTransactionService. Clients know a transaction by its id
only. The place of its prepared message, from the answer to storing it or from the broker's check, is kept here for a
while.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from broker.rocketmq.grpc.calling import Answer, Asked, Handlers
from broker.rocketmq.grpc.conversion import message_of
from broker.rocketmq.grpc.statuses import OK, CallRejected, rejection
from broker.rocketmq.grpc.validation import check_topic
from formats.errors import FormatError
from formats.rocketmq.files.record import Record, decode_record
from formats.rocketmq.flags import Transaction
from formats.rocketmq.grpc.codes import Code, TransactionResolution, TransactionSource
from formats.rocketmq.grpc.messages import Message, make
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import codec_of
from formats.rocketmq.remoting.headers.sending import CheckTransactionStateRequest, EndTransactionRequest

__all__ = ["GrpcTransactions"]

_END = codec_of(EndTransactionRequest)
_CHECK = codec_of(CheckTransactionStateRequest)
_KEPT_MS: Final = 6 * 3_600_000
_KEPT_MAX: Final = 100_000
_ENDS: Final[dict[int, Transaction]] = {
    TransactionResolution.COMMIT: Transaction.COMMIT,
    TransactionResolution.ROLLBACK: Transaction.ROLLBACK,
}


class _Place(NamedTuple):
    broker: str
    queue_offset: int
    commit_log_offset: int
    until_ms: int


class GrpcTransactions:
    """The open transactions of this process's clients."""

    def __init__(self) -> None:
        # Oldest first.
        self._places: dict[tuple[str, str], _Place] = {}
        self.handlers: Handlers = {"EndTransaction": self._end}

    def begun(
        self, topic: str, transaction_id: str, broker: str, queue_offset: int, commit_log_offset: int, now_ms: int
    ) -> None:
        key = (topic, transaction_id)
        self._places.pop(key, None)
        self._places[key] = _Place(broker, queue_offset, commit_log_offset, now_ms + _KEPT_MS)
        if len(self._places) > _KEPT_MAX:
            del self._places[next(iter(self._places))]

    def tick(self, now_ms: int) -> None:
        while self._places and self._places[key := next(iter(self._places))].until_ms <= now_ms:
            del self._places[key]

    def _end(self, asked: Asked, answer: Answer) -> None:
        request = asked.request
        topic = check_topic(request.topic)
        if not request.transaction_id.strip():
            raise CallRejected(Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        place = self._places.get((topic, request.transaction_id))
        if place is None:
            raise CallRejected(Code.INVALID_TRANSACTION_ID, "cannot found transaction data")
        end = _ENDS.get(request.resolution)
        if end is None:
            # The broker checks again.
            answer(make("EndTransactionResponse", status=OK))
            return
        header = EndTransactionRequest(
            topic,
            place.queue_offset,
            place.commit_log_offset,
            end,
            request.message_id,
            topic,
            request.source == TransactionSource.SOURCE_SERVER_CHECK,
            request.transaction_id,
        )

        def done(frame: Frame) -> None:
            if frame.code != ResponseCode.SUCCESS:
                raise rejection(frame)
            self._places.pop((topic, request.transaction_id), None)
            answer(make("EndTransactionResponse", status=OK))

        asked.client.ask(place.broker, Frame(RequestCode.END_TRANSACTION, 0, ext_fields=_END.write(header)), done)

    def orphan(self, broker: str, frame: Frame, topics: Collection[str], now_ms: int) -> Message | None:
        """Make the command that asks a producer for a transaction's outcome, from the broker's request.

        None if the request is invalid, or its topic is not among the producer's `topics`.
        """
        try:
            header = _CHECK.read(frame.ext_fields or {})
            record = decode_record(frame.body)
            if not isinstance(record, Record) or record.topic not in topics:
                return None
            command = make("TelemetryCommand")
            orphan = command.recover_orphaned_transaction_command
            orphan.message.CopyFrom(message_of(record, None, 0, now_ms))
        except FormatError:
            return None
        system = orphan.message.system_properties
        orphan.transaction_id = header.transaction_id or system.message_id
        place = (header.state_table_offset, header.commit_log_offset)
        self.begun(record.topic, orphan.transaction_id, broker, *place, now_ms)
        return command
