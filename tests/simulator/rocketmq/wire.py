"""A client's connection to a simulated process, without a network between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.rocketmq.node import Node
from broker.rocketmq.remoting.session import Session
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag, HeaderEncoding, encode_frame, next_frame
from formats.rocketmq.remoting.signature import signed

__all__ = ["Answered", "Connection", "name_of"]

CLIENT_VERSION = 493

# Requests whose fields have short names, among them that of the broker.
_SHORT = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)

# Takes the answer to a request; None if there will be none.
Answered = Callable[[Frame | None], None]


class Connection:
    """One connection to a `node`. `asked` takes the requests of the broker, which a proxy finds by its name."""

    def __init__(
        self, node: Node, session: Session, encoding: HeaderEncoding, asked: Callable[[Frame], None], broker: str = ""
    ) -> None:
        self.node = node
        self.session = session
        # A request has failed on its way from the proxy: the client connects again.
        self.is_over = False
        self._broker = broker
        self._doubtful: set[int] = set()
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
        if self._broker:
            named["n" if code in _SHORT else "bname"] = self._broker
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
                is_lost = frame.opaque in self._doubtful and frame.code == ResponseCode.SYSTEM_ERROR
                self.is_over |= is_lost
                self._waiting.pop(frame.opaque)(None if is_lost else frame)
            else:
                self._asked(frame)

    def doubt(self) -> None:
        """Note that requests under way may be lost between the proxy and the broker."""
        self._doubtful |= self._waiting.keys()

    def lost(self) -> None:
        """The process is gone: nobody will answer."""
        waiting, self._waiting = self._waiting, {}
        for answered in waiting.values():
            answered(None)


def name_of(body: bytes | bytearray | memoryview) -> str:
    """The name of the message that has this body."""
    return bytes(body).partition(b" ")[0].decode()
