"""Pulling of a queue's messages, and committing of a group's progress."""

from __future__ import annotations

import struct
from enum import IntFlag
from typing import Final, NamedTuple, Protocol, TypeVar

import anyio

from bmqctl.client.remoting.faults import RequestRefused
from bmqctl.client.remoting.link import OnAnswer, RemotingLink
from formats.errors import FormatError
from formats.rocketmq.files.record import Record, decode_record
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import read_header, write_header
from formats.rocketmq.remoting.headers.consuming import (
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetMinOffsetRequest,
    GetMinOffsetResponse,
    PullMessageRequest,
    PullMessageResponse,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    SearchOffsetRequest,
    SearchOffsetResponse,
    UpdateConsumerOffsetRequest,
)
from formats.schema import Buffer

__all__ = ["Pulled", "QueuePuller", "read_messages", "read_records"]

M = TypeVar("M", bound="_Stored")

# How long the broker may hold a pull without messages.
SUSPEND_MS: Final = 15_000
# Brokers hold pulls without messages; one that does not would be asked endlessly.
_IDLE_PAUSE_S: Final = 0.1

_record_size = struct.Struct(">I").unpack_from


class _PullFlag(IntFlag):
    """Bits of a pull request's system flags (source: PullSysFlag)."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4


_FLAGS: Final = int(_PullFlag.COMMIT_OFFSET | _PullFlag.SUSPEND | _PullFlag.SUBSCRIPTION)
_FLAGS_WITHOUT_COMMIT: Final = str(int(_PullFlag.SUSPEND | _PullFlag.SUBSCRIPTION))
_FLAGS_AT_ONCE: Final = str(int(_PullFlag.SUBSCRIPTION))
_GO_ON: Final = frozenset(
    {ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED}
)


class _Stored(Protocol):
    @property
    def queue_offset(self) -> int: ...


class Pulled(NamedTuple):
    """A message of a queue. `body` is a view of the received bytes."""

    queue_offset: int
    body: Buffer


def read_messages(body: Buffer) -> list[Pulled]:
    """Read the messages in an answer's body. Raises `FormatError` if it is damaged."""
    found: list[Pulled] = []
    for record in read_records(body):
        if not record.is_body_sound:
            raise FormatError("PullMessageResponse.body", 0, f"the checksum of message {record.queue_offset} differs")
        found.append(Pulled(record.queue_offset, record.body))
    return found


def read_records(body: Buffer) -> list[Record]:
    """Read the messages with all their fields in an answer's body, without checking the checksums of their bodies.

    Raises `FormatError` if it is damaged.
    """
    found: list[Record] = []
    body = memoryview(body)
    at, end = 0, len(body)
    while at < end:
        record = decode_record(body, at)
        if not isinstance(record, Record):
            raise FormatError("PullMessageResponse.body", at, "has no message here")
        found.append(record)
        at += _record_size(body, at)[0]
    return found


class QueuePuller:
    """A group's position in a queue: `offset` is that of the next message. Compressed bodies stay as they are.

    Only messages that `expression` selects, of the type TAG or SQL92, are pulled.
    """

    def __init__(
        self,
        link: RemotingLink,
        group: str,
        topic: str,
        queue_id: int,
        timeout_s: float,
        expression: str = "*",
        expression_type: str = "TAG",
    ) -> None:
        self.offset = 0
        self._link = link
        self._group = group
        self._topic = topic
        self._queue_id = queue_id
        self._timeout_s = timeout_s
        self._fields = write_header(
            PullMessageRequest(group, topic, queue_id, 0, 0, _FLAGS, 0, SUSPEND_MS, 0, expression, expression_type)
        )

    async def seek_committed(self) -> bool:
        """Go to the group's committed offset; return False if there is none."""
        fields = write_header(QueryConsumerOffsetRequest(self._group, self._topic, self._queue_id))
        answer = await self._link.call(RequestCode.QUERY_CONSUMER_OFFSET, fields, self._timeout_s)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return False
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(f"no offset of {self._group} in {self._topic}/{self._queue_id}", answer)
        self.offset = read_header(QueryConsumerOffsetResponse, answer.ext_fields).offset
        return True

    async def seek_begin(self) -> None:
        fields = write_header(GetMinOffsetRequest(self._topic, self._queue_id))
        answer = await self._link.call(RequestCode.GET_MIN_OFFSET, fields, self._timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(f"no beginning of {self._topic}/{self._queue_id}", answer)
        self.offset = read_header(GetMinOffsetResponse, answer.ext_fields).offset

    async def seek_end(self) -> None:
        fields = write_header(GetMaxOffsetRequest(self._topic, self._queue_id))
        answer = await self._link.call(RequestCode.GET_MAX_OFFSET, fields, self._timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(f"no end of {self._topic}/{self._queue_id}", answer)
        self.offset = read_header(GetMaxOffsetResponse, answer.ext_fields).offset

    async def seek_time(self, time_ms: int) -> None:
        """Go to the first message stored at a time or later; to the end if there is none."""
        fields = write_header(SearchOffsetRequest(self._topic, self._queue_id, time_ms))
        answer = await self._link.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields, self._timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(f"no offset by time of {self._topic}/{self._queue_id}", answer)
        self.offset = read_header(SearchOffsetResponse, answer.ext_fields).offset

    async def pull(self, messages_max: int) -> list[Pulled]:
        """Wait for the next messages; none if none come for a while. Commits the messages pulled before.

        Raises `RequestRefused`, `LinkLost` or `NoAnswer`, and `FormatError` for a damaged answer.
        """
        at = str(self.offset)
        answer = await self._pull({**self._fields, "maxMsgNums": str(messages_max), "commitOffset": at})
        return [] if answer is None else self._advance(read_messages(answer.body), answer)

    async def pull_records(self, messages_max: int) -> list[Record]:
        """Wait for the next messages, with all their fields, like `pull`, but commit nothing."""
        fields = {**self._fields, "maxMsgNums": str(messages_max), "sysFlag": _FLAGS_WITHOUT_COMMIT}
        answer = await self._pull(fields)
        return [] if answer is None else self._advance(read_records(answer.body), answer)

    def ask_records(self, offset: int, messages_max: int, on_answer: OnAnswer, *, is_held: bool) -> None:
        """Ask for messages from an offset on; without `is_held` the broker answers immediately. Raises `LinkLost`."""
        fields = {**self._fields, "maxMsgNums": str(messages_max), "queueOffset": str(offset)}
        fields["sysFlag"] = _FLAGS_WITHOUT_COMMIT if is_held else _FLAGS_AT_ONCE
        self._link.ask(RequestCode.PULL_MESSAGE, fields, on_answer, SUSPEND_MS / 1000 + self._timeout_s)

    def take_records(self, answer: Frame) -> tuple[list[Record], int]:
        """Take the messages of an answer at the offset, and advance past them; note the end of the queue in it.

        Raises `RequestRefused`, and `FormatError` for a damaged answer.
        """
        records = read_records(answer.body) if self._check(answer) else []
        return self._advance(records, answer), read_header(PullMessageResponse, answer.ext_fields).max_offset

    async def check(self) -> None:
        """Ask for a message, and drop the answer. Raises `RequestRefused` if the broker refuses the group."""
        fields = {**self._fields, "queueOffset": str(self.offset), "maxMsgNums": "1", "sysFlag": _FLAGS_AT_ONCE}
        self._check(await self._link.call(RequestCode.PULL_MESSAGE, fields, self._timeout_s))

    async def _pull(self, fields: dict[str, str]) -> Frame | None:
        """Ask for the messages at the offset; None, and the offset moved, if there are none."""
        fields["queueOffset"] = str(self.offset)
        answer = await self._link.call(RequestCode.PULL_MESSAGE, fields, SUSPEND_MS / 1000 + self._timeout_s)
        if not self._check(answer):
            before, self.offset = self.offset, read_header(PullMessageResponse, answer.ext_fields).next_begin_offset
            await self.rest_if_idle(before)
            return None
        return answer

    async def rest_if_idle(self, before: int) -> None:
        if self.offset == before:
            await anyio.sleep(_IDLE_PAUSE_S)

    def _check(self, answer: Frame) -> bool:
        """Return True if an answer has messages, and False if there are none at the requested offset."""
        if answer.code in _GO_ON:
            return False
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(f"pull of {self._topic}/{self._queue_id} at {self.offset}", answer)
        return True

    def _advance(self, messages: list[M], answer: Frame) -> list[M]:
        """Move past the messages of an answer. Raises `FormatError` if its next offset is not after them."""
        following = read_header(PullMessageResponse, answer.ext_fields).next_begin_offset
        # The first of a batch that is stored as one message may precede the requested offset.
        is_sound = self.offset < following and all(0 <= each.queue_offset < following for each in messages)
        if messages and not is_sound:
            reason = f"{following}, for messages from {messages[0].queue_offset} on, where {self.offset} was asked for"
            raise FormatError("PullMessageResponse.nextBeginOffset", 0, reason)
        self.offset = following
        return messages

    async def commit(self, offset: int | None = None) -> None:
        """Commit the pulled messages, or those before `offset`."""
        wanted = self.offset if offset is None else offset
        fields = write_header(UpdateConsumerOffsetRequest(self._group, self._topic, self._queue_id, wanted))
        answer = await self._link.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields, self._timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(f"commit of {self._topic}/{self._queue_id} at {wanted}", answer)
