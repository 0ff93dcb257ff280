"""Acknowledgements of messages of lite topics, and changes of their invisible time.

Source: AckMessageProcessor.ackLite, ChangeInvisibleTimeProcessor.processChangeInvisibleTimeForLite.
"""

from __future__ import annotations

from typing import Final

from broker.rocketmq.consuming.lite.attributes import lite_group
from broker.rocketmq.consuming.lite.dispatching import Dispatcher
from broker.rocketmq.consuming.pop.checks import HIDDEN_MS_MAX, NO_CODE_SET, find_topic
from broker.rocketmq.consuming.pop.order import ILLEGAL, UNCHANGED, Orders
from broker.rocketmq.remoting.requests import Handlers, Refused, Request, success
from broker.rocketmq.tables.services import Services
from formats.rocketmq.lite import QUEUE_ID, fault_of_lite_topic, queue_name
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import codec_of
from formats.rocketmq.remoting.headers.consuming import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
)
from formats.rocketmq.remoting.receipts import parse_receipt

__all__ = ["LiteAcks"]

_ACK = codec_of(AckMessageRequest)
_CHANGE = codec_of(ChangeInvisibleTimeRequest)
_CHANGED = codec_of(ChangeInvisibleTimeResponse)
_UNCHANGED: Final = ChangeInvisibleTimeResponse(0, 0, 0)
_LITE_TOPIC: Final = "liteTopic"


class LiteAcks:
    """Handles acknowledgements for lite topics; `others` handles the same requests for other messages."""

    def __init__(self, services: Services, orders: Orders, dispatcher: Dispatcher, others: Handlers) -> None:
        self._services = services
        self._orders = orders
        self._dispatcher = dispatcher
        self._others = others
        self.handlers: Handlers = {
            RequestCode.ACK_MESSAGE: self._acknowledge,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self._change,
        }

    def _acknowledge(self, request: Request) -> Frame | None:
        if not request.fields.get(_LITE_TOPIC, "").strip():
            return self._others[RequestCode.ACK_MESSAGE](request)
        header = _ACK.read(request.fields)
        queue = self._queue(header, "ack offset illegal.")
        group, offset, now_ms = header.consumer_group, header.offset, request.now_ms
        receipt = parse_receipt(header.extra_info)
        if header.queue_id != QUEUE_ID or not receipt.is_ordered:
            raise Refused(ResponseCode.INVALID_PARAMETER, "ack queue illegal.")
        if offset < (self._services.offsets.get(queue, group, QUEUE_ID) or 0):
            return success()
        following = self._orders.acknowledge((queue, group, QUEUE_ID), offset, receipt.popped_ms)
        if following == ILLEGAL:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "ack offset illegal.")
        if following != UNCHANGED:
            self._services.offsets.commit(queue, group, QUEUE_ID, following)
            self._dispatcher.go_on(queue, group, now_ms)
        return success()

    def _queue(self, header: AckMessageRequest | ChangeInvisibleTimeRequest, text: str) -> str:
        """Return the queue of the message that a request is about.

        Raises `Refused`, with `text` for an invalid offset.
        """
        find_topic(self._services, header.topic)
        if lite_group(self._services.groups.table.get(header.consumer_group)).bound_topic != header.topic:
            raise Refused(ResponseCode.INVALID_PARAMETER, "group type or bind topic not match.")
        lite_topic = header.lite_topic or ""
        fault = fault_of_lite_topic(lite_topic)
        if fault is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        queue = queue_name(header.topic, lite_topic)
        if not 0 <= header.offset < self._services.store.span(queue, QUEUE_ID)[1]:
            raise Refused(ResponseCode.NO_MESSAGE, text)
        return queue

    def _change(self, request: Request) -> Frame | None:
        if not request.fields.get(_LITE_TOPIC, "").strip():
            return self._others[RequestCode.CHANGE_MESSAGE_INVISIBLETIME](request)
        try:
            changed = self._change_time(request)
        except Refused as refused:
            return Frame(refused.code, 0, remark=refused.text, ext_fields=_CHANGED.write(_UNCHANGED))
        return Frame(ResponseCode.SUCCESS, 0, remark=NO_CODE_SET, ext_fields=_CHANGED.write(changed))

    def _change_time(self, request: Request) -> ChangeInvisibleTimeResponse:
        header = _CHANGE.read(request.fields)
        queue, group = self._queue(header, NO_CODE_SET), header.consumer_group
        if not 0 <= header.invisible_ms <= HIDDEN_MS_MAX:
            text = f"a message cannot be hidden for {header.invisible_ms} ms, but for {HIDDEN_MS_MAX} ms at most"
            raise Refused(ResponseCode.INVALID_PARAMETER, text)
        receipt = parse_receipt(header.extra_info)
        if header.offset < (self._services.offsets.get(queue, group, QUEUE_ID) or 0):
            return _UNCHANGED
        visible_ms = request.now_ms + header.invisible_ms
        key = (queue, group, QUEUE_ID)
        if header.suspend:
            self._orders.suspend(key, receipt.popped_ms, visible_ms)
        else:
            self._orders.change(key, header.offset, receipt.popped_ms, visible_ms)
        return ChangeInvisibleTimeResponse(receipt.popped_ms, visible_ms - receipt.popped_ms, receipt.revive_queue)
