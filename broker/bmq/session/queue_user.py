# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The other end of a link, a client or a broker below, as a user of this node's queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from broker.bmq.queue.handles import Handle
from broker.bmq.queue.queue_requests import QueueRequests
from broker.bmq.session.outbox import Outbox
from formats.bmq.codes import EncodingType, EventType
from formats.bmq.control import codec
from formats.bmq.control.messages import ControlMessage
from formats.bmq.wire.ack import ACK_HEADER_BYTES, pack_ack, pack_acks
from formats.bmq.wire.event import build_schema_event

__all__ = ["PUSH_BYTES_HIGH", "QueueUser"]

# A consumer with this much unsent output gets no more messages until the output is sent.
PUSH_BYTES_HIGH: Final = 4 << 20

_ACK: Final = EventType.ACK


class QueueUser:
    """The part of a `broker.bmq.core.messages.Sink` and `Poster` that all users share.

    `requests` are its requests about queues, and `handles` its open queues. `wake` is called when the link's outbox
    `out` has output. `fail` closes the link after this step, if output could not be prepared.
    """

    requests: QueueRequests
    handles: dict[int, Handle]

    def __init__(
        self, description: str, out: Outbox, wake: Callable[[], None], fail: Callable[[Exception], None]
    ) -> None:
        self.description = description
        self.encoding = EncodingType.BER  # of its requests, and of their answers
        self.ready = self.has_room = True
        self._held = False
        self._out = out
        self._wake = wake
        self._fail = fail

    def fail(self, error: Exception) -> None:
        self.block()
        self._fail(error)

    def block(self) -> None:
        self.ready = self.has_room = False

    def hold(self) -> None:
        """Stop pushing messages that are to be confirmed: this node is about to stop."""
        self._held = True
        self.ready = False

    def output_sent(self) -> None:
        self.has_room = True
        if not (self.ready or self._held):
            self.ready = True
            for handle in list(self.handles.values()):
                handle.resume()

    def reply(self, request: ControlMessage, choice: object) -> None:
        answer = ControlMessage(r_id=request.r_id, choice=choice)  # type: ignore[arg-type]
        self._out.whole(build_schema_event(codec.encode(answer, self.encoding), EventType.CONTROL, self.encoding))
        self._wake()

    def acknowledge(self, queue_id: int, correlation_id: int, guid: bytes, status: int) -> None:
        out = self._out.event(_ACK, ACK_HEADER_BYTES)
        out += pack_ack(status, correlation_id, guid, queue_id)
        self._wake()

    def acknowledge_kept(self, queue_id: int, correlation_id: int, guids: Sequence[bytes]) -> None:
        out = self._out.event(_ACK, ACK_HEADER_BYTES)
        out += pack_acks(0, correlation_id, guids, queue_id)
        self._wake()
