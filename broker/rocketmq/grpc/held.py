"""Calls that wait until it is known who makes them, and what came of them meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from broker.rocketmq.grpc.http2.call import Call
from broker.rocketmq.grpc.http2.wire import GrpcError, GrpcStatus

__all__ = ["Held", "HeldCalls"]

# The bounds on the messages of one call, which has one or is a stream of small ones, and on those of all calls.
_MESSAGES_MAX: Final = 16
_BYTES_MAX: Final = 64 << 20


@dataclass(slots=True, eq=False)
class Held:
    """A call that waits: its messages, and whether there are no more."""

    messages: list[bytes] = field(default_factory=list)
    is_half_closed: bool = False


class HeldCalls:
    """The calls. False where there are none."""

    def __init__(self) -> None:
        self._calls: dict[Call, Held] = {}
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._calls)

    def begin(self, call: Call) -> None:
        """Take note of a call."""
        self._calls[call] = Held()

    def keep(self, call: Call, data: bytes) -> bool:
        """Keep a message of a call; False if that one does not wait. Raises `GrpcError` if too much would wait."""
        held = self._calls.get(call)
        if held is None:
            return False
        if len(held.messages) >= _MESSAGES_MAX or self._bytes + len(data) > _BYTES_MAX:
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, "too much waits until it is known who calls")
        held.messages.append(data)
        self._bytes += len(data)
        return True

    def half_close(self, call: Call) -> bool:
        """Note that a call has no more messages; False if that one does not wait."""
        held = self._calls.get(call)
        if held is not None:
            held.is_half_closed = True
        return held is not None

    def end(self, call: Call) -> Held | None:
        """Forget a call; what came of it, or None if it does not wait."""
        held = self._calls.pop(call, None)
        if held is not None:
            self._bytes -= sum(map(len, held.messages))
        return held
