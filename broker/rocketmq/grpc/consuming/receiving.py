"""Calls of consumers: to receive and acknowledge messages, and to change their invisible time.

Source: ReceiveMessageActivity, AckMessageActivity, ChangeInvisibleDurationActivity, ForwardMessageToDLQActivity,
ConsumerProcessor, MQClientAPIImpl. Each becomes a POP request of the remoting protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from broker.rocketmq.consuming.filters import ALL, SQL92, TAG
from broker.rocketmq.consuming.lite.attributes import lite_group
from broker.rocketmq.consuming.pop.checks import HIDDEN_MS_MAX
from broker.rocketmq.grpc.brokers.backend import Done, Topic
from broker.rocketmq.grpc.calling import Answer, Asked, Handlers
from broker.rocketmq.grpc.consuming.handles import ReceiptHandle, parse_handle
from broker.rocketmq.grpc.consuming.places import check_place
from broker.rocketmq.grpc.consuming.popped import PoppedMessage, ReadGiven, given_messages, lite_messages
from broker.rocketmq.grpc.consuming.renewals import HIDDEN_MS, Changed, Held, Renewals
from broker.rocketmq.grpc.conversion import message_of
from broker.rocketmq.grpc.statuses import NO_ANSWER, NO_BROKER, OK, UNREACHABLE, CallRejected, joint, rejection, status
from broker.rocketmq.grpc.validation import check_count, check_group, check_invisible_ms, check_topic
from formats.errors import FormatError
from formats.rocketmq.grpc.codes import Code, FilterType
from formats.rocketmq.grpc.messages import Message, make, ms_of, time_of_ms
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.bodies.clients import GroupConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers import consuming
from formats.rocketmq.remoting.headers.codec import codec_of
from formats.rocketmq.remoting.receipts import Receipt, real_topic

__all__ = ["Receiving"]

_POP = codec_of(consuming.PopMessageRequest)
_POP_LITE = codec_of(consuming.PopLiteMessageRequest)
_ACK = codec_of(consuming.AckMessageRequest)
_CHANGE = codec_of(consuming.ChangeInvisibleTimeRequest)
_CHANGED = codec_of(consuming.ChangeInvisibleTimeResponse)
_BACK = codec_of(consuming.ConsumerSendMessageBackRequest)

_POLL_MS_MIN: Final = 5_000
_POLL_MS_MAX: Final = 20_000
# The first version of clients that know ILLEGAL_POLLING_TIME.
_POLLING_TIME_VERSION: Final = "5.0.3"
_INVISIBLE_MS_MIN: Final = 10_000
_MESSAGES_MAX: Final = 32
_ATTEMPT_ID_MAX: Final = 255
# The invisible time of a message whose client is gone.
_GONE_MS: Final = 1_000
_FROM_LAST: Final = 1
# A client of a group for lite topics that works on more messages gets no others (maxLiteRenewNumPerChannel).
_LITE_HELD_MAX: Final = 100
_DEAD: Final = -1
# The codes of refusals that may not last.
_PASSING: Final = frozenset(
    (
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        NO_ANSWER,
        UNREACHABLE,
    )
)


class Receiving:
    """Asks brokers for consumers. `wall_ms` is the time of day."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._turn = 0
        self.renewals = Renewals(self._renew)
        self.handlers: Handlers = {
            "ReceiveMessage": self._receive,
            "AckMessage": self._acknowledge,
            "ChangeInvisibleDuration": self._change,
            "ForwardMessageToDeadLetterQueue": self._forward,
        }

    # -- messages

    def _receive(self, asked: Asked, answer: Answer) -> None:
        request = asked.request
        poll_ms = _poll_ms(asked)
        if len(request.attempt_id) > _ATTEMPT_ID_MAX:
            raise CallRejected(Code.BAD_REQUEST, f"the attempt id is too long, max is {_ATTEMPT_ID_MAX}")
        topic, group = check_topic(request.message_queue.topic), check_group(request.group)
        if request.auto_renew:
            invisible_ms = HIDDEN_MS
        else:
            invisible_ms = check_invisible_ms(ms_of(request.invisible_duration), _INVISIBLE_MS_MIN)
        kind, expression = _filter(request.filter_expression)
        header = consuming.PopMessageRequest(
            group,
            topic,
            -1,
            min(request.batch_size, _MESSAGES_MAX),
            invisible_ms,
            poll_ms,
            asked.now_ms,
            _FROM_LAST,
            kind,
            expression,
            is_ordered=False,
            attempt_id=request.attempt_id if request.HasField("attempt_id") else None,
        )

        def found(known: Topic) -> None:
            broker = self._reader(known, request.message_queue.broker.name)
            asked.client.find_group(group, topic, lambda config: self._pop(asked, broker, header, config, answer))

        asked.client.find_topic(topic, found)

    def _reader(self, topic: Topic, wanted: str) -> str:
        """Return the broker to ask for messages: the client's choice, if any. Raises `CallRejected`."""
        readers = topic.readers()
        if not readers:
            raise CallRejected(Code.FORBIDDEN, "no readable queue")
        if wanted in readers:
            return wanted
        self._turn += 1
        return readers[self._turn % len(readers)]

    def _pop(
        self, asked: Asked, broker: str, header: consuming.PopMessageRequest, config: GroupConfig, answer: Answer
    ) -> None:
        if asked.is_over():
            return
        frame, read = self._request(asked, header, config)
        done = partial(self._popped, asked, header, config, answer, partial(read, broker))
        asked.client.ask(broker, frame, done, header.poll_ms)

    def _request(
        self, asked: Asked, header: consuming.PopMessageRequest, config: GroupConfig
    ) -> tuple[Frame, ReadGiven]:
        """Make a group's POP request, and the reader of its answer. Raises `CallRejected`."""
        if lite_group(config).bound_topic is None:
            header = header._replace(is_ordered=config.consume_message_orderly)
            return Frame(RequestCode.POP_MESSAGE, 0, ext_fields=_POP.write(header)), given_messages
        held = self.renewals.count(asked.client.key)
        if held > _LITE_HELD_MAX:
            text = f"The client [{asked.client.client_id}] has too many unacked messages. Unacked count: {held}"
            raise CallRejected(Code.FORBIDDEN, text)
        lite = consuming.PopLiteMessageRequest(
            asked.client.client_id,
            header.consumer_group,
            header.topic,
            header.messages_max,
            header.invisible_ms,
            header.poll_ms,
            header.born_ms,
            header.attempt_id,
        )
        return Frame(RequestCode.POP_LITE_MESSAGE, 0, ext_fields=_POP_LITE.write(lite)), lite_messages

    def _popped(
        self,
        asked: Asked,
        header: consuming.PopMessageRequest,
        config: GroupConfig,
        answer: Answer,
        read: Callable[[Frame], list[PoppedMessage]],
        frame: Frame,
    ) -> None:
        if frame.code == ResponseCode.SUCCESS:
            found = self._messages(asked, header, config, read(frame))
        elif frame.code == ResponseCode.POLLING_FULL:
            answer(_only(Code.TOO_MANY_REQUESTS, "polling full"))
            found = None
        elif frame.code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND):
            answer(_only(Code.MESSAGE_NOT_FOUND, "no new message"))
            found = None
        else:
            rejected = rejection(frame)
            answer(_only(rejected.code, rejected.text))
            found = None
        if found is not None:
            answer(make("ReceiveMessageResponse", status=OK) if found else _only(_NOTHING, "no match message"))
            for message in found:
                answer(make("ReceiveMessageResponse", message=message))
        answer(make("ReceiveMessageResponse", delivery_timestamp=time_of_ms(self._wall_ms())))

    def _messages(
        self, asked: Asked, header: consuming.PopMessageRequest, config: GroupConfig, given: list[PoppedMessage]
    ) -> list[Message]:
        tags = _tags(header)
        group, topic, found = header.consumer_group, header.topic, []
        for record, handle, attempts in given:
            tag = decode_properties(record.properties).get("TAGS", "")
            if asked.is_over():
                self._hide(asked, group, topic, handle, _GONE_MS)
            elif tags is not None and tag not in tags:
                self._ask_ack(asked, group, topic, handle, lambda _: None)
            elif attempts > config.retry_max_times:
                self._bury(asked, group, topic, handle, "", lambda _: None)
            else:
                found.append(message_of(record, str(handle), attempts, self._wall_ms()))
                if asked.request.auto_renew:
                    retry_ms = min(max(config.group_retry_policy.delay_ms(attempts), 0), HIDDEN_MS_MAX)
                    self.renewals.hold(Held(asked, group, topic, handle, self._wall_ms(), retry_ms))
        return found

    # -- acknowledgements

    def _acknowledge(self, asked: Asked, answer: Answer) -> None:
        request = asked.request
        check_count(len(request.entries), "entries")
        topic, group = check_topic(request.topic), check_group(request.group)
        response = make("AckMessageResponse")
        left: set[int] = set(range(len(request.entries)))
        for entry in request.entries:
            response.entries.add(message_id=entry.message_id, receipt_handle=entry.receipt_handle)
        if not left:
            answer(make("AckMessageResponse", status=joint(set(), "ack message result is empty")))

        def note(number: int, outcome: Message) -> None:
            response.entries[number].status.CopyFrom(outcome)
            left.discard(number)
            if not left:
                response.status.CopyFrom(joint({each.status.code for each in response.entries}, ""))
                answer(response)

        def acknowledged(number: int, frame: Frame) -> None:
            note(number, _acked(frame))

        def acknowledge(number: int, handle: ReceiptHandle) -> None:
            try:
                self._check_current(asked, handle)
                self._ask_ack(asked, group, topic, handle, partial(acknowledged, number))
            except CallRejected as rejected:
                note(number, status(rejected.code, rejected.text))

        for number, entry in enumerate(request.entries):
            try:
                self._with_handle(asked, entry.receipt_handle, entry.lite_topic, partial(acknowledge, number))
            except CallRejected as rejected:
                note(number, status(rejected.code, rejected.text))

    def _with_handle(self, asked: Asked, text: str, lite_topic: str, then: Callable[[ReceiptHandle], None]) -> None:
        """Call `then` with the client's handle, or its renewed one. Raises `CallRejected`."""
        held = self.renewals.take(asked.client.key, text)
        if held is None:
            then(parse_handle(text)._replace(lite_topic=lite_topic or None))
        elif held.is_changing:
            held.waiting.append(lambda: asked.client.go_on(lambda: then(held.handle)))
        else:
            then(held.handle)

    def _check_current(self, asked: Asked, handle: ReceiptHandle) -> None:
        """Raise `CallRejected` unless a handle's broker exists, and its time is not over."""
        if not asked.client.knows(handle.receipt.broker):
            raise CallRejected(Code.INVALID_RECEIPT_HANDLE, "receipt handle is of another broker")
        # In order, popped messages stay with their client until another one pops them.
        if handle.receipt.visible_ms <= asked.now_ms:
            raise CallRejected(Code.INVALID_RECEIPT_HANDLE, "receipt handle is expired")

    def _ask_ack(self, asked: Asked, group: str, topic: str, handle: ReceiptHandle, done: Done) -> None:
        receipt = handle.receipt
        header = consuming.AckMessageRequest(
            group, _real(topic, group, receipt), receipt.queue_id, str(receipt), receipt.queue_offset, handle.lite_topic
        )
        asked.client.ask(receipt.broker, Frame(RequestCode.ACK_MESSAGE, 0, ext_fields=_ACK.write(header)), done)

    # -- changes of the invisible time

    def _change(self, asked: Asked, answer: Answer) -> None:
        request = asked.request
        topic, group = check_topic(request.topic), check_group(request.group)
        ms = check_invisible_ms(ms_of(request.invisible_duration))

        def change(handle: ReceiptHandle) -> None:
            self._check_current(asked, handle)
            self._ask_change(asked, group, topic, handle, ms, partial(done, handle), suspend=request.suspend)

        def done(handle: ReceiptHandle, frame: Frame) -> None:
            if frame.code == ResponseCode.SUCCESS:
                changed = _CHANGED.read(frame.ext_fields or {})
                answer(
                    make(
                        "ChangeInvisibleDurationResponse",
                        status=OK,
                        receipt_handle=str(_changed_handle(handle, changed)),
                    )
                )
            elif frame.code in (NO_ANSWER, NO_BROKER, UNREACHABLE):
                raise _handle_rejection(frame)
            else:
                text = "changeInvisibleDuration failed: status is abnormal"
                answer(make("ChangeInvisibleDurationResponse", status=status(Code.INTERNAL_SERVER_ERROR, text)))

        self._with_handle(asked, request.receipt_handle, request.lite_topic, change)

    def _renew(self, held: Held, ms: int, renewed: Changed) -> None:
        def done(frame: Frame) -> None:
            is_done = frame.code == ResponseCode.SUCCESS
            changed = _CHANGED.read(frame.ext_fields or {}) if is_done else None
            handle = None if changed is None else _changed_handle(held.handle, changed)
            renewed(handle, frame.code in _PASSING)

        try:
            self._ask_change(held.asked, held.group, held.topic, held.handle, ms, done)
        except CallRejected:
            renewed(None, False)

    def _hide(self, asked: Asked, group: str, topic: str, handle: ReceiptHandle, ms: int) -> None:
        self._ask_change(asked, group, topic, handle, ms, lambda _: None)

    def _ask_change(
        self,
        asked: Asked,
        group: str,
        topic: str,
        handle: ReceiptHandle,
        invisible_ms: int,
        done: Done,
        *,
        suspend: bool = False,
    ) -> None:
        receipt = handle.receipt
        header = consuming.ChangeInvisibleTimeRequest(
            group,
            _real(topic, group, receipt),
            receipt.queue_id,
            str(receipt),
            receipt.queue_offset,
            invisible_ms,
            handle.lite_topic,
            True if suspend else None,
        )
        frame = Frame(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, 0, ext_fields=_CHANGE.write(header))
        asked.client.ask(receipt.broker, frame, done)

    # -- dead letters

    def _forward(self, asked: Asked, answer: Answer) -> None:
        request = asked.request
        topic, group = check_topic(request.topic), check_group(request.group)

        def done(frame: Frame) -> None:
            if frame.code == ResponseCode.SUCCESS:
                answer(make("ForwardMessageToDeadLetterQueueResponse", status=OK))
            else:
                rejected = _handle_rejection(frame)
                outcome = status(rejected.code, rejected.text)
                answer(make("ForwardMessageToDeadLetterQueueResponse", status=outcome))

        def forward(handle: ReceiptHandle) -> None:
            real = _real(topic, group, handle.receipt)
            place = (handle.receipt.broker, handle.commit_log_offset, real, group)
            check_place(asked, *place, lambda: self._bury(asked, group, topic, handle, request.message_id, done))

        self._with_handle(asked, request.receipt_handle, request.lite_topic, forward)

    def _bury(self, asked: Asked, group: str, topic: str, handle: ReceiptHandle, message_id: str, done: Done) -> None:
        if handle.commit_log_offset < 0:
            raise CallRejected(Code.INVALID_RECEIPT_HANDLE, "commit log offset is empty")

        def stored(frame: Frame) -> None:
            if frame.code == ResponseCode.SUCCESS:
                self._ask_ack(asked, group, topic, handle, lambda _: None)
            done(frame)

        real = _real(topic, group, handle.receipt)
        header = consuming.ConsumerSendMessageBackRequest(
            handle.commit_log_offset, group, _DEAD, message_id or None, real, max_reconsume_times=0
        )
        frame = Frame(RequestCode.CONSUMER_SEND_MSG_BACK, 0, ext_fields=_BACK.write(header))
        asked.client.ask(handle.receipt.broker, frame, stored)


_NOTHING: Final = Code.MESSAGE_NOT_FOUND


def _only(code: Code, text: str) -> Message:
    return make("ReceiveMessageResponse", status=status(code, text))


def _acked(frame: Frame) -> Message:
    if frame.code == ResponseCode.SUCCESS:
        return OK
    if frame.code == ResponseCode.NO_MESSAGE:
        return status(Code.INTERNAL_SERVER_ERROR, "ack failed: status is abnormal")
    rejected = _handle_rejection(frame)
    return status(rejected.code, rejected.text)


def _handle_rejection(frame: Frame) -> CallRejected:
    if frame.code == NO_BROKER:
        return CallRejected(Code.INVALID_RECEIPT_HANDLE, frame.remark or "")
    return rejection(frame)


def _changed_handle(handle: ReceiptHandle, changed: consuming.ChangeInvisibleTimeResponse) -> ReceiptHandle:
    receipt = handle.receipt._replace(
        start_offset=handle.receipt.queue_offset,
        popped_ms=changed.popped_ms,
        invisible_ms=changed.invisible_ms,
        revive_queue=changed.revive_queue_id,
    )
    return handle._replace(receipt=receipt)


def _real(topic: str, group: str, receipt: Receipt) -> str:
    """Return the topic that a message is in. Raises `CallRejected`."""
    try:
        return real_topic(topic, group, receipt.kind)
    except FormatError as error:
        raise CallRejected(Code.INVALID_RECEIPT_HANDLE, f"receipt handle is invalid: {error}") from None


def _poll_ms(asked: Asked) -> int:
    """Return the time for which a consumer waits for messages. Raises `CallRejected`."""
    given, left_ms = asked.request.long_polling_timeout, asked.left_ms
    wanted = _POLL_MS_MAX
    if asked.request.HasField("long_polling_timeout"):
        wanted = ms_of(given)
    elif left_ms is not None:
        # The call's time includes the answer's, which its client knows.
        wanted = left_ms - asked.client.request_timeout_ms // 2
    poll_ms = min(max(wanted, _POLL_MS_MIN), _POLL_MS_MAX)
    if left_ms is None or poll_ms <= left_ms:
        return poll_ms
    if left_ms >= _POLL_MS_MIN:
        return left_ms
    text = "The deadline time remaining is not enough for polling, please check network condition"
    # Older clients do not know the code; versions are compared as texts, as in the original.
    is_known = asked.client.version >= _POLLING_TIME_VERSION
    raise CallRejected(Code.ILLEGAL_POLLING_TIME if is_known else Code.BAD_REQUEST, text)


def _filter(expression: Message) -> tuple[str, str]:
    """Return the kind and the text of a subscription. Raises `CallRejected`."""
    text: str = expression.expression
    if expression.type == FilterType.SQL:
        if not text.strip():
            raise CallRejected(Code.ILLEGAL_FILTER_EXPRESSION, "Expression can't be null! SQL92")
        return SQL92, text
    if text in ("", ALL):
        return TAG, ALL
    if not any(tag.strip() for tag in text.split("||")):
        raise CallRejected(Code.ILLEGAL_FILTER_EXPRESSION, "subString split error")
    return TAG, text


def _tags(header: consuming.PopMessageRequest) -> frozenset[str] | None:
    """Return the wanted tags; None for any. The broker compares hashes only."""
    if header.expression_type != TAG or header.expression in (None, ALL):
        return None
    return frozenset(tag.strip() for tag in (header.expression or "").split("||"))
