"""Calls that wait for the authentication of their callers, and their messages meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from broker.rocketmq.grpc.http2.call import Call
from broker.rocketmq.grpc.http2.wire import GrpcError, GrpcStatus

__all__ = ["Held", "HeldCalls"]

# Maximum sizes of the messages of one call, which has one or is a stream of small ones, and of all calls.
_MESSAGES_MAX: Final = 16
_BYTES_MAX: Final = 64 << 20


@dataclass(slots=True, eq=False)
class Held:
    """A waiting call: its messages, and whether it is half closed."""

    messages: list[bytes] = field(default_factory=list)
    is_half_closed: bool = False


class HeldCalls:
    def __init__(self) -> None:
        self._calls: dict[Call, Held] = {}
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._calls)

    def begin(self, call: Call) -> None:
        self._calls[call] = Held()

    def keep(self, call: Call, data: bytes) -> bool:
        """Keep a message of a call; return False if it does not wait. Raises `GrpcError` beyond the limits."""
        held = self._calls.get(call)
        if held is None:
            return False
        if len(held.messages) >= _MESSAGES_MAX or self._bytes + len(data) > _BYTES_MAX:
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, "too much input waits for the check of its caller")
        held.messages.append(data)
        self._bytes += len(data)
        return True

    def half_close(self, call: Call) -> bool:
        """Note that a call has no more messages; return False if it does not wait."""
        held = self._calls.get(call)
        if held is not None:
            held.is_half_closed = True
        return held is not None

    def end(self, call: Call) -> Held | None:
        """Remove a call, and return its messages; None if it does not wait."""
        held = self._calls.pop(call, None)
        if held is not None:
            self._bytes -= sum(map(len, held.messages))
        return held
