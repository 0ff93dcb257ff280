"""A peer that speaks RocketMQ's remoting protocol over a blocking socket, frame by frame."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, Self

from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag, HeaderEncoding, encode_frame, next_frame
from tests.waiting import WAIT_S

__all__ = ["Remote"]


class Remote:
    """A connection to a broker or a nameserver. `asked` are its requests."""

    def __init__(
        self,
        port: int,
        encoding: HeaderEncoding = HeaderEncoding.JSON,
        host: str = "127.0.0.1",
        timeout_s: float = WAIT_S,
    ) -> None:
        self.sock = socket.create_connection((host, port), timeout_s)
        self.encoding = encoding
        self.asked: list[Frame] = []
        self._answers: dict[int, Frame] = {}
        self._data = b""
        self._opaque = 0

    def ask(self, code: RequestCode, body: bytes = b"", **fields: Any) -> int:
        """Send a request; return the number of its answer."""
        self._opaque += 1
        named = {name.rstrip("_"): str(value) for name, value in fields.items()}
        self.sock.sendall(encode_frame(Frame(code, self._opaque, ext_fields=named, body=body, encoding=self.encoding)))
        return self._opaque

    def call(self, code: RequestCode, body: bytes = b"", **fields: Any) -> Frame:
        return self.answer(self.ask(code, body, **fields))

    def answer(self, opaque: int) -> Frame:
        while opaque not in self._answers:
            self.read()
        return self._answers.pop(opaque)

    def wait_asked(self, code: RequestCode) -> Frame:
        while not (found := [frame for frame in self.asked if frame.code == code]):
            self.read()
        self.asked.remove(found[0])
        return found[0]

    def read(self) -> None:
        """Read more. Raises `EOFError` if the connection is closed."""
        data = self.sock.recv(1 << 20)
        if not data:
            raise EOFError
        view, at = memoryview(self._data + data), 0
        while (found := next_frame(view, at, len(view))) is not None:
            frame, at = found
            if frame.flag & FrameFlag.RESPONSE:
                self._answers[frame.opaque] = frame
            else:
                self.asked.append(frame)
        self._data = bytes(view[at:])

    def send_message(self, topic: str, body: bytes, queue_id: int = 0, properties: str = "") -> Frame:
        return self.call(
            RequestCode.SEND_MESSAGE_V2,
            body,
            a="group",
            b=topic,
            c="TBW102",
            d=4,
            e=queue_id,
            f=0,
            g=1_700_000_000_000,
            h=0,
            i=properties,
        )

    def pull(self, topic: str, offset: int = 0, queue_id: int = 0, wait_ms: int = 0) -> int:
        """Ask for messages of a queue; return the number of the answer."""
        return self.ask(
            RequestCode.PULL_MESSAGE,
            consumerGroup="group",
            topic=topic,
            queueId=queue_id,
            queueOffset=offset,
            maxMsgNums=32,
            sysFlag=6 if wait_ms else 4,
            commitOffset=0,
            suspendTimeoutMillis=wait_ms,
            subscription="*",
            subVersion=1,
        )

    def commit(self, topic: str, queue_id: int, offset: int) -> Frame:
        """Commit a group's offset; a pull makes the group first, as no commit does."""
        self.answer(self.pull(topic, 0, queue_id))
        return self.call(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup="group",
            topic=topic,
            queueId=queue_id,
            commitOffset=offset,
        )

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()
