"""The broker of this process, asked by frames as over a connection of the remoting protocol, without a socket.

What the broker sends goes through the same gate as with other connections: with SYNC_FLUSH, answers come when the disk
has what they are about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from broker.rocketmq.grpc.backend import Done
from broker.rocketmq.remoting.session import Gate, Service, Session
from formats.rocketmq.codes import ResponseCode
from formats.rocketmq.frame import Frame, FrameFlag, next_frame
from formats.rocketmq.hosts import Host
from formats.rocketmq.versions import VERSION

__all__ = ["Loopback"]

_INT_MAX: Final = 0x7FFFFFFF

_RESPONSE: Final = int(FrameFlag.RESPONSE)


class Loopback:
    """A client's requests to the broker. `changed` is told that `deliver` has something to do.

    `asked` takes what the broker asks of the client, and returns whether the client is there to be asked that; `failed`
    takes the session of which a request failed by a fault.
    """

    def __init__(
        self,
        number: int,
        host: Host,
        service: Service,
        gate: Gate | None,
        changed: Callable[[Loopback], None],
        now_ms: Callable[[], int],
        asked: Callable[[Frame], bool],
        failed: Callable[[Session, Exception], None],
    ) -> None:
        self._service = service
        self._session = Session(number, host, service, lambda _: changed(self), now_ms, gate)
        self._asked = asked
        self._failed = failed
        self._waiting: dict[int, Done] = {}
        self._opaque = 0
        self._is_ended = False

    @property
    def is_over(self) -> bool:
        """Return whether the broker has ended the connection, or it was ended by `end`."""
        return self._session.finished

    def ask(self, broker: str, frame: Frame, done: Done, wait_ms: int = 0) -> None:
        """Ask the broker; see `backend.Link`. There is one only, and it answers as long as it is there."""
        if self._session.finished:
            return
        self._opaque = self._opaque + 1 & _INT_MAX
        self._waiting[self._opaque] = done
        self._receive(frame._replace(opaque=self._opaque, version=VERSION))

    def join(self, frame: Frame, producer_groups: Collection[str], done: Done) -> None:
        """Send the client's heartbeat, by which the broker knows its groups."""
        self.ask("", frame, done)

    def _receive(self, frame: Frame) -> None:
        try:
            self._service.receive(frame, self._session)
        except Exception as error:
            # As with connections of other clients, what the broker has of this one may be half done.
            self._failed(self._session, error)

    def deliver(self) -> None:
        """Hand on what the broker has sent."""
        data = memoryview(bytes(self._session.take_output()))
        at, end = 0, len(data)
        while (found := next_frame(data, at, end, end)) is not None:
            frame, at = found
            if not frame.is_response:
                self._take_question(frame)
                continue
            done = self._waiting.pop(frame.opaque, None)
            if done is not None:
                done(frame)

    def _take_question(self, frame: Frame) -> None:
        if not self._asked(frame) and not frame.is_one_way and not self._session.finished:
            text = f"clients that speak gRPC are not asked this ({frame.code})"
            self._receive(Frame(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, frame.opaque, _RESPONSE, text))

    def end(self) -> None:
        """End it: the broker forgets the client. What was asked has failed."""
        if self._is_ended:
            return
        self._is_ended = True
        self._session.end()
        waiting, self._waiting = self._waiting, {}
        for opaque, done in waiting.items():
            done(Frame(ResponseCode.SYSTEM_ERROR, opaque, _RESPONSE, "the client is gone"))
