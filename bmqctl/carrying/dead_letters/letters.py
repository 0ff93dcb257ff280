"""Dead letters, and the marks of letters that were sent again.

A group's dead letters are the messages of the topic `%DLQ%GROUP`. A mark is a message of the topic `bmqctl-sent-again`,
which names the letter by its group, broker, queue, offset and time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from bmqctl.carrying.moving.forms import for_other_topic
from bmqctl.client.remoting.moments import moment
from formats.rocketmq.files.record import Record
from formats.rocketmq.properties import decode_properties, encode_properties
from formats.rocketmq.remoting.batch import BatchMessage, CompressedMessage
from formats.rocketmq.topic_names import DEAD_LETTER_PREFIX, RETRY_PREFIX

__all__ = [
    "DEAD_LETTER_PREFIX",
    "MARKS_TOPIC",
    "RETRY_PREFIX",
    "Letter",
    "Mark",
    "groups_of",
    "mark_message",
    "read_mark",
    "to_retry",
    "to_topic",
]

MARKS_TOPIC: Final = "bmqctl-sent-again"
_ORIGINS: Final = ("DLQ_ORIGIN_TOPIC", "RETRY_TOPIC")
_ORIGIN_ID: Final = "ORIGIN_MESSAGE_ID"
_TEXT_MAX: Final = 400


class Letter(NamedTuple):
    """A dead letter of a group, on a broker."""

    group: str
    broker: str
    record: Record

    @property
    def key(self) -> str:
        record = self.record
        return f"{self.group}/{self.broker}/{record.queue_id}/{record.queue_offset}/{record.stored_ms}"

    @property
    def message_id(self) -> str:
        """The producer's id; empty without one."""
        return decode_properties(self.record.properties).get("UNIQ_KEY", "")

    @property
    def original_topic(self) -> str | None:
        """The original topic; None if the letter does not state it."""
        found = decode_properties(self.record.properties)
        topic = next((found[name] for name in _ORIGINS if found.get(name)), None)
        return None if topic is None or topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)) else topic

    @property
    def stored_at(self) -> str:
        """The time at which it became a dead letter."""
        return moment(self.record.stored_ms).isoformat(timespec="milliseconds")


class Mark(NamedTuple):
    """A letter that was sent again: its destination and time."""

    letter: str
    to: str
    at: str


def groups_of(topics: list[str]) -> list[str]:
    return sorted({each.removeprefix(DEAD_LETTER_PREFIX) for each in topics if each.startswith(DEAD_LETTER_PREFIX)})


def to_topic(letter: Letter) -> BatchMessage | CompressedMessage:
    """Make the message for a topic, with the application's data and the original id. Raises `Unfit`."""
    made: BatchMessage | CompressedMessage = for_other_topic()(letter.record, letter.broker).message
    return made


def to_retry(letter: Letter, topic: str) -> BatchMessage | CompressedMessage:
    """Make the message for the group's retry topic, whose consumers see it as one of `topic`. Raises `Unfit`."""
    more = {"RETRY_TOPIC": topic}
    origin = decode_properties(letter.record.properties).get(_ORIGIN_ID)
    if origin:
        more[_ORIGIN_ID] = origin
    made: BatchMessage | CompressedMessage = for_other_topic(more)(letter.record, letter.broker).message
    return made


def mark_message(letter: Letter, to: str, at: str, unique_id: str) -> BatchMessage:
    body = json.dumps({"letter": letter.key, "message_id": letter.message_id, "to": to, "at": at}).encode()
    keys: Mapping[str, str] = {"KEYS": letter.message_id} if letter.message_id else {}
    return BatchMessage(0, body, encode_properties({"UNIQ_KEY": unique_id, "TAGS": letter.group, **keys}))


def read_mark(body: bytes) -> Mark | None:
    try:
        found: Any = json.loads(body)
        texts = [found["letter"], found["to"], found["at"]]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    if not all(isinstance(each, str) and len(each) <= _TEXT_MAX for each in texts):
        return None
    return Mark(*texts)
