# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A broker's links to possible upstreams of its relays, and the dispatch of their messages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from broker.bmq.core.messages import Message
from broker.bmq.links.links import OwnLinks
from broker.bmq.links.requests import REQUEST_TIMEOUT_MS, Answered, Requests
from broker.bmq.queue.routing import App
from broker.bmq.relay.confirms import LeftConfirms
from broker.bmq.relay.relay import RelayQueue
from broker.bmq.session.outbox import Outbox
from broker.bmq.session.posting import RUN_BYTES_MAX
from broker.bmq.store.chunked import FULL
from broker.common.clock import Now
from broker.common.faults import Inconsistent
from formats.bmq.codes import CompressionAlgorithm
from formats.bmq.control.messages import OpenQueue
from formats.bmq.padding import WORD
from formats.bmq.wire.ack import ack_runs
from formats.bmq.wire.event import EventType, Frame
from formats.bmq.wire.options import SubQueueInfo, sub_queue_infos
from formats.bmq.wire.push import PUSH_HEADER, PushFlag, iter_pushes

__all__ = ["PeerUpstream", "RelayLinks"]

log: Final = logging.getLogger("broker.relay")

OPTIONS_BYTES_SHORT: Final = 64

QUEUE_ID_MAX: Final = (1 << 31) - 1

_WORDS_MASK: Final = PUSH_HEADER.mask("message_words")
_ZLIB: Final = int(CompressionAlgorithm.ZLIB) << 5
_SIZE: Final = PUSH_HEADER.size
_PLAIN: Final = PUSH_HEADER.size // WORD
_PROPERTIES: Final = int(PushFlag.MESSAGE_PROPERTIES)
_QUEUE_ID_AT: Final = PUSH_HEADER.offset("queue_id")
_GUID_AT: Final = PUSH_HEADER.offset("guid")
_SCHEMA_ID_AT: Final = PUSH_HEADER.offset("schema_id")

_queue_id: Final = PUSH_HEADER.word("queue_id").unpack_from
_word: Final = PUSH_HEADER.word("message_words").unpack_from
_schema_id: Final = PUSH_HEADER.word("schema_id").unpack_from


class PushForm:
    """The common parts of consecutive messages: `before` and `after` the GUID, as in the event, and their meaning.

    `size` is that of the whole message, in bytes.
    """

    __slots__ = ("_options", "after", "before", "compression", "flags", "schema_id", "size")

    def __init__(self, options: bytes) -> None:
        self.before = self.after = b""
        self.size = self.flags = self.compression = self.schema_id = 0
        self._options = options

    def read(self, raw: bytes, at: int) -> bool:
        """Take the form of the message whose header and options begin at `at`; return False if it is not a common one.

        A common form has the expected options, and differs from the form before at most in size, compression,
        properties and their schema.
        """
        words: int
        sizes: int
        (words,) = _word(raw, at)
        (sizes,) = _word(raw, at + WORD)
        options = self._options
        before = raw[at : at + _GUID_AT]
        after = raw[at + _SCHEMA_ID_AT : at + _SIZE + len(options)]
        size = (words & _WORDS_MASK) * WORD
        if (
            sizes & ~_ZLIB != len(options) // WORD << 8 | _PLAIN
            or words >> 28 & ~_PROPERTIES
            or size <= _SIZE + len(options)
            or (self.before and before[_QUEUE_ID_AT:] != self.before[_QUEUE_ID_AT:])
            or after[_SIZE - _SCHEMA_ID_AT :] != options
        ):
            return False
        self.before, self.after = before, after
        self.size, self.flags, self.compression = size, words >> 28, sizes >> 5 & 7
        schema_id: int
        (schema_id,) = _schema_id(after)
        self.schema_id = schema_id
        return True


def _one_app(relay: RelayQueue, raw: bytes, at: int, end: int) -> tuple[App, bytes] | None:
    """Return the only app of the message at `at`, and the message's options; None if it needs more work.

    The app has one group and awaits messages.
    """
    if relay.broadcast or end - at <= _SIZE:
        return None
    sizes: int
    (sizes,) = _word(raw, at + WORD)
    body = at + _SIZE + (sizes >> 8) * WORD
    if end <= body:
        return None
    options = raw[at + _SIZE : body]
    app = relay.arrivals.only_app(_infos(options))
    if app is None or app.only is None or app.redelivery or app.pending or app.is_behind or app.attempts:
        return None
    return app, options


def hand_out(relay: RelayQueue, raw: bytes, at: int, end: int) -> int:
    """Deliver a run of the messages of `raw[at:end]` to their only app; return the offset of the first left.

    The run ends before a message that needs anything else. Consecutive messages differ in little: the bytes around the
    GUID are compared with the previous message's, and read only where they differ.
    """
    found = _one_app(relay, raw, at, end)
    if found is None:
        return at
    app, options = found
    payload_at = _SIZE + len(options)
    messages, bit, now_ms = relay.messages, app.bit, relay.now.ms
    newest, older = messages.newest, messages.older
    number = first = relay.arrivals.pushed
    size = 0
    form = PushForm(options)
    run: list[Message] = []
    payloads: list[bytes] = []
    try:
        while end - at > payload_at and size <= RUN_BYTES_MAX:
            body = at + payload_at
            is_other = raw[at : at + _GUID_AT] != form.before or raw[at + _SCHEMA_ID_AT : body] != form.after
            if is_other:
                if not form.read(raw, at):
                    break
                form.schema_id = relay.arrivals.schema(form.schema_id)
            message_end = at + form.size
            if message_end > end:
                break
            padding = raw[message_end - 1]
            body_end = message_end - padding
            guid = raw[at + _GUID_AT : at + _SCHEMA_ID_AT]
            if not 1 <= padding <= WORD or body_end <= body or guid in newest or (older and guid in messages):
                break
            message = Message(guid, body_end - body, 0, form.compression, form.flags != 0, form.schema_id, bit, now_ms)
            newest[guid] = message
            number += 1
            message.offset = number
            message.payload = payload = raw[body:body_end]
            run.append(message)
            payloads.append(payload)
            size += body_end - body
            at = message_end
        if len(newest) >= FULL:
            messages.turn()
        relay.arrivals.pushed = number
        app.messages += number - first
        app.bytes += size
        relay.usage.add(size, number - first)
        if len(run) < 2 or not relay.delivery.send_run(run, payloads, size, app):
            for message, payload in zip(run, payloads, strict=True):
                relay.arrivals.give(app, message, payload)
    except Exception as error:
        raise Inconsistent(f"handing out messages of queue '{relay.uri}'", error) from error
    return at


@lru_cache(maxsize=1024)
def _known_infos(options: bytes) -> list[SubQueueInfo]:
    return sub_queue_infos(memoryview(options))


def _infos(options: bytes | memoryview) -> list[SubQueueInfo]:
    is_short = len(options) <= OPTIONS_BYTES_SHORT
    return _known_infos(bytes(options)) if is_short else sub_queue_infos(memoryview(options))


class PeerUpstream:
    """The link to an upstream broker, for one queue; see `broker.bmq.relay.upstream.Upstream`."""

    def __init__(self, links: RelayLinks, node_id: int, queue_id: int) -> None:
        self.node_id = node_id
        self._queue_id = queue_id
        self.description = f"node {node_id}"
        self._relay_links = links

    @property
    def is_up(self) -> bool:
        return self._relay_links.links.is_up(self.node_id)

    @property
    def takes_early(self) -> bool:
        return self._relay_links.links.takes_early(self.node_id)

    def request(self, choice: object, answered: Answered) -> int:
        try:
            # After everything queued for that node.
            self._relay_links.send_to(self.node_id)
            # No time limit for opens: a node without an upstream keeps a request for any time, and may then grant it.
            # An open that is taken for lost would be made twice.
            timeout_ms = None if isinstance(choice, OpenQueue) else REQUEST_TIMEOUT_MS
            return self._relay_links.requests.send(self.node_id, choice, answered, timeout_ms)
        except Exception as error:
            self.fail(error)
            return 0

    def event(self, kind: EventType, head: bytes = b"") -> bytearray:
        return self._relay_links.outbox(self.node_id).event(kind, head)

    def knows_opens(self) -> None:
        self._relay_links.reopened(self._queue_id)

    def fail(self, error: Exception) -> None:
        self._relay_links.links.fail(self.node_id, error)


class RelayLinks:
    """The links and relays; `relays` are by their queue ids upstream. Outboxes are sent with `send_to` or `send_all`.

    `cluster_name` is for the log.
    """

    def __init__(self, links: OwnLinks, requests: Requests, cluster_name: str, now: Now) -> None:
        self.links = links
        self.requests = requests
        self.left = LeftConfirms(now)
        self.relays: dict[int, RelayQueue] = {}
        self._cluster_name = cluster_name
        self._reopening: set[int] = set()  # relays that open their handles at a new upstream
        self._direct: dict[int, Callable[[], Outbox]] = {}
        self._outboxes: dict[int, Outbox] = {}
        self._dirty: set[int] = set()
        self._last_queue_id = -1

    @property
    def reopening(self) -> int:
        """Number of relays whose upstream does not know all their opens yet."""
        return len(self._reopening)

    def next_queue_id(self) -> int:
        while True:
            # The wire's numbers are signed: after very many, free ones are reused.
            self._last_queue_id = (self._last_queue_id + 1) & QUEUE_ID_MAX
            if self._last_queue_id not in self.relays:
                return self._last_queue_id

    def remove(self, relay: RelayQueue) -> bool:
        self._reopening.discard(relay.queue_id)
        return self.relays.pop(relay.queue_id, None) is not None

    def begin(self, relay: RelayQueue) -> None:
        relay.confirms.inherit(self.left.take(relay.uri))

    def end(self, relay: RelayQueue) -> None:
        self.left.keep(relay.uri, relay.confirms.leave())

    def found(self, relay: RelayQueue, node_id: int) -> None:
        if not relay.openings.is_unused:
            self._reopening.add(relay.queue_id)
        relay.found(PeerUpstream(self, node_id, relay.queue_id))

    def lost(self, relay: RelayQueue) -> None:
        self._reopening.discard(relay.queue_id)
        relay.lost()

    def reopened(self, queue_id: int) -> None:
        if queue_id in self._reopening:
            self._reopening.discard(queue_id)
            if not self._reopening:
                # The text is the reference's: programs wait for it in the log.
                log.info("Cluster (%s): state restored", self._cluster_name)

    def node_up(self, node_id: int) -> Outbox:
        outbox = self._outboxes[node_id] = Outbox()
        return outbox

    def link_up(self, node_id: int, outbox: Callable[[], Outbox]) -> None:
        """Register a node reachable by a link whose `outbox` is sent with the step.

        Nothing has to precede its output, which need not be buffered here.
        """
        self._direct[node_id] = outbox

    def node_down(self, node_id: int) -> None:
        self._direct.pop(node_id, None)
        self._outboxes.pop(node_id, None)
        self._dirty.discard(node_id)

    def outbox(self, node_id: int) -> Outbox:
        direct = self._direct.get(node_id)
        if direct is not None:
            return direct()
        self._dirty.add(node_id)
        return self._outboxes[node_id]

    def wake(self, node_id: int) -> None:
        self._dirty.add(node_id)

    def send_to(self, node_id: int) -> None:
        self._dirty.discard(node_id)
        outbox = self._outboxes.get(node_id)
        if outbox is not None and outbox.size:
            self.links.send(node_id, outbox.take())

    def send_all(self) -> None:
        for node_id in list(self._dirty):
            self.send_to(node_id)

    def on_ack(self, node_id: int, data: memoryview, frame: Frame) -> None:
        """Handle acks of posts. Raises FormatError."""
        for queue_id, status, guids in ack_runs(data, frame.body, frame.end):
            relay = self._relay(node_id, queue_id)
            if relay is not None:
                relay.posts.on_acks(guids, status)

    def on_push(self, node_id: int, data: memoryview, frame: Frame) -> None:
        """Handle messages from an upstream. Raises FormatError."""
        raw = bytes(data[frame.body : frame.end])
        at, end = 0, len(raw)
        while end - at >= _GUID_AT:
            relay = self._relay(node_id, _queue_id(raw, at + _QUEUE_ID_AT)[0])
            start = at
            if relay is not None:
                at = hand_out(relay, raw, at, end)
            if at == start:
                break
        if at == end:
            return
        for push in iter_pushes(memoryview(raw), at, end):
            relay = self._relay(node_id, push.queue_id)
            if relay is not None:
                relay.arrivals.on_push(push, _infos(push.options))

    def _relay(self, node_id: int, queue_id: int) -> RelayQueue | None:
        relay = self.relays.get(queue_id)
        upstream = None if relay is None else relay.opens.upstream
        return relay if isinstance(upstream, PeerUpstream) and upstream.node_id == node_id else None
