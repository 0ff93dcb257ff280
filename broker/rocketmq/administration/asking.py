"""Requests of administrators that the broker passes on to clients (source: AdminBrokerProcessor, Broker2Client)."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from broker.rocketmq.remoting.calls import Calls
from broker.rocketmq.remoting.requests import CheckRecord, Handlers, Peer, Request, failure, with_body
from broker.rocketmq.tables.services import Services
from formats.errors import FormatError
from formats.rocketmq.message_ids import OffsetId
from formats.rocketmq.remoting.bodies.clients import MessageQueue
from formats.rocketmq.remoting.bodies.inspection import read_client_offsets, write_client_offsets
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers import administration as headers
from formats.rocketmq.remoting.headers.codec import read_header, write_header

__all__ = ["ConsumerQuestions"]

log = logging.getLogger("broker.rocketmq.clients")


@dataclass
class _Gathering:
    peer: Peer
    asked: Frame
    missing: int
    found: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)


class ConsumerQuestions:
    """Asks consumers, and passes on their answers."""

    def __init__(self, services: Services, calls: Calls, check_record: CheckRecord) -> None:
        self._services = services
        self._check_record = check_record
        self._calls = calls
        self.handlers: Handlers = {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self._status,
        }

    def _running(self, request: Request) -> Frame | None:
        header = read_header(headers.GetConsumerRunningInfoRequest, request.fields)
        question = Frame(RequestCode.GET_CONSUMER_RUNNING_INFO, 0, ext_fields=write_header(header))
        return self._ask(request, question, header.consumer_group, header.client_id)

    def _consume(self, request: Request) -> Frame | None:
        """Have a consumer consume a stored message, regardless of its offsets."""
        header = read_header(headers.ConsumeMessageDirectlyRequest, request.fields)
        topic = self._services.topics.get(header.topic or "")
        group = self._services.groups.table.get(header.consumer_group)
        try:
            offset = OffsetId.parse(header.message_id or "").physical_offset
            stored = self._services.store.log
            found = stored.read(offset)
            message = bytes(stored.data(offset, found.size))
        except (IndexError, ValueError):
            return failure(ResponseCode.SYSTEM_ERROR, f"can not find message by id: {(header.message_id or '')[:64]}")
        self._check_record(request.frame, request.peer.host.address, found.record)
        told = header._replace(
            broker_name=self._services.options.name,
            topic_system_flags=None if topic is None else topic.topic_sys_flag,
            group_system_flags=None if group is None else group.group_sys_flag,
        )
        question = Frame(RequestCode.CONSUME_MESSAGE_DIRECTLY, 0, ext_fields=write_header(told), body=message)
        return self._ask(request, question, header.consumer_group, header.client_id or "")

    def _ask(self, request: Request, question: Frame, group: str, client_id: str) -> Frame | None:
        known = self._services.clients.consumers.get(group)
        members = known.members if known is not None else {}
        peer = next((peer for peer, member in members.items() if member.client_id == client_id), None)
        if peer is None:
            return failure(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        asked = request.frame.bare
        self._calls.call(cast(Peer, peer), question, request.now_ms, partial(_hand_on, request.peer, asked, client_id))
        return None

    def _status(self, request: Request) -> Frame | None:
        header = read_header(headers.GetConsumerStatusRequest, request.fields)
        known = self._services.clients.consumers.get(header.group)
        if known is None:
            text = f"No Any Consumer online in the consumer group: [{header.group}]"
            return failure(ResponseCode.SYSTEM_ERROR, text)
        wanted = header.client_addr
        everyone = [(peer, each.client_id) for peer, each in known.members.items()]
        members = [(peer, client_id) for peer, client_id in everyone if not wanted or client_id == wanted]
        if not members:
            return with_body(write_client_offsets({}))
        gathering = _Gathering(request.peer, request.frame.bare, len(members))
        fields = write_header(header._replace(client_addr=None))
        for peer, client_id in members:
            question = Frame(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, 0, ext_fields=fields)
            self._calls.call(cast(Peer, peer), question, request.now_ms, partial(_gather, gathering, client_id))
        return None


def _gather(gathering: _Gathering, client_id: str, answer: Frame | None) -> None:
    if answer is not None and answer.code == ResponseCode.SUCCESS:
        try:
            gathering.found[client_id] = read_client_offsets(answer.body)
        except FormatError as error:
            log.warning("the offsets reported by client %s cannot be read: %s", client_id, error)
    gathering.missing -= 1
    if not gathering.missing:
        gathering.peer.answer(gathering.asked, with_body(write_client_offsets(gathering.found)))


def _hand_on(peer: Peer, asked: Frame, client_id: str, answer: Frame | None) -> None:
    if answer is None:
        peer.answer(asked, failure(ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{client_id}> does not answer"))
    else:
        told = Frame(answer.code, 0, remark=answer.remark, ext_fields=answer.ext_fields, body=bytes(answer.body))
        peer.answer(asked, told)
