"""The messages that a broker sends while its role changes."""

from __future__ import annotations

from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame


class Sender:
    """A connection that keeps the answers it is given, and the reasons for which it is given up."""

    host = Host("127.0.0.1", 1)

    def __init__(self) -> None:
        self.answers: list[Frame] = []
        self.reasons: list[str] = []

    def answer(self, request: Frame, answer: Frame) -> None:
        self.answers.append(answer)

    def ask(self, request: Frame, *, one_way: bool = False) -> int:
        return 0

    def give_up(self, reason: str) -> None:
        self.reasons.append(reason)


def sent(properties: str = "", code: RequestCode = RequestCode.SEND_MESSAGE_V2, flag: int = 0) -> Frame:
    field = "properties" if code == RequestCode.SEND_MESSAGE else "i"
    return Frame(code, 1, flag, ext_fields={field: properties}, body=b"body")


STORED = Frame(ResponseCode.SUCCESS, 0, ext_fields={"msgId": "id"})
