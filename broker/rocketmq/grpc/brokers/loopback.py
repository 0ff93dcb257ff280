"""The broker of this process, asked by remoting frames without a socket.

Frames are passed in both directions without encoding. The broker's answers pass the same gate as on other connections:
with SYNC_FLUSH, they come once the disk has the messages concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

from broker.rocketmq.grpc.brokers.backend import Done
from broker.rocketmq.remoting.session import OUTPUT_BYTES_MAX, Service, Session
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag, next_frame
from formats.rocketmq.remoting.versions import VERSION

__all__ = ["FrameGate", "Loopback", "SaidBytes"]

_INT_MAX: Final = 0x7FFFFFFF

_RESPONSE: Final = int(FrameFlag.RESPONSE)

# Maximum of `SaidBytes.number`; beyond it, requests are refused.
_SAID_BYTES_MAX: Final = 64 << 20
_BUSY: Final = "the broker is busy with the answers to other requests"


class SaidBytes:
    """The size of all clients' answers that are not passed on yet."""

    def __init__(self) -> None:
        self.number = 0


class FrameGate(Protocol):
    """Decides when the broker's answers may be passed on; see `broker.rocketmq.flush_gate`."""

    def take(self, holder: Loopback, data: list[Frame]) -> list[Frame]:
        """Return the frames that may be passed on at once; the rest goes to `Loopback.pass_on` later."""
        ...


class _Client(Session):
    def __init__(
        self,
        number: int,
        host: Host,
        service: Service,
        changed: Callable[[Session], None],
        now_ms: Callable[[], int],
        heard: Callable[[Frame], None],
    ) -> None:
        super().__init__(number, host, service, changed, now_ms)
        self._heard = heard

    def send(self, frame: Frame) -> None:
        if not self.finished:
            self._heard(frame)

    def send_bytes(self, data: bytes) -> None:
        view, at, end = memoryview(data), 0, len(data)
        while (found := next_frame(view, at, end, end)) is not None:
            frame, at = found
            self.send(frame)


class Loopback:
    """A client's requests to the broker. `changed` is called when `deliver` has work.

    `asked` takes the broker's requests to the client, and returns whether the client can be asked; `failed` gets the
    session of a request that failed by a fault.
    """

    def __init__(
        self,
        number: int,
        host: Host,
        service: Service,
        gate: FrameGate | None,
        changed: Callable[[Loopback], None],
        now_ms: Callable[[], int],
        asked: Callable[[Frame], bool],
        failed: Callable[[Session, Exception], None],
    ) -> None:
        self._service = service
        self._gate = gate
        self._changed = changed
        self._session = _Client(number, host, service, lambda _: changed(self), now_ms, self._hear)
        # The broker's answers of this step, and answers that have passed the gate later.
        self._said: list[Frame] = []
        self._said_bytes = 0
        # The answers to all clients that share this object, and to this one.
        self.all_said = SaidBytes()
        self._kept_bytes = 0
        self._passed: list[Frame] = []
        self._asked = asked
        self._failed = failed
        self._waiting: dict[int, Done] = {}
        self._opaque = 0
        self._has_asked = self._is_ended = False

    @property
    def is_over(self) -> bool:
        return self._session.finished

    def ask(self, broker: str, frame: Frame, done: Done, wait_ms: int = 0) -> None:
        """Ask the broker; see `backend.Link`. There is only one, which answers until the connection ends."""
        if self._session.finished:
            return
        self._opaque = self._opaque + 1 & _INT_MAX
        self._waiting[self._opaque] = done
        if self.all_said.number > _SAID_BYTES_MAX:
            self._hear(Frame(ResponseCode.SYSTEM_BUSY, self._opaque, _RESPONSE, _BUSY))
            return
        code, _, flag, remark, fields, body, language, _, encoding = frame
        self._receive(Frame(code, self._opaque, flag, remark, fields, body, language, VERSION, encoding))

    def join(self, frame: Frame, producer_groups: Collection[str], done: Done) -> None:
        """Send the client's heartbeat, by which the broker knows its groups."""
        self.ask("", frame, done)

    def _receive(self, frame: Frame) -> None:
        self._has_asked = True
        try:
            self._service.receive(frame, self._session)
        except Exception as error:
            # As on other connections, the broker's state of this client may be incomplete.
            self._failed(self._session, error)

    def _hear(self, frame: Frame) -> None:
        if frame.body:
            # The body may be a view that is valid only during this call.
            frame = frame._replace(body=memoryview(bytes(frame.body)))
            self._said_bytes += len(frame.body)
            self._keep(len(frame.body))
            if self._said_bytes > OUTPUT_BYTES_MAX:
                self._session.give_up(f"it was sent {self._said_bytes} bytes at once")
                return
        self._said.append(frame)
        self._changed(self)

    def pass_on(self, data: list[Frame], held_size: int) -> None:
        if not self._session.finished:
            self._passed += data
            self._changed(self)

    def deliver(self) -> bool:
        """Pass on the broker's answers; return whether that led to new requests."""
        self._has_asked = False
        said, self._said, self._said_bytes = self._said, [], 0
        if self._session.finished:
            said = []
        if said and self._gate is not None:
            said = self._gate.take(self, said)
        passed, self._passed = self._passed, []
        for frame in (*passed, *said):
            self._keep(-len(frame.body))
            if not frame.is_response:
                self._take_question(frame)
                continue
            done = self._waiting.pop(frame.opaque, None)
            if done is not None:
                done(frame)
        return self._has_asked

    def _keep(self, size: int) -> None:
        if not self._is_ended:
            self._kept_bytes += size
            self.all_said.number += size

    def _take_question(self, frame: Frame) -> None:
        if not self._asked(frame) and not frame.is_one_way and not self._session.finished:
            text = f"clients that speak gRPC are not asked this ({frame.code})"
            self._receive(Frame(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, frame.opaque, _RESPONSE, text))

    def end(self) -> None:
        """End the connection: the broker forgets the client. Open requests have failed."""
        if self._is_ended:
            return
        self._keep(-self._kept_bytes)
        self._is_ended = True
        self._session.end()
        waiting, self._waiting = self._waiting, {}
        for opaque, done in waiting.items():
            done(Frame(ResponseCode.SYSTEM_ERROR, opaque, _RESPONSE, "the client is gone"))
