"""Receipt handles of popped messages, and their source in the answer to a POP (source: ExtraInfoUtil, KeyBuilder).

A handle is eight words: the first offset of the message's checkpoint, the time of the pop, the time for which it is
hidden, the queue of the revive log, the kind of its topic, the broker, the queue, and the message's offset there. A
client makes it from the answer's header; the broker puts it into messages of a retry topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from formats.errors import FormatError
from formats.rocketmq.numbers import LONG_MAX, read_long
from formats.rocketmq.topic_names import RETRY_PREFIX

__all__ = [
    "ORDERED",
    "RETRY_PREFIX",
    "Receipt",
    "kind_of_topic",
    "normal_topic",
    "offset_counts_info",
    "offsets_info",
    "parse_receipt",
    "queue_count_info",
    "real_topic",
    "retry_topic",
    "retry_topics",
    "start_info",
]

# The revive queue in handles of messages that are consumed in order, which have no checkpoint.
ORDERED: Final = 999
NORMAL, RETRY, RETRY_V2 = "0", "1", "2"

_BROKER_MAX: Final = 255
_WORDS_MIN: Final = 6


class Receipt(NamedTuple):
    """A receipt handle. Older clients omit the last two words, which are then -1."""

    start_offset: int
    popped_ms: int
    invisible_ms: int
    revive_queue: int
    kind: str
    broker: str
    queue_id: int = -1
    queue_offset: int = -1

    def __str__(self) -> str:
        return " ".join(map(str, self))

    @property
    def visible_ms(self) -> int:
        return self.popped_ms + self.invisible_ms

    @property
    def is_ordered(self) -> bool:
        return self.revive_queue == ORDERED


def parse_receipt(text: str) -> Receipt:
    """Parse a handle. Raises `FormatError` for too few words, or for words that are not numbers."""
    words = text.split(" ")
    if len(words) < _WORDS_MIN:
        raise FormatError("Receipt", 0, f"has {len(words)} words, not {_WORDS_MIN} at least")
    broker = words[5]
    if len(broker) > _BROKER_MAX:
        raise FormatError("Receipt", 5, f"names a broker with {len(broker)} characters")
    first = [_number(words, place) for place in range(4)]
    receipt = Receipt(first[0], first[1], first[2], first[3], words[4], broker)
    if min(first) < 0 or receipt.visible_ms > LONG_MAX:
        raise FormatError("Receipt", 0, "has an offset, a time or a queue that cannot be")
    if len(words) < len(Receipt._fields):
        return receipt
    return receipt._replace(queue_id=_number(words, 6), queue_offset=_number(words, 7))


def _number(words: list[str], place: int) -> int:
    word = words[place]
    number = read_long(word)
    if number is None:
        raise FormatError("Receipt", place, f"{word[:40]!r} is no number")
    return number


def retry_topic(topic: str, group: str, *, is_v2: bool = False) -> str:
    """The topic of a group's unacknowledged popped messages, by a name of either version."""
    return f"{RETRY_PREFIX}{group}{'+' if is_v2 else '_'}{topic}"


def retry_topics(topic: str, group: str) -> tuple[str, str]:
    """The topics in which such messages may be: the version in use is a property of the broker."""
    return retry_topic(topic, group), retry_topic(topic, group, is_v2=True)


def real_topic(topic: str, group: str, kind: str) -> str:
    """The topic that stores a message, from the topic that the client subscribes to and the kind.

    Raises `FormatError` for an unknown kind.
    """
    if kind == NORMAL:
        return topic
    if kind == RETRY:
        return retry_topic(topic, group)
    if kind == RETRY_V2:
        return retry_topic(topic, group, is_v2=True)
    raise FormatError("BatchAck", 0, f"{kind[:40]!r} is no kind of topic")


def normal_topic(topic: str, group: str) -> str:
    """The topic that a group subscribes to, from the one that stores a message: the same, except for a retry topic.

    Raises `FormatError` for a retry topic of another group.
    """
    if not topic.startswith(RETRY_PREFIX):
        return topic
    prefix = f"{RETRY_PREFIX}{group}"
    if not topic.startswith(prefix) or topic[len(prefix) : len(prefix) + 1] not in ("_", "+"):
        raise FormatError("CheckPoint", 0, f"{topic[:80]!r} is no retry topic of group {group[:80]!r}")
    return topic[len(prefix) + 1 :]


def kind_of_topic(topic: str) -> str:
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY


# Each returns one piece of an answer's header, where `;` separates pieces.


def start_info(topic: str, queue_id: int, offset: int) -> str:
    return f"{kind_of_topic(topic)} {queue_id} {offset}"


def offsets_info(topic: str, queue_id: int, offsets: Iterable[int]) -> str:
    return f"{kind_of_topic(topic)} {queue_id} {','.join(map(str, offsets))}"


def offset_counts_info(topic: str, queue_id: int, offset: int, count: int) -> str:
    return f"{kind_of_topic(topic)} qo{queue_id}%{offset} {count}"


def queue_count_info(topic: str, queue_id: int, count: int) -> str:
    """Encode one number of earlier pops for a queue, for older clients."""
    return f"{kind_of_topic(topic)} {queue_id} {count}"
