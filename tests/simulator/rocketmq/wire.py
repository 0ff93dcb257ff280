"""A client's connection to a simulated process, without a network between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.rocketmq.remoting.session import Session
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag, HeaderEncoding, encode_frame, next_frame
from formats.rocketmq.remoting.signature import signed

__all__ = ["Answered", "Connection", "name_of"]

CLIENT_VERSION = 493

# Takes the answer to a request; None if there will be none.
Answered = Callable[[Frame | None], None]


class Connection:
    """One connection. `asked` takes the requests of the broker."""

    def __init__(self, session: Session, encoding: HeaderEncoding, asked: Callable[[Frame], None]) -> None:
        self.session = session
        self.outgoing = bytearray()
        # The broker reads nothing of it before this time.
        self.held_until_ms = 0
        # When nothing was held back last.
        self.free_ms = 0
        # The user, with its password, that signs requests.
        self.user: tuple[str, str] | None = None
        self._encoding = encoding
        self._asked = asked
        self._waiting: dict[int, Answered] = {}
        self._opaque = 0

    @property
    def waiting(self) -> int:
        """The number of requests without an answer."""
        return len(self._waiting)

    def ask(self, code: RequestCode, fields: dict[str, Any], answered: Answered | None, body: bytes = b"") -> None:
        """Send a request with the next step; without `answered`, one that wants no answer."""
        self._opaque += 1
        flag = FrameFlag.ONE_WAY if answered is None else 0
        named = {name: str(value) for name, value in fields.items()}
        frame = Frame(
            code, self._opaque, flag, ext_fields=named, body=body, version=CLIENT_VERSION, encoding=self._encoding
        )
        self.outgoing += encode_frame(frame if self.user is None else signed(frame, *self.user))
        if answered is not None:
            self._waiting[self._opaque] = answered

    def deliver(self, size: int) -> None:
        """Let the process read a number of bytes."""
        taken = self.session.receive(memoryview(bytes(self.outgoing[:size])))
        del self.outgoing[:taken]

    def read(self) -> None:
        """Take what the process has sent."""
        view, at = memoryview(bytes(self.session.take_output())), 0
        while (found := next_frame(view, at, len(view))) is not None:
            frame, at = found
            if frame.is_response:
                self._waiting.pop(frame.opaque)(frame)
            else:
                self._asked(frame)

    def lost(self) -> None:
        """The process is gone: nobody will answer."""
        waiting, self._waiting = self._waiting, {}
        for answered in waiting.values():
            answered(None)


def name_of(body: bytes | bytearray | memoryview) -> str:
    """The name of the message that has this body."""
    return bytes(body).partition(b" ")[0].decode()
