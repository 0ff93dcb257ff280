# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A fast path for plain messages, with the same result as `sending.Sender`.

It is an inline cache in three levels, filled by the sender's first result of each kind. A `_RequestTemplate` is for
requests with nearly the same header (`formats.rocketmq.fast.send_frames`): whether the topic is writable, and the
record's other fields. A `_PropertyTemplate` is for messages with the same names of properties: the added ones, and the
stored order of all. A `_MessageTemplate` is the whole result, for messages that differ only in their unique ids.

All messages that a connection has delivered are stored together. The sender handles every other request: delayed
messages, transactions, retries, batches, properties without a value, any fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import itemgetter
from typing import Final

from broker.rocketmq.remoting.requests import Peer, Refused
from broker.rocketmq.remoting.session import Session
from broker.rocketmq.sending.arrivals import Arrivals
from broker.rocketmq.sending.sending import SPECIAL, Sender, read_header
from broker.rocketmq.store.writing import Common, PlainMessage
from broker.rocketmq.tables import names
from broker.rocketmq.tables.options import BrokerOptions
from broker.rocketmq.tables.properties import encode
from broker.rocketmq.tables.topics import Topics
from formats.errors import FormatError
from formats.rocketmq.fast.send_forms import PostedForm, form_of
from formats.rocketmq.fast.send_frames import (
    AnswerMaker,
    Posted,
    PostedRest,
    answer_fields,
    answer_maker,
    frame_place,
    json_header,
    offset_id_front,
    posted_of,
    read_posted,
)
from formats.rocketmq.files.index import index_key, message_index_keys
from formats.rocketmq.java import HashedFront, index_hash, tag_hash
from formats.rocketmq.properties import encode_properties
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame, HeaderEncoding, next_frame
from formats.schema import Buffer

__all__ = ["PlainSender"]

# The maxima of a connection; further requests take the slow path.
WAYS_MAX: Final = 64
FORMS_MAX: Final = 4
SHAPES_MAX: Final = 256
NAMES_MAX: Final = 32
NAMES_BYTES_MAX: Final = 1024
REST_BYTES_MAX: Final = 2048
PROPERTIES_BYTES_MAX: Final = 0x7FFF
_UNIQUE: Final = "UNIQ_KEY"
_KEYS: Final[tuple[str, ...]] = ("KEYS", "TAGS")
_MARK: Final = re.compile(rb"\x00(\d+)\x00")


class _PropertyTemplate:
    """Properties with the same names in the same order: the places of the values in the stored properties."""

    __slots__ = ("keys_at", "pick", "template", "unique_at")

    def __init__(
        self,
        template: bytes,
        pick: Callable[[list[bytes]], tuple[bytes, ...]],
        unique_at: int,
        keys_at: dict[str, int],
    ) -> None:
        self.template = template
        self.pick = pick
        self.unique_at = unique_at
        # By name, the places of the values that make other keys of the index.
        self.keys_at = keys_at


class _RequestTemplate:
    """Requests of one connection that are alike except for queue, time, properties and number.

    It is valid while the broker's topics have this edition.
    """

    __slots__ = ("answer", "common", "edition", "is_one_way", "queues", "unique_keys")

    def __init__(
        self, edition: object, queues: int, common: Common, answer: AnswerMaker, is_one_way: bool, topic: str
    ) -> None:
        self.edition = edition
        self.queues = queues
        self.common = common
        self.answer = answer
        self.is_one_way = is_one_way
        self.unique_keys = HashedFront(index_key(topic, "").encode())


class _MessageTemplate:
    """Requests of a way whose properties differ only in the unique id."""

    __slots__ = ("before_id", "behind_id", "hashes", "posted", "tags_code", "way")

    def __init__(self, way: _RequestTemplate, posted: PostedForm, row: PlainMessage, unique_id: bytes) -> None:
        self.way = way
        self.posted = posted
        # The end of the records, without the id.
        _, _, _, _, record_end, hashes, self.tags_code = row
        self.before_id, _, self.behind_id = record_end.partition(unique_id)
        # The hashes of the other keys.
        self.hashes = list(hashes[1:])


class _ConnectionCache:
    """The ways and forms of a connection, and the common fields of its last message without a form."""

    __slots__ = ("forms", "last", "ways")

    def __init__(self) -> None:
        self.ways: dict[PostedRest, _RequestTemplate] = {}
        self.forms: list[_MessageTemplate] = []
        self.last: tuple[PostedRest, list[bytes]] | None = None


# A message at the front of a connection's input, its template, its unique id and number, and the end of its request. A
# plain tuple, as one is made for each message.
_Accepted = tuple[PlainMessage, _RequestTemplate, bytes, bytes, int]


_UNKNOWN: Final = _PropertyTemplate(b"", tuple, 0, {})


class PlainSender:
    """Stores plain messages: from the front of a connection's input, or in frames."""

    def __init__(
        self, options: BrokerOptions, topics: Topics, arrivals: Arrivals, sender: Sender, wall_ms: Callable[[], int]
    ) -> None:
        self._topics = topics
        self._arrivals = arrivals
        self._sender = sender
        self._wall_ms = wall_ms
        self._options = options
        self._known: dict[Peer, _ConnectionCache] = {}
        self._shapes: dict[tuple[bytes, ...], _PropertyTemplate | None] = {}
        self.forget()

    def forget(self) -> None:
        self._body_max = self._options.message_bytes_max
        self._known.clear()
        self._shapes.clear()
        fields = self._fields = self._sender.fields()
        self._id_front = offset_id_front(self._options.address)
        self._answers = {each: answer_maker(each, self._options.address, fields) for each in HeaderEncoding}

    def disconnected(self, session: Peer) -> None:
        self._known.pop(session, None)

    def send(self, request: Frame, peer: Peer, now_ms: int) -> Frame | None:
        """Store the message of a frame; return the answer, or None, with nothing done, if the sender must handle it."""
        posted = posted_of(request)
        if posted is None:
            return None
        known = self._known.setdefault(peer, _ConnectionCache())
        way = known.ways.get(posted.rest)
        if way is None or way.edition is not self._topics.kept.edition:
            way = self._learn_way(request, posted, peer, known, now_ms)
        shape = None if way is None else self._shape(posted)
        message = None if way is None or shape is None else self._message(way, shape, posted, request.body)
        places = [] if message is None else self._arrivals.put_all([message], now_ms)
        if shape is None or not places:
            return None
        (offset, _, queue_offset) = places[0]
        unique_id = posted.properties[shape.unique_at].decode()
        own = answer_fields(f"{self._id_front}{offset:016X}", posted.queue_id, queue_offset, unique_id)
        return Frame(ResponseCode.SUCCESS, 0, ext_fields=self._fields | own)

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        """Store and answer plain messages at the front of `data[at:end]`; return where the first other frame begins."""
        known = self._known.get(session)
        if known is None:
            place = frame_place(data, at, end)
            if place is None or read_posted(data, at, place) is None:
                return at
            known = self._known[session] = _ConnectionCache()
        now_ms = self._wall_ms()
        accepted = self._read(known, data, at, end, session, now_ms)
        if not accepted:
            return at
        answers: list[bytes] = []
        places = self._arrivals.put_all([message for message, _, _, _, _ in accepted], now_ms)
        for (offset, _, queue_offset), (message, way, unique_id, number, _) in zip(places, accepted, strict=False):
            if not way.is_one_way:
                answers.append(way.answer(offset, message[1], queue_offset, unique_id, number))
        if answers:
            session.send_bytes(b"".join(answers))
        return accepted[len(places) - 1][4] if places else at

    def _read(
        self, known: _ConnectionCache, data: memoryview, at: int, end: int, session: Session, now_ms: int
    ) -> list[_Accepted]:
        accepted: list[_Accepted] = []
        edition = self._topics.kept.edition
        if known.forms and known.forms[0].way.edition is not edition:
            known.forms.clear()
        while at < end:
            place = frame_place(data, at, end)
            if place is None:
                break
            header = json_header(data, at, place) if known.forms else None
            if header is not None:
                _, body_at, frame_end = place
                found_form = self._read_form(known, header, data[body_at:frame_end], frame_end)
                if found_form is not None:
                    accepted.append(found_form)
                    at = frame_end
                    continue
            posted = read_posted(data, at, place)
            if posted is None:
                break
            way = known.ways.get(posted.rest)
            if way is None or way.edition is not edition:
                found = next_frame(data, at, posted.end)
                way = None if found is None else self._learn_way(found[0], posted, session, known, now_ms)
            shape = None if way is None else self._shape(posted)
            if way is None or shape is None:
                break
            message = self._message(way, shape, posted, data)
            if message is None:
                break
            unique_id = posted.properties[shape.unique_at]
            accepted.append((message, way, unique_id, posted.opaque, posted.end))
            self._learn_form(known, way, shape, posted, message)
            at = posted.end
        return accepted

    def _read_form(self, known: _ConnectionCache, header: bytes, body: memoryview, end: int) -> _Accepted | None:
        """Read a message that has one of the forms; return None if it has none."""
        for form in known.forms:
            read = form.posted.read(header)
            if read is not None:
                queue_id, born_ms, unique_id, number = read
                way = form.way
                if queue_id >= way.queues or len(body) > self._body_max:
                    return None
                hashes = [way.unique_keys.index_hash(unique_id)]
                if form.hashes:
                    hashes += form.hashes
                record_end = form.before_id + unique_id + form.behind_id
                message = (way.common, queue_id, born_ms, body, record_end, hashes, form.tags_code)
                return message, way, unique_id, number, end
        return None

    def _shape(self, posted: Posted) -> _PropertyTemplate | None:
        """Return the shape of a message's properties; None if the sender must handle it."""
        shape_names = tuple(posted.properties[:-1:2])
        shape = self._shapes.get(shape_names, _UNKNOWN)
        return self._learn_shape(shape_names) if shape is _UNKNOWN else shape

    def _message(
        self, way: _RequestTemplate, shape: _PropertyTemplate, posted: Posted, data: Buffer
    ) -> PlainMessage | None:
        """Make the message to be stored. None if the sender must handle it."""
        _, queue_id, born_ms, pieces, _, body_at, end = posted
        values = pieces[1::2]
        if queue_id >= way.queues or end - body_at > self._body_max:
            return None
        properties = shape.template % shape.pick(values)
        if len(properties) > PROPERTIES_BYTES_MAX:
            return None
        hashes, tags_code = [way.unique_keys.index_hash(pieces[shape.unique_at])], 0
        if shape.keys_at:
            keys = {name: values[at].decode() for name, at in shape.keys_at.items()}
            hashes += [index_hash(key) for key in message_index_keys(way.common.topic, keys)]
            tags_code = tag_hash(keys.get("TAGS", ""))
        record_end = way.common.record_end(properties)
        return way.common, queue_id, born_ms, data[body_at:end], record_end, hashes, tags_code

    # -- common parts of requests

    def _learn_form(
        self,
        known: _ConnectionCache,
        way: _RequestTemplate,
        shape: _PropertyTemplate,
        posted: Posted,
        message: PlainMessage,
    ) -> None:
        """Cache the form of a message if the one before it had the same: more are likely."""
        rest = posted.properties[: shape.unique_at] + posted.properties[shape.unique_at + 1 :]
        last, known.last = known.last, (posted.rest, rest)
        if last is None or last[0] != posted.rest or last[1] != rest:
            return
        unique_id = posted.properties[shape.unique_at]
        form = form_of(posted, shape.unique_at)
        # The id is in the same place in each record of the form, and there only.
        if form is None or message[4].count(unique_id) != 1:
            return
        if len(known.forms) >= FORMS_MAX:
            known.forms.pop()
        known.forms.insert(0, _MessageTemplate(way, form, message, unique_id))

    def _learn_way(
        self, frame: Frame, posted: Posted, peer: Peer, known: _ConnectionCache, now_ms: int
    ) -> _RequestTemplate | None:
        """Have the sender handle a request; return its way, or None unless all requests like it are plain."""
        try:
            header = read_header(frame)
            if self._topics.get(header.topic) is None or not self._topics.kept.is_stored(header.topic):
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
        common = Common(self._sender.message(sent, header.topic, 0, peer.host, b"", b""))
        queues = max(sent.topic.write_queue_nums, sent.topic.read_queue_nums)
        answer = self._answers[frame.encoding]
        way = _RequestTemplate(self._topics.kept.edition, queues, common, answer, frame.is_one_way, header.topic)
        if len(known.ways) >= WAYS_MAX:
            known.ways.clear()
        known.ways[posted.rest] = way
        return way

    def _learn_shape(self, shape_names: tuple[bytes, ...]) -> _PropertyTemplate | None:
        if len(shape_names) > NAMES_MAX or sum(map(len, shape_names)) > NAMES_BYTES_MAX:
            return None
        if len(self._shapes) >= SHAPES_MAX:
            self._shapes.clear()
        shape = self._shapes[shape_names] = self._make_shape([name.decode() for name in shape_names])
        return shape

    def _make_shape(self, shape_names: list[str]) -> _PropertyTemplate | None:
        if _UNIQUE not in shape_names or len(set(shape_names)) < len(shape_names) or SPECIAL.intersection(shape_names):
            return None
        # Each value is its own number, until its place is known.
        marked = encode_properties({name: f"\0{at}\0" for at, name in enumerate(shape_names)})
        completed = encode(self._sender.complete(marked.decode())).replace(b"%", b"%%")
        places = [int(number) for number in _MARK.findall(completed)]
        keys_at = {name: shape_names.index(name) for name in _KEYS if name in shape_names}
        return _PropertyTemplate(
            _MARK.sub(b"%b", completed), _picker(places), 2 * shape_names.index(_UNIQUE) + 1, keys_at
        )


def _picker(places: list[int]) -> Callable[[list[bytes]], tuple[bytes, ...]]:
    if len(places) == 1:
        (place,) = places
        return lambda values: (values[place],)
    return itemgetter(*places)
