# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""One HTTP/1.1 connection that serves one page: the request is checked, and the response framed.

Strangers may connect, so a request's line and headers may take 8 KiB in all, a body is not read, and a connection
serves one request.
"""

from __future__ import annotations

from enum import Enum
from http import HTTPStatus
from typing import Final, NamedTuple

import h11

__all__ = ["HEAD_BYTES_MAX", "Asked", "Incomplete", "PageConnection", "Refused"]

HEAD_BYTES_MAX: Final = 8 << 10


class Incomplete(Enum):
    """The state of a connection whose request is incomplete."""

    WAITING = "more of the request is to come"
    GONE = "the peer is gone, or asks for nothing"


class Asked(NamedTuple):
    """A request for the page at `path`, without its query."""

    path: str


class Refused(NamedTuple):
    """A request that is answered with a status and a line with the reason."""

    status: HTTPStatus
    reason: str


class PageConnection:
    """The protocol of a connection. Pass at most `room` bytes to `receive` at a time."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self.room = HEAD_BYTES_MAX
        self._has_body = True

    def receive(self, data: bytes) -> Asked | Refused | Incomplete:
        self.room -= len(data)
        self._http.receive_data(data)
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            return Incomplete.GONE if not data else Refused(HTTPStatus(error.error_status_hint), str(error))
        if isinstance(event, h11.Request):
            self._has_body = event.method != b"HEAD"
            return _asked(event)
        if event is not h11.NEED_DATA:
            return Incomplete.GONE
        if self.room > 0:
            return Incomplete.WAITING
        return Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too long")

    def head(self, status: HTTPStatus, content_type: str) -> bytes:
        headers = [("Content-Type", content_type), ("Connection", "close"), ("Cache-Control", "no-store")]
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("Allow", "GET"))
        sent = self._http.send(h11.Response(status_code=status, headers=headers, reason=status.phrase.encode()))
        assert sent is not None
        return sent

    def body(self, piece: bytes) -> bytes:
        """Frame a piece of the response's body; b"" if the request's method forbids one."""
        if not self._has_body:
            return b""
        sent = self._http.send(h11.Data(data=piece))
        assert sent is not None
        return sent

    def end(self) -> bytes:
        return self._http.send(h11.EndOfMessage()) or b""


def _asked(request: h11.Request) -> Asked | Refused:
    if request.http_version not in (b"1.0", b"1.1"):
        return Refused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "this is HTTP/1.1")
    if request.method != b"GET":
        return Refused(HTTPStatus.METHOD_NOT_ALLOWED, "pages can only be asked for with GET")
    # h11 has checked that the target is of visible ASCII characters.
    return Asked(request.target.decode("ascii").partition("?")[0])
