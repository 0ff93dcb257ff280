"""Requests of the broker to clients, and the handlers of their answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.rocketmq.remoting.requests import Peer
from formats.rocketmq.remoting.frame import Frame

__all__ = ["CALL_MS", "Calls"]

CALL_MS: Final = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    until_ms: int
    done: Callable[[Frame | None], None]


class Calls:
    """The unanswered requests to clients."""

    def __init__(self) -> None:
        self._open: dict[Peer, dict[int, _Call]] = {}

    def call(self, peer: Peer, request: Frame, now_ms: int, done: Callable[[Frame | None], None]) -> None:
        """Ask a client; `done` gets its answer, whose body is a view, or None after CALL_MS."""
        opaque = peer.ask(request)
        self._open.setdefault(peer, {})[opaque] = _Call(now_ms + CALL_MS, done)

    def answered(self, peer: Peer, answer: Frame) -> bool:
        """Handle an answer; return False if it answers no request."""
        calls = self._open.get(peer)
        call = None if calls is None else calls.pop(answer.opaque, None)
        if calls is not None and not calls:
            del self._open[peer]
        if call is not None:
            call.done(answer)
        return call is not None

    def expire(self, now_ms: int) -> None:
        for peer, calls in list(self._open.items()):
            for opaque in [opaque for opaque, call in calls.items() if call.until_ms <= now_ms]:
                calls.pop(opaque).done(None)
            if not calls:
                self._open.pop(peer, None)

    def disconnected(self, peer: Peer) -> None:
        for call in self._open.pop(peer, {}).values():
            call.done(None)
