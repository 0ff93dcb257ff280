"""Requests that send messages: one at a time, or several of one queue in a batch."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from formats.rocketmq.message_ids import UniqueId
from formats.rocketmq.properties import encode_properties
from formats.rocketmq.remoting.batch import BatchMessage, CompressedMessage, encode_batch
from formats.rocketmq.remoting.headers.codec import codec_of
from formats.rocketmq.remoting.headers.sending import SendMessageRequestV2
from formats.rocketmq.topic_names import AUTO_CREATE_TOPIC
from formats.schema import Buffer

__all__ = ["Sender", "UniqueIds"]

_SEND = codec_of(SendMessageRequestV2)
# The topic whose settings an unknown one inherits, and its number of queues.
DEFAULT_QUEUES: Final = 4
UNIQUE_KEY: Final = "UNIQ_KEY"
# Requests an answer only when the message is stored as the broker is configured to.
WAIT: Final = "WAIT"


class UniqueIds:
    """Makes the ids by which clients know their messages."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        month = datetime.now().astimezone().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        self._month_s = month.timestamp()
        self._front = str(UniqueId(address, os.getpid() & 0xFFFF, secrets.randbits(32), 0, 0))[:-12]
        self._counter = 0

    def next(self) -> str:
        """Make an id. Its time and counter repeat less often than once in a millisecond."""
        self._counter = (self._counter + 1) & 0xFFFF
        month_ms = int((time.time() - self._month_s) * 1000) & 0xFFFFFFFF
        return f"{self._front}{month_ms:08X}{self._counter:04X}"


class Sender:
    """Makes the headers and bodies of the messages of one producer group for one topic."""

    def __init__(self, group: str, topic: str) -> None:
        header = SendMessageRequestV2(
            group, topic, AUTO_CREATE_TOPIC, DEFAULT_QUEUES, 0, 0, 0, 0, "", 0, False, is_batch=False
        )
        self._fields = _SEND.write(header)
        self._ids = UniqueIds()

    def message(self, queue_id: int, born_ms: int) -> dict[str, str]:
        properties = f"{UNIQUE_KEY}\x01{self._ids.next()}\x02{WAIT}\x01true\x02"
        return {**self._fields, "e": str(queue_id), "g": str(born_ms), "i": properties}

    def batch(self, queue_id: int, born_ms: int, bodies: Sequence[Buffer]) -> tuple[dict[str, str], bytes]:
        """Make the header and the frame's body of several messages, which are stored together or not at all."""
        fields = self.message(queue_id, born_ms)
        fields["m"] = "true"
        messages = (BatchMessage(0, body, encode_properties({UNIQUE_KEY: self._ids.next()})) for body in bodies)
        return fields, encode_batch(messages)

    def encoded(
        self, queue_id: int, born_ms: int, message: BatchMessage | CompressedMessage
    ) -> tuple[dict[str, str], Buffer]:
        """Make the header and the frame's body of an encoded message, which has its unique id."""
        fields = self.message(queue_id, born_ms)
        fields |= {"h": str(message.flag), "i": f"{message.properties.decode()}{WAIT}\x01true\x02"}
        if isinstance(message, CompressedMessage):
            fields["f"] = str(message.system_flags)
        return fields, message.body

    def encoded_batch(
        self, queue_id: int, born_ms: int, messages: Iterable[BatchMessage]
    ) -> tuple[dict[str, str], bytes]:
        return {**self.message(queue_id, born_ms), "m": "true"}, encode_batch(messages)
