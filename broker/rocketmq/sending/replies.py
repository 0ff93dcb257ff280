"""Replies to requests that producers sent as messages, passed to the requester (source: ReplyMessageProcessor)."""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple, cast

from broker.rocketmq.remoting.calls import Calls
from broker.rocketmq.remoting.requests import Handlers, Peer, Refused, Request
from broker.rocketmq.sending.sending import Sender, SendRequest
from broker.rocketmq.tables.clients import Clients
from broker.rocketmq.tables.options import BrokerOptions
from broker.rocketmq.tables.properties import encode
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import codec_of
from formats.rocketmq.remoting.headers.sending import ReplyMessageRequest, SendMessageResponse

__all__ = ["Replies"]

_PUSH = codec_of(ReplyMessageRequest)
_RESPONSE = codec_of(SendMessageResponse)
_CLIENT: Final = "REPLY_TO_CLIENT"


class _Reply(NamedTuple):
    request: Frame
    peer: Peer
    answer: SendMessageResponse
    client: str


class Replies:
    """Delivers and stores replies."""

    def __init__(self, options: BrokerOptions, clients: Clients, calls: Calls, sender: Sender) -> None:
        self._options = options
        self._clients = clients
        self._calls = calls
        self._sender = sender
        self.handlers: Handlers = {
            RequestCode.SEND_REPLY_MESSAGE: self._reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self._reply,
        }

    def _reply(self, request: Request) -> Frame | None:
        try:
            sent = self._sender.check(request.frame, request.now_ms)
            answer, properties = self._sender.store_reply(sent, request.frame, request.peer.host, request.now_ms)
        except Refused as refused:
            return self._failure(refused.code, refused.text)
        client = properties.get(_CLIENT)
        if client is None:
            return self._failure(ResponseCode.SYSTEM_ERROR, f"reply message properties[{_CLIENT}] is null", answer)
        connection = self._clients.producer(client)
        if connection is None:
            text = f"push reply message fail, channel of <{client}> not found."
            return self._failure(ResponseCode.SYSTEM_ERROR, text, answer)
        frame = self._push(sent, request, {**properties, "PUSH_REPLY_TIME": str(request.now_ms)})
        reply = _Reply(request.frame.bare, request.peer, answer, client)
        self._calls.call(cast(Peer, connection), frame, request.now_ms, partial(self._pushed, reply))
        return None

    def _push(self, sent: SendRequest, request: Request, properties: dict[str, str]) -> Frame:
        header = sent.header
        told = ReplyMessageRequest(
            header.producer_group,
            header.topic,
            header.default_topic,
            header.default_topic_queues,
            header.queue_id,
            header.system_flags,
            header.born_ms,
            header.flag,
            str(request.peer.host),
            str(self._options.address),
            request.now_ms,
            encode(properties).decode(),
            header.reconsume_times,
            bool(header.unit_mode),
        )
        return Frame(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, 0, ext_fields=_PUSH.write(told), body=request.body)

    def _pushed(self, reply: _Reply, answer: Frame | None) -> None:
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            fields = {**self._fields(), **_RESPONSE.write(reply.answer)}
            reply.peer.answer(reply.request, Frame(ResponseCode.SUCCESS, 0, ext_fields=fields))
            return
        text = f"push reply message to {reply.client}fail."
        reply.peer.answer(reply.request, self._failure(ResponseCode.SYSTEM_ERROR, text, reply.answer))

    def _failure(self, code: ResponseCode, text: str, answer: SendMessageResponse | None = None) -> Frame:
        fields = self._fields() if answer is None else {**self._fields(), **_RESPONSE.write(answer)}
        return Frame(code, 0, remark=text, ext_fields=fields)

    def _fields(self) -> dict[str, str]:
        return {"MSG_REGION": self._options.region, "TRACE_ON": "true" if self._options.trace_on else "false"}
