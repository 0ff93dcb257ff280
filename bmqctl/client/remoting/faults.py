"""The exceptions of requests to nameservers and brokers, and answers other than success."""

from __future__ import annotations

from typing import Final

from bmqctl.client.remoting.link import LinkLost, NoAnswer
from formats.errors import FormatError
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame

__all__ = ["FAULTS", "NotWritable", "RequestRefused", "check_answer", "code_name", "words_of"]


class RequestRefused(Exception):
    """An answer other than success; the text says which."""

    def __init__(self, what: str, answer: Frame) -> None:
        super().__init__(f"{what}: {code_name(answer.code)}{f', {answer.remark}' if answer.remark else ''}")
        self.code = answer.code


class NotWritable(RequestRefused):
    """A topic that its brokers have, but without a writable queue."""

    def __init__(self, topic: str) -> None:
        remark = "no broker has a queue of it that can be written: set its permission to 6, with write queues"
        super().__init__(f"topic {topic} takes no messages", Frame(ResponseCode.NO_PERMISSION, 0, remark=remark))


def code_name(code: int) -> str:
    return ResponseCode(code).name if code in ResponseCode.__members__.values() else f"code {code}"


def check_answer(what: str, answer: Frame) -> None:
    """Raise `RequestRefused` unless an answer is success."""
    if answer.code != ResponseCode.SUCCESS:
        raise RequestRefused(what, answer)


FAULTS: Final = (OSError, LinkLost, NoAnswer, RequestRefused, FormatError)


def words_of(fault: Exception) -> str:
    return (fault.strerror or str(fault)) if isinstance(fault, OSError) else str(fault)
