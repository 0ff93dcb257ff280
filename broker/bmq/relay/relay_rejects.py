# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Rejected messages at a relay, whose upstream counts the attempts, too."""

from __future__ import annotations

import logging
from typing import Final

from broker.bmq.core.messages import Message
from broker.bmq.queue.rejects import RejectingQueue, Rejects
from broker.bmq.queue.routing import App, Stream
from broker.bmq.relay.confirms import Confirms
from broker.bmq.relay.handles.client_handles import ClientHandles
from broker.bmq.relay.upstream import UpstreamState
from formats.bmq.wire.event import EventType
from formats.bmq.wire.reject import REJECT_HEADER_BYTES, pack_reject

__all__ = ["RelayRejects"]

log: Final = logging.getLogger("broker.relay")

_OPEN: Final = UpstreamState.OPEN


class RelayRejects(Rejects):
    """The rejects of one queue, each of which is sent up. `limit` is the highest number of attempts that came down."""

    __slots__ = ("_confirms", "_opens", "limit")

    def __init__(self, source: RejectingQueue, opens: ClientHandles, confirms: Confirms) -> None:
        super().__init__(source)
        self._opens = opens
        self._confirms = confirms
        self.limit: int | None = None

    @property
    def attempts_max(self) -> int | None:
        return self.limit

    def count(self, app: App, guid: bytes, attempts_max: int) -> int:
        """Send a reject up, before its consumer's end; return the number of attempts left."""
        opens = self._opens
        consumer, upstream = opens.consumers.get(app.app_id), opens.upstream
        if opens.state is _OPEN and consumer is not None and upstream is not None:
            try:
                out = upstream.event(EventType.REJECT, REJECT_HEADER_BYTES)
                out += pack_reject(opens.queue_id, guid, consumer.sub_id)
            except Exception as error:
                upstream.fail(error)
        return super().count(app, guid, attempts_max)

    def give_up(self, app: App, sub_queue_id: int, message: Message, attempts_max: int) -> None:
        """Drop a message whose last attempt has failed.

        The upstream also gets a confirm: if it did not get all rejects, it would wait for one.
        """
        self.finish(app, message)
        if self._opens.state is not _OPEN or message.arrived_ms <= self._opens.found_ms:
            self._confirms.send(app.app_id, (message.guid,))

    def tell(self, stream: Stream, guid: bytes, left: int) -> None:
        log.info(
            "[THROTTLED] Queue '%s' rejecting PUSH [GUID: '%s', subQueueId: %d] with the counter: [%d]",
            self._source.uri,
            guid.hex().upper(),
            stream.sub_queue_id,
            left,
        )
