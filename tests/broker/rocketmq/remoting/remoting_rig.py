"""A request table that echoes, and frames for it."""

from __future__ import annotations

from broker.rocketmq.remoting.session import Session
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame, next_frame


class Echo:
    """A service that answers with the request's body, and remembers who has gone."""

    def __init__(self) -> None:
        self.got: list[Frame] = []
        self.gone: list[Session] = []

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        return at

    def receive(self, frame: Frame, session: Session) -> None:
        self.got.append(frame._replace(body=bytes(frame.body)))
        session.answer(frame, Frame(ResponseCode.SUCCESS, 0, body=frame.body))

    def disconnected(self, session: Session) -> None:
        self.gone.append(session)


def frames(data: bytes | bytearray) -> list[Frame]:
    view, at = memoryview(bytes(data)), 0
    found = []
    while (parsed := next_frame(view, at, len(view))) is not None:
        frame, at = parsed
        found.append(frame)
    assert at == len(view)
    return found
