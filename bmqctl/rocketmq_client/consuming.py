"""Pulling the messages of a queue, and committing how far a group has come."""

from __future__ import annotations

from enum import IntFlag
from typing import Final, NamedTuple

from bmqctl.rocketmq_client.client import RequestRefused
from bmqctl.rocketmq_client.link import RemotingLink
from formats.errors import FormatError
from formats.rocketmq.codes import RequestCode, ResponseCode
from formats.rocketmq.headers.codec import HeaderCodec
from formats.rocketmq.headers.consuming import (
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    PullMessageRequest,
    PullMessageResponse,
    UpdateConsumerOffsetRequest,
)
from formats.rocketmq.record import Record, decode_record
from formats.schema import Buffer

__all__ = ["Pulled", "QueuePuller", "read_messages"]

# How long the broker may hold a pull for which there is nothing yet.
SUSPEND_MS: Final = 15_000

_PULL = HeaderCodec(PullMessageRequest)
_PULLED = HeaderCodec(PullMessageResponse)
_MAX_OFFSET = HeaderCodec(GetMaxOffsetRequest)
_MAX_OFFSET_FOUND = HeaderCodec(GetMaxOffsetResponse)
_COMMIT = HeaderCodec(UpdateConsumerOffsetRequest)


class _PullFlag(IntFlag):
    """Bits of a pull request's system flags (source: PullSysFlag)."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4


_FLAGS: Final = int(_PullFlag.COMMIT_OFFSET | _PullFlag.SUSPEND | _PullFlag.SUBSCRIPTION)
# There may be messages at the offset that the answer names.
_GO_ON: Final = frozenset(
    {ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED}
)


class Pulled(NamedTuple):
    """A message of a queue. `body` is a view of what was received."""

    queue_offset: int
    body: Buffer


def read_messages(body: Buffer) -> list[Pulled]:
    """Take the messages out of an answer's body. Raises `FormatError` if it is damaged."""
    found: list[Pulled] = []
    at, end = 0, len(body)
    while at < end:
        record = decode_record(body, at)
        if not isinstance(record, Record):
            raise FormatError("PullMessageResponse.body", at, "has no message here")
        if not record.is_body_sound:
            raise FormatError("PullMessageResponse.body", at, "a message's checksum differs")
        found.append(Pulled(record.queue_offset, record.body))
        at += int.from_bytes(body[at : at + 4], "big")
    return found


class QueuePuller:
    """A group's position in a queue: `offset` is that of the next message. Compressed bodies are left as they are."""

    def __init__(self, link: RemotingLink, group: str, topic: str, queue_id: int, timeout_s: float) -> None:
        self.offset = 0
        self._link = link
        self._group = group
        self._topic = topic
        self._queue_id = queue_id
        self._timeout_s = timeout_s
        self._fields = _PULL.write(
            PullMessageRequest(group, topic, queue_id, 0, 0, _FLAGS, 0, SUSPEND_MS, 0, "*", "TAG")
        )

    async def seek_end(self) -> None:
        """Go to the end of the queue."""
        fields = _MAX_OFFSET.write(GetMaxOffsetRequest(self._topic, self._queue_id))
        answer = await self._link.call(RequestCode.GET_MAX_OFFSET, fields, self._timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(f"no end of {self._topic}/{self._queue_id}", answer)
        self.offset = _MAX_OFFSET_FOUND.read(answer.ext_fields).offset

    async def pull(self, messages_max: int) -> list[Pulled]:
        """Wait for the next messages; none if there are none for a while. What was pulled before is committed.

        Raises `RequestRefused`, `LinkLost` or `NoAnswer`, and `FormatError` for an answer that is damaged.
        """
        at = str(self.offset)
        fields = {**self._fields, "queueOffset": at, "maxMsgNums": str(messages_max), "commitOffset": at}
        answer = await self._link.call(RequestCode.PULL_MESSAGE, fields, SUSPEND_MS / 1000 + self._timeout_s)
        if answer.code in _GO_ON:
            self.offset = _PULLED.read(answer.ext_fields).next_begin_offset
            return []
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(f"pull of {self._topic}/{self._queue_id} at {at}", answer)
        messages = read_messages(answer.body)
        self.offset = _PULLED.read(answer.ext_fields).next_begin_offset
        return messages

    async def commit(self) -> None:
        """Commit what was pulled."""
        fields = _COMMIT.write(UpdateConsumerOffsetRequest(self._group, self._topic, self._queue_id, self.offset))
        answer = await self._link.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields, self._timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(f"commit of {self._topic}/{self._queue_id} at {self.offset}", answer)
