"""Answers of nameservers and brokers other than success."""

from __future__ import annotations

from formats.rocketmq.codes import ResponseCode
from formats.rocketmq.frame import Frame

__all__ = ["RequestRefused", "check_answer", "code_name"]


class RequestRefused(Exception):
    """An answer other than success; the text says which."""

    def __init__(self, what: str, answer: Frame) -> None:
        super().__init__(f"{what}: {code_name(answer.code)}{f', {answer.remark}' if answer.remark else ''}")
        self.code = answer.code


def code_name(code: int) -> str:
    """The original's name of an answer's code."""
    return ResponseCode(code).name if code in ResponseCode.__members__.values() else f"code {code}"


def check_answer(what: str, answer: Frame) -> None:
    """Raise `RequestRefused` unless an answer is success."""
    if answer.code != ResponseCode.SUCCESS:
        raise RequestRefused(what, answer)
