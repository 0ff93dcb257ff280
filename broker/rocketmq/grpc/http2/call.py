"""Calls as a connection passes them to a service, and the limits on a peer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from broker.rocketmq.grpc.http2.wire import GrpcStatus, MessageReader

if TYPE_CHECKING:
    from broker.rocketmq.grpc.http2.session import GrpcSession

__all__ = ["Call", "Fields", "Limits", "Nuisances", "Service"]


Fields = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True)
class Limits:
    """The limits on a peer. `resets_max` and `controls_max` are per `period_ms`."""

    calls_max: int = 1_000
    headers_bytes_max: int = 16 << 10
    message_bytes_max: int = 16 << 20
    unread_bytes_max: int = 32 << 20
    stream_window: int = 1 << 20
    window: int = 8 << 20
    idle_ms: int = 120_000
    period_ms: int = 10_000
    resets_max: int = 500
    controls_max: int = 2_000


class Nuisances:
    """Counts, per period, useless events that cost work: cancelled calls, and frames."""

    __slots__ = ("_controls", "_period_ms", "_pings", "_resets", "_since_ms")

    def __init__(self, period_ms: int, now_ms: int) -> None:
        self._period_ms = period_ms
        self._since_ms = now_ms
        self._resets = self._controls = 0
        # gRPC libraries measure the round trip by a ping for received data.
        self._pings = 0

    def allow_ping(self, most: int) -> None:
        """Allow a ping for sent data; at most `most` may be open."""
        if self._pings < most:
            self._pings += 1

    def take_ping(self) -> bool:
        """Take a ping; return whether the peer may send it."""
        if not self._pings:
            return False
        self._pings -= 1
        return True

    def add_reset(self, now_ms: int) -> int:
        """Count a cancelled call; return their number in this period."""
        self._look(now_ms)
        self._resets += 1
        return self._resets

    def add_control(self, now_ms: int) -> int:
        self._look(now_ms)
        self._controls += 1
        return self._controls

    def _look(self, now_ms: int) -> None:
        if now_ms - self._since_ms > self._period_ms:
            self._since_ms = now_ms
            self._resets = self._controls = 0


class Service(Protocol):
    """The receiver of calls."""

    def begin(self, call: Call) -> None:
        """Handle a new call. Raises `GrpcError` to refuse it."""
        ...

    def message(self, call: Call, data: bytes) -> None:
        """Handle one of its messages. Raises `GrpcError` to end it."""
        ...

    def half_closed(self, call: Call) -> None:
        """Note that it has no more messages. Raises `GrpcError` to end it."""
        ...

    def cancelled(self, call: Call) -> None:
        """Note that the client no longer awaits the answer."""
        ...

    def disconnected(self, session: GrpcSession) -> None:
        """Note that the connection is closed, after `cancelled` for its open calls."""
        ...


class Call:
    """A call of a client. `headers` are its metadata; `until_ms` is its deadline, by the session's clock.

    `kept_bytes` is the size of messages that the service keeps until the last one.
    """

    __slots__ = (
        "_session",
        "begins",
        "half_closed",
        "headers",
        "is_over",
        "kept_bytes",
        "output",
        "reader",
        "stream_id",
        "trailers",
        "unread_bytes",
        "until_ms",
    )

    def __init__(
        self, session: GrpcSession, stream_id: int, headers: dict[str, str], reader: MessageReader, until_ms: int | None
    ) -> None:
        self._session = session
        self.stream_id = stream_id
        self.headers = headers
        self.reader = reader
        # Its share of the session's bytes that wait for the rest of their messages or calls.
        self.kept_bytes = self.unread_bytes = 0
        self.until_ms = until_ms
        self.half_closed = False
        self.is_over = False
        # Output without room in the peer's window; whether headers come before it; and what follows it.
        self.begins = False
        self.output: bytearray | None = None
        self.trailers: Fields | None = None

    @property
    def method(self) -> str:
        return self.headers[":path"]

    @property
    def session(self) -> GrpcSession:
        return self._session

    def bound_messages(self, bytes_max: int) -> None:
        self.reader.bytes_max = min(self.reader.bytes_max, bytes_max)

    def send(self, data: bytes) -> None:
        """Send a message, unless the call is over."""
        self._session.send(self, data)

    def answer(self, data: bytes) -> None:
        """Send the last message, and end the call, unless it is over."""
        self._session.answer(self, data)

    def finish(self, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """End the call, unless it is over."""
        self._session.finish(self, status, text)
