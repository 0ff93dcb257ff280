"""The nameservers of the cluster: requests go to the first one that answers, until it fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from broker.rocketmq.grpc.brokers.backend import Done
from broker.rocketmq.grpc.statuses import NO_ANSWER, UNREACHABLE, not_asked
from broker.rocketmq.proxy.held_bytes import size_in_memory
from broker.rocketmq.proxy.wire import Wire
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame

__all__ = ["ProxyNameservers"]

_WAIT_MS: Final = 3_000
# Nameservers close a connection, which other clients share, for a request that is too large.
_HANDED_BYTES_MAX: Final = 64 << 10


class ProxyNameservers:
    """All nameservers, each of which knows all brokers. `seal` signs the proxy's own requests."""

    def __init__(self, wires: Sequence[Wire], seal: Callable[[Frame], Frame], now_ms: Callable[[], int]) -> None:
        self._wires = wires
        self._seal = seal
        self._now_ms = now_ms
        self._at = 0

    def ask(self, frame: Frame, done: Done) -> None:
        """Ask one, or the next if it is unreachable; `done` gets the answer, or the frame that replaces it."""
        self._ask(self._at, len(self._wires), self._seal(frame), done)

    def hand_on(self, frame: Frame, done: Done) -> None:
        """Pass on a client's request, with the client's signature, if any."""
        if size_in_memory(frame) > _HANDED_BYTES_MAX:
            done(not_asked(ResponseCode.SYSTEM_ERROR, "the request is too large for a nameserver"))
            return
        self._ask(self._at, len(self._wires), frame, done)

    def _ask(self, at: int, left: int, frame: Frame, done: Done) -> None:
        def answered(answer: Frame) -> None:
            if answer.code not in (NO_ANSWER, UNREACHABLE) or left == 1:
                done(answer)
                return
            following = (at + 1) % len(self._wires)
            if self._at == at:
                self._at = following
            self._ask(following, left - 1, frame, done)

        self._wires[at].ask(frame, self._now_ms() + _WAIT_MS, answered)

    def tick(self) -> None:
        for wire in self._wires:
            wire.expire(self._now_ms())

    def leave(self) -> None:
        for wire in self._wires:
            wire.leave()
