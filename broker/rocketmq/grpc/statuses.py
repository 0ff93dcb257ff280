"""The status that every answer has (source: ResponseBuilder, GrpcProxyException)."""

from __future__ import annotations

from typing import Final

from formats.rocketmq.codes import ResponseCode
from formats.rocketmq.frame import Frame
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.grpc.messages import Message, make

__all__ = ["OK", "Rejected", "joint", "rejection", "status"]

_CODES: Final[dict[int, Code]] = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
}


class Rejected(Exception):
    """A call that is not carried out: the code of the answer, and its text."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def status(code: Code, text: str | None = None) -> Message:
    """Make a status; without a text, it has the name of the code."""
    return make("Status", code=int(code), message=code.name if text is None else text)


OK: Final = status(Code.OK)


def rejection(answer: Frame) -> Rejected:
    """Make what says that the broker has not carried out a request."""
    return Rejected(_CODES.get(answer.code, Code.INTERNAL_SERVER_ERROR), answer.remark or str(int(answer.code)))


def joint(codes: set[int], nothing: str) -> Message:
    """Make the status of an answer with several results; `nothing` is the text if there are none."""
    if not codes:
        return status(Code.INTERNAL_SERVER_ERROR, nothing)
    return status(Code(next(iter(codes))) if len(codes) == 1 else Code.MULTIPLE_RESULTS)
