"""Requests as the parts of a broker take them, and the answers that they give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from formats.rocketmq.files.record import Record
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import write_header
from formats.schema import Buffer

__all__ = [
    "CheckRecord",
    "Handler",
    "Handlers",
    "Peer",
    "Refused",
    "Request",
    "failure",
    "success",
    "unstored",
    "with_body",
]


class Peer(Protocol):
    """The client at the other end of a connection."""

    @property
    def host(self) -> Host:
        """The address that it comes from."""
        ...

    def answer(self, request: Frame, answer: Frame) -> None:
        """Answer one of its requests."""
        ...

    def ask(self, request: Frame, *, one_way: bool = False) -> int:
        """Send it a request; the number that its answer will have."""
        ...

    def give_up(self, reason: str) -> None:
        """Close the connection."""
        ...


class Request(NamedTuple):
    """A request, who sent it and when."""

    frame: Frame
    peer: Peer
    now_ms: int

    @property
    def fields(self) -> dict[str, str]:
        """The fields of its header."""
        return self.frame.ext_fields or {}

    @property
    def body(self) -> Buffer:
        """The request's body, valid until the handler returns."""
        return self.frame.body


class Refused(Exception):
    """A request that is not carried out: the code of the answer, and its text."""

    def __init__(self, code: ResponseCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


# Checks that the sender of a request, at an address, may have the record at the place in the log that it names.
CheckRecord = Callable[[Frame, str, Record], None]
# Carries out a request; its answer, or None if that comes later.
Handler = Callable[[Request], Frame | None]
Handlers = Mapping[int, Handler]


def success(header: tuple[Any, ...] | None = None, body: Buffer = b"") -> Frame:
    """The answer to a request that was carried out."""
    fields = None if header is None else write_header(header)
    return Frame(ResponseCode.SUCCESS, 0, ext_fields=fields, body=body)


def with_body(body: bytes) -> Frame:
    """The answer that has a body and no header of its own."""
    return Frame(ResponseCode.SUCCESS, 0, body=body)


def failure(code: ResponseCode, remark: str) -> Frame:
    """The answer to a request that was not carried out."""
    return Frame(code, 0, remark=remark)


def unstored(error: Exception) -> Frame:
    """Return the answer to a request whose change could not be stored, and was undone."""
    reason = error.strerror if isinstance(error, OSError) else None
    return failure(ResponseCode.SYSTEM_ERROR, f"the change cannot be stored: {reason or error}")
