"""The requests of popping consumers, over remoting and over gRPC: both have the same results."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from formats.rocketmq.grpc.codes import Code, FilterType
from formats.rocketmq.grpc.messages import Message, duration_of_ms, make, ms_of
from formats.rocketmq.remoting.bodies.popping import BATCH_ACK_REQUEST, BatchAck, BatchAckRequest
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.popped import read_popped
from formats.rocketmq.remoting.receipts import Receipt, parse_receipt, retry_topic
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.calls import Calls
from tests.simulator.rocketmq.process import BROKER
from tests.simulator.rocketmq.wire import Connection, name_of

__all__ = ["EVERYTHING", "Done", "Filter", "GrpcPops", "Outcome", "Popped", "Pops", "RemotingPops"]

POLL_MS_MIN, HIDDEN_MS_MIN = 5_000, 10_000


class Outcome(NamedTuple):
    """The outcome of a request: whether it was carried out, whether its handle was too old, and the new handle."""

    is_done: bool
    is_late: bool = False
    handle: str = ""


class Popped(NamedTuple):
    """A message that was popped. `attempts` is the number of times that it was popped before."""

    name: str
    handle: str
    queue_id: int
    offset: int
    stored_ms: int
    attempts: int
    place: int = 0


class Filter(NamedTuple):
    """The expression of a group, and the only tag that it takes; None if it takes all."""

    kind: str
    text: str
    tag: str | None


EVERYTHING = Filter("TAG", "*", None)
# Takes what became of a request; None if there is no answer.
Done = Callable[[Outcome | None], None]
# Takes what was popped; None if there is no answer.
Taken = Callable[[list[Popped] | None], None]


class Pops(Protocol):
    """The requests of a group that pops a topic."""

    def pop(self, most: int, hidden_ms: int, poll_ms: int, taken: Taken, *, init_mode: int = 0) -> None:
        """Pop messages."""
        ...

    def acknowledge(self, handle: str, done: Done) -> None:
        """Acknowledge a message."""
        ...

    def hide(self, handle: str, ms: int, done: Done) -> None:
        """Hide a message for another time."""
        ...


class RemotingPops:
    """Requests over remoting. `topic` and `group` are those of the consumer."""

    def __init__(
        self,
        connection: Connection,
        group: str,
        topic: str,
        wall_ms: Callable[[], int],
        *,
        is_ordered: bool = False,
        filter: Filter = EVERYTHING,
    ) -> None:
        self._connection = connection
        self._wall_ms = wall_ms
        self._group = group
        self._topic = topic
        self._is_ordered = is_ordered
        self._filter = filter

    def pop(self, most: int, hidden_ms: int, poll_ms: int, taken: Taken, *, init_mode: int = 0) -> None:
        fields = {
            "consumerGroup": self._group,
            "topic": self._topic,
            "queueId": -1,
            "maxMsgNums": most,
            "invisibleTime": hidden_ms,
            "pollTime": poll_ms,
            "bornTime": self._wall_ms(),
            "initMode": init_mode,
            "order": str(self._is_ordered).lower(),
            "expType": self._filter.kind,
            "exp": self._filter.text,
        }
        self._connection.ask(RequestCode.POP_MESSAGE, fields, lambda answer: taken(self._read(answer)))

    def _read(self, answer: Frame | None) -> list[Popped] | None:
        if answer is None:
            return None
        if answer.code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL):
            return []
        if answer.code != ResponseCode.SUCCESS:
            raise Violation(f"{self._group} pops, and is told {answer.code}: {answer.remark}")
        found = []
        for record, receipt, attempts in read_popped(BROKER, answer.ext_fields, answer.body):
            where = record.queue_id, record.queue_offset, record.stored_ms, attempts
            found.append(Popped(name_of(record.body), str(receipt), *where, record.physical_offset))
        return found

    def _fields(self, receipt: Receipt, handle: str) -> dict[str, Any]:
        return {
            "consumerGroup": self._group,
            "topic": self._topic if receipt.kind == "0" else retry_topic(self._topic, self._group),
            "queueId": receipt.queue_id,
            "offset": receipt.queue_offset,
            "extraInfo": handle,
        }

    def acknowledge(self, handle: str, done: Done) -> None:
        fields = self._fields(parse_receipt(handle), handle)
        self._connection.ask(RequestCode.ACK_MESSAGE, fields, lambda answer: done(self._outcome(answer)))

    def acknowledge_all(self, handles: list[str], done: Done) -> None:
        """Acknowledge messages of one checkpoint together."""
        receipts = [parse_receipt(handle) for handle in handles]
        first = receipts[0]
        bits = sum(1 << each.queue_offset - first.start_offset for each in receipts)
        batch = BatchAck(
            self._group,
            self._topic,
            first.kind,
            first.start_offset,
            first.queue_id,
            first.revive_queue,
            first.popped_ms,
            first.invisible_ms,
            _in_base64(bits),
        )
        body = BATCH_ACK_REQUEST.write(BatchAckRequest(BROKER, [batch]))
        self._connection.ask(RequestCode.BATCH_ACK_MESSAGE, {}, lambda answer: done(self._outcome(answer)), body)

    def hide(self, handle: str, ms: int, done: Done) -> None:
        receipt = parse_receipt(handle)
        fields = {**self._fields(receipt, handle), "invisibleTime": ms}

        def changed(answer: Frame | None) -> None:
            outcome = self._outcome(answer)
            if outcome is not None and outcome.is_done and answer is not None:
                told = answer.ext_fields or {}
                new = receipt._replace(
                    start_offset=receipt.queue_offset,
                    popped_ms=int(told["popTime"]),
                    invisible_ms=int(told["invisibleTime"]),
                    revive_queue=int(told["reviveQid"]),
                )
                outcome = Outcome(is_done=True, handle=str(new))
            done(outcome)

        self._connection.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields, changed)

    def _outcome(self, answer: Frame | None) -> Outcome | None:
        if answer is None:
            return None
        if answer.code in (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_MESSAGE):
            return Outcome(is_done=False)
        if answer.code != ResponseCode.SUCCESS:
            raise Violation(f"{self._group} is told {answer.code}: {answer.remark}")
        return Outcome(is_done=True)


class GrpcPops:
    """Calls over gRPC. With `renews` the broker hides messages as long as the client is there."""

    def __init__(self, calls: Calls, group: str, topic: str, filter: Filter = EVERYTHING) -> None:
        self._calls = calls
        self._group = group
        self._topic = topic
        self._filter = filter
        self.renews = False

    def _request(self, name: str, **fields: Any) -> Message:
        request = make(name, **fields)
        request.group.name = self._group
        (request.message_queue.topic if name == "ReceiveMessageRequest" else request.topic).name = self._topic
        if name == "ReceiveMessageRequest":
            request.message_queue.broker.name = BROKER
        return request

    def pop(self, most: int, hidden_ms: int, poll_ms: int, taken: Taken, *, init_mode: int = 0) -> None:
        request = self._request("ReceiveMessageRequest", batch_size=most, auto_renew=self.renews)
        request.filter_expression.type = FilterType.SQL if self._filter.kind == "SQL92" else FilterType.TAG
        request.filter_expression.expression = self._filter.text
        request.invisible_duration.CopyFrom(duration_of_ms(max(hidden_ms, HIDDEN_MS_MIN)))
        request.long_polling_timeout.CopyFrom(duration_of_ms(max(poll_ms, POLL_MS_MIN)))
        self._calls.call("ReceiveMessage", request, lambda answers: taken(self._read(answers)))

    def _read(self, answers: list[Message] | None) -> list[Popped] | None:
        if answers is None:
            return None
        first = answers[0]
        if first.status.code not in (Code.OK, Code.MESSAGE_NOT_FOUND, Code.TOO_MANY_REQUESTS):
            raise Violation(f"{self._group} receives, and is told {first.status.code}: {first.status.message}")
        found = []
        for message in (each.message for each in answers if each.WhichOneof("content") == "message"):
            system = message.system_properties
            where = system.queue_id, system.queue_offset, ms_of(system.store_timestamp), system.delivery_attempt - 1
            found.append(Popped(name_of(message.body), system.receipt_handle, *where))
        return found

    def acknowledge(self, handle: str, done: Done) -> None:
        request = self._request("AckMessageRequest")
        request.entries.add(message_id="id", receipt_handle=handle)
        self._calls.call("AckMessage", request, lambda answers: done(self._outcome(answers)))

    def hide(self, handle: str, ms: int, done: Done) -> None:
        request = self._request("ChangeInvisibleDurationRequest", receipt_handle=handle)
        request.invisible_duration.CopyFrom(duration_of_ms(ms))
        self._calls.call("ChangeInvisibleDuration", request, lambda answers: done(self._outcome(answers)))

    def forward(self, handle: str, done: Done) -> None:
        """Forward a message to the dead letters of the group."""
        request = self._request("ForwardMessageToDeadLetterQueueRequest", receipt_handle=handle, message_id="id")

        def forwarded(answers: list[Message] | None) -> None:
            # The group may be forbidden to give messages back.
            is_forbidden = answers is not None and answers[0].status.code == Code.UNAUTHORIZED
            done(Outcome(is_done=False) if is_forbidden else self._outcome(answers))

        self._calls.call("ForwardMessageToDeadLetterQueue", request, forwarded)

    def _outcome(self, answers: list[Message] | None) -> Outcome | None:
        if answers is None:
            return None
        (answer,) = answers
        code = answer.status.code
        if code not in (Code.OK, Code.INVALID_RECEIPT_HANDLE, Code.INTERNAL_SERVER_ERROR):
            raise Violation(f"{self._group} is told {code}: {answer.status.message}")
        handle = getattr(answer, "receipt_handle", "")
        return Outcome(code == Code.OK, code == Code.INVALID_RECEIPT_HANDLE, handle)


def _in_base64(bits: int) -> str:
    return b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()
