"""The status that every answer has (source: ResponseBuilder, GrpcProxyException)."""

from __future__ import annotations

from typing import Final

from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.grpc.messages import Message, make
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag

__all__ = [
    "NO_ANSWER",
    "NO_BROKER",
    "OK",
    "UNREACHABLE",
    "CallRejected",
    "joint",
    "not_asked",
    "rejection",
    "status",
    "topic_not_found",
]

# Codes of frames in place of a broker's answer: it was late, the broker cannot be reached or was lost, or no broker has
# the name. No broker sends codes below 0.
NO_ANSWER: Final = -101
UNREACHABLE: Final = -102
NO_BROKER: Final = -103
_RESPONSE: Final = int(FrameFlag.RESPONSE)

_CODES: Final[dict[int, Code]] = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.LMQ_QUOTA_EXCEEDED: Code.LITE_TOPIC_QUOTA_EXCEEDED,
    ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
    NO_ANSWER: Code.PROXY_TIMEOUT,
    UNREACHABLE: Code.INTERNAL_SERVER_ERROR,
    NO_BROKER: Code.INTERNAL_SERVER_ERROR,
}


class CallRejected(Exception):
    """The code and the text of the answer to a refused call."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def status(code: Code, text: str | None = None) -> Message:
    return make("Status", code=code.value, message=code.name if text is None else text)


OK: Final = status(Code.OK)
_ALL_WELL: Final = {int(Code.OK)}


def topic_not_found(name: str) -> CallRejected:
    return CallRejected(Code.TOPIC_NOT_FOUND, f"No topic route info in name server for the topic: {name}")


def not_asked(code: int, text: str) -> Frame:
    """Make the frame in place of a broker's answer, with a code from here or from `ResponseCode`."""
    return Frame(code, 0, _RESPONSE, text)


def rejection(answer: Frame) -> CallRejected:
    return CallRejected(_CODES.get(answer.code, Code.INTERNAL_SERVER_ERROR), answer.remark or f"{answer.code:d}")


def joint(codes: set[int], nothing: str) -> Message:
    """Make the status of an answer with several results; `nothing` is the text for none."""
    if codes == _ALL_WELL:
        return OK
    if not codes:
        return status(Code.INTERNAL_SERVER_ERROR, nothing)
    return status(Code(next(iter(codes))) if len(codes) == 1 else Code.MULTIPLE_RESULTS)
