"""Plain messages, which most are, stored as `sending.Sender` would, in a fraction of its time.

The headers of a producer's requests are nearly alike (`formats.rocketmq.send_frames`), and so are the properties of its
messages. What follows from the parts that are alike is found out once, by the sender itself, and kept (`_Way`,
`_Shape`): whether the topic may be written to, what the record has besides, which properties the broker adds, and in
which order they are stored. A message then takes a few look-ups. Every request that is anything else is left to the
sender: delayed messages, transactions, retries, batches, properties without a value, any fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Final, NamedTuple

from broker.rocketmq.core import names
from broker.rocketmq.core.arrivals import Arrivals
from broker.rocketmq.core.options import BrokerOptions
from broker.rocketmq.core.properties import encode
from broker.rocketmq.core.requests import Peer, Refused
from broker.rocketmq.core.sending import SPECIAL, Sender, read_header
from broker.rocketmq.core.topics import Topics
from broker.rocketmq.remoting.session import Session
from broker.rocketmq.store.commit_log import Message
from broker.rocketmq.store.errors import DiskFull, TooLarge
from formats.errors import FormatError
from formats.rocketmq.codes import ResponseCode
from formats.rocketmq.frame import Frame, HeaderEncoding, next_frame
from formats.rocketmq.index import index_key, message_index_keys
from formats.rocketmq.java import HashedFront, index_hash, string_hash
from formats.rocketmq.properties import encode_properties
from formats.rocketmq.send_frames import (
    AnswerMaker,
    Posted,
    PostedRest,
    answer_fields,
    answer_maker,
    offset_id_front,
    posted_of,
    read_posted,
)
from formats.schema import Buffer

__all__ = ["PlainSender"]

# So many are kept, of the ways for each connection; whoever has more of them is served all the same, but slower.
WAYS_MAX: Final = 64
SHAPES_MAX: Final = 256
NAMES_MAX: Final = 32
NAMES_BYTES_MAX: Final = 1024
REST_BYTES_MAX: Final = 2048
PROPERTIES_BYTES_MAX: Final = 0x7FFF
_UNIQUE: Final = "UNIQ_KEY"
_KEYS: Final[tuple[str, ...]] = ("KEYS", "TAGS")
_MARK: Final = re.compile(rb"\x00(\d+)\x00")


@dataclass(slots=True, eq=False)
class _Shape:
    """Properties with the same names in the same order: where the values go in what is stored."""

    template: bytes
    pick: Callable[[list[bytes]], tuple[bytes, ...]]
    unique_at: int
    # The places of the values that make other keys of the index, by their names.
    keys_at: dict[str, int]


@dataclass(slots=True, eq=False)
class _Way:
    """Requests of one connection that are alike but for queue, time, properties and number.

    It holds while the broker has this table of topics.
    """

    table: object
    queues: int
    # Of the message: topic, flag, system flags, both hosts, how often it was retried.
    message: tuple[str, int, int, bytes, bytes, int]
    answer: AnswerMaker
    is_one_way: bool
    unique_keys: HashedFront


class _Placed(NamedTuple):
    """The place of a message that was stored, as an `AnswerMaker` takes it."""

    offset: int
    queue_id: int
    queue_offset: int
    unique_id: bytes


# Messages share the same few tags.
_tag_hash = lru_cache(maxsize=512)(string_hash)

_UNKNOWN: Final = _Shape(b"", tuple, 0, {})


class PlainSender:
    """Stores plain messages: those at the front of what a connection has delivered, and those in frames."""

    def __init__(
        self, options: BrokerOptions, topics: Topics, arrivals: Arrivals, sender: Sender, wall_ms: Callable[[], int]
    ) -> None:
        self._topics = topics
        self._arrivals = arrivals
        self._sender = sender
        self._wall_ms = wall_ms
        self._options = options
        self._ways: dict[Peer, dict[PostedRest, _Way]] = {}
        self._shapes: dict[tuple[bytes, ...], _Shape | None] = {}
        self.forget()

    def forget(self) -> None:
        """Find out everything anew: the broker's options have changed."""
        self._body_max = self._options.message_bytes_max
        self._ways.clear()
        self._shapes.clear()
        fields = self._fields = self._sender.fields()
        self._id_front = offset_id_front(self._options.address)
        self._answers = {each: answer_maker(each, self._options.address, fields) for each in HeaderEncoding}

    def disconnected(self, session: Peer) -> None:
        """Forget what is known of a connection's requests."""
        self._ways.pop(session, None)

    def send(self, request: Frame, peer: Peer, now_ms: int) -> Frame | None:
        """Store the message of a frame; the answer. None, and nothing done, if the sender has to look at it."""
        posted = posted_of(request)
        if posted is None:
            return None
        ways = self._ways.setdefault(peer, {})
        way = ways.get(posted.rest)
        if way is None or way.table is not self._topics.table:
            way = self._learn_way(request, posted, peer, now_ms)
        placed = None if way is None else self._store(way, posted, request.body, now_ms)
        if placed is None:
            return None
        own = answer_fields(
            f"{self._id_front}{placed.offset:016X}", placed.queue_id, placed.queue_offset, placed.unique_id.decode()
        )
        return Frame(ResponseCode.SUCCESS, 0, ext_fields=self._fields | own)

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        """Store the plain messages at the front of `data[at:end]`, and answer; where the first other frame begins."""
        posted = read_posted(data, at, end)
        if posted is None:
            return at
        now_ms, ways = self._wall_ms(), self._ways.setdefault(session, {})
        answers: list[bytes] = []
        while posted is not None:
            way = ways.get(posted.rest)
            if way is None or way.table is not self._topics.table:
                found = next_frame(data, at, posted.end)
                way = None if found is None else self._learn_way(found[0], posted, session, now_ms)
                if way is None:
                    break
            placed = self._store(way, posted, data, now_ms)
            if placed is None:
                break
            if not way.is_one_way:
                answers.append(way.answer(*placed, posted.opaque))
            at = posted.end
            posted = read_posted(data, at, end)
        if answers:
            session.send_bytes(b"".join(answers))
        return at

    def _store(self, way: _Way, posted: Posted, data: Buffer, now_ms: int) -> _Placed | None:
        """Store a message; its place. None, and nothing done, if the sender has to look at it."""
        _, queue_id, born_ms, pieces, _, body_at, end = posted
        shape_names, values = tuple(pieces[:-1:2]), pieces[1::2]
        shape = self._shapes.get(shape_names, _UNKNOWN)
        if shape is _UNKNOWN:
            shape = self._learn_shape(shape_names)
        if shape is None or queue_id >= way.queues or end - body_at > self._body_max:
            return None
        properties = shape.template % shape.pick(values)
        if len(properties) > PROPERTIES_BYTES_MAX:
            return None
        unique_id = values[shape.unique_at]
        hashes, tags_code = [way.unique_keys.index_hash(unique_id)], 0
        topic, flag, system_flags, born_host, store_host, retried = way.message
        if shape.keys_at:
            keys = {name: values[at].decode() for name, at in shape.keys_at.items()}
            hashes += [index_hash(key) for key in message_index_keys(topic, keys)]
            tags_code = _tag_hash(keys.get("TAGS", ""))
        body = data[body_at:end]
        message = Message(
            topic, queue_id, flag, system_flags, born_ms, born_host, store_host, retried, 0, body, properties
        )
        try:
            offset, _, queue_offset, _ = self._arrivals.put_plain(message, now_ms, hashes, tags_code)
        except (DiskFull, TooLarge):
            return None
        return _Placed(offset, queue_id, queue_offset, unique_id)

    # -- what requests have in common

    def _learn_way(self, frame: Frame, posted: Posted, peer: Peer, now_ms: int) -> _Way | None:
        """Have a request looked at by the sender; None unless all that are like it are plain."""
        try:
            header = read_header(frame)
            if self._topics.get(header.topic) is None:
                return None
            sent = self._sender.check(frame, now_ms)
        except (FormatError, Refused):
            return None
        is_retry = header.topic.startswith(names.RETRY_PREFIX)
        if (
            is_retry
            or header.is_batch
            or frame.is_response
            or sum(map(len, filter(None, posted.rest))) > REST_BYTES_MAX
        ):
            return None
        made = self._sender.message(sent, header.topic, 0, peer.host, b"", b"")
        message = (made.topic, made.flag, made.system_flags, made.born_host, made.store_host, made.reconsume_times)
        queues = max(sent.topic.write_queue_nums, sent.topic.read_queue_nums)
        keys = HashedFront(index_key(header.topic, "").encode())
        answer = self._answers[frame.encoding]
        way = _Way(self._topics.table, queues, message, answer, frame.is_one_way, keys)
        ways = self._ways[peer]
        if len(ways) >= WAYS_MAX:
            ways.clear()
        ways[posted.rest] = way
        return way

    def _learn_shape(self, shape_names: tuple[bytes, ...]) -> _Shape | None:
        """Have the sender complete properties with these names."""
        if len(shape_names) > NAMES_MAX or sum(map(len, shape_names)) > NAMES_BYTES_MAX:
            return None
        if len(self._shapes) >= SHAPES_MAX:
            self._shapes.clear()
        shape = self._shapes[shape_names] = self._make_shape([name.decode() for name in shape_names])
        return shape

    def _make_shape(self, shape_names: list[str]) -> _Shape | None:
        if _UNIQUE not in shape_names or len(set(shape_names)) < len(shape_names) or SPECIAL.intersection(shape_names):
            return None
        # In the place of each value stands its number, until that is known where it goes.
        marked = encode_properties({name: f"\0{at}\0" for at, name in enumerate(shape_names)})
        completed = encode(self._sender.complete(marked.decode())).replace(b"%", b"%%")
        places = [int(number) for number in _MARK.findall(completed)]
        keys_at = {name: shape_names.index(name) for name in _KEYS if name in shape_names}
        return _Shape(_MARK.sub(b"%b", completed), _picker(places), shape_names.index(_UNIQUE), keys_at)


def _picker(places: list[int]) -> Callable[[list[bytes]], tuple[bytes, ...]]:
    """Make what takes the values at these places, in their order."""
    if len(places) == 1:
        (place,) = places
        return lambda values: (values[place],)
    return itemgetter(*places)
