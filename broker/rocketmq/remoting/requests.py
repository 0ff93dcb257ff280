"""Interfaces between the parts of a broker: requests and their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from formats.rocketmq.files.record import Record
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import write_header
from formats.schema import Buffer

__all__ = [
    "LOG_END",
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
    "with_progress",
]

# The field of an answer with the end of the log.
LOG_END: Final = "logEnd"


class Peer(Protocol):
    """The client at the other end of a connection."""

    @property
    def host(self) -> Host: ...

    def answer(self, request: Frame, answer: Frame) -> None: ...

    def ask(self, request: Frame, *, one_way: bool = False) -> int:
        """Send it a request; return the number of its answer."""
        ...

    def give_up(self, reason: str) -> None: ...


class Request(NamedTuple):
    """A request, its sender and its time."""

    frame: Frame
    peer: Peer
    now_ms: int

    @property
    def fields(self) -> dict[str, str]:
        return self.frame.ext_fields or {}

    @property
    def body(self) -> Buffer:
        """The request's body, valid until the handler returns."""
        return self.frame.body


class Refused(Exception):
    """The code and the text of the answer to a refused request."""

    def __init__(self, code: ResponseCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


# Checks that the sender, at an address, may access the record whose log offset the request names.
CheckRecord = Callable[[Frame, str, Record], None]
# Carries out a request; returns its answer, or None if that comes later.
Handler = Callable[[Request], Frame | None]
Handlers = Mapping[int, Handler]


def success(header: tuple[Any, ...] | None = None, body: Buffer = b"") -> Frame:
    fields = None if header is None else write_header(header)
    return Frame(ResponseCode.SUCCESS, 0, ext_fields=fields, body=body)


def with_body(body: bytes) -> Frame:
    return Frame(ResponseCode.SUCCESS, 0, body=body)


def with_progress(body: bytes, log_end: int) -> Frame:
    """Return a successful answer about the progress in a log that ended at `log_end`.

    A slave takes it once its log reaches that end, and so has the messages meant. (The original does not state the end,
    and ignores it.)
    """
    return Frame(ResponseCode.SUCCESS, 0, ext_fields={LOG_END: str(log_end)}, body=body)


def failure(code: ResponseCode, remark: str) -> Frame:
    return Frame(code, 0, remark=remark)


def unstored(error: Exception) -> Frame:
    """Return the answer to a request whose change could not be stored, and was undone."""
    reason = error.strerror if isinstance(error, OSError) else None
    return failure(ResponseCode.SYSTEM_ERROR, f"the change cannot be stored: {reason or error}")
