"""Reads the header fields of a call, checked by RFC 9113 (8.2, 8.3).

`h2` checks each character of each field. Clients repeat the same names, so here names are checked once, and all values
together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["BadHeaders", "HeaderReader"]

_KNOWN_MAX: Final = 64
_NAME: Final = re.compile(rb":?[!-9;-@\[-~]+")
_PSEUDO: Final = frozenset((b":method", b":scheme", b":path", b":authority", b":protocol"))
# Connection-specific in HTTP/1.1.
_FORBIDDEN: Final = frozenset((b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"))


class BadHeaders(ValueError):
    """Fields that are invalid in a request."""


class HeaderReader:
    """The reader of the fields of one connection's calls."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], tuple[str, ...]] = {}

    def read(self, fields: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
        """Return values by name; the last one of a repeated name. Raises `BadHeaders`."""
        names, contents = zip(*fields, strict=True) if fields else ((), ())
        known = self._known.get(names)
        if known is None:
            known = _checked(names)
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[names] = known
        text = b"\n".join((b"", *contents, b"")).decode("latin-1")
        values = text.split("\n")[1:-1]
        if len(values) != len(names) or "\r" in text or "\0" in text:
            raise BadHeaders("an illegal character in the value of a header field")
        if "\n " in text or " \n" in text or "\n\t" in text or "\t\n" in text:
            raise BadHeaders("the value of a header field begins or ends with a blank")
        headers = dict(zip(known, values, strict=True))
        _check_values(headers)
        return headers


def _checked(names: tuple[bytes, ...]) -> tuple[str, ...]:
    """Return the names as text. Raises `BadHeaders` for invalid names, or for their order."""
    pseudo: set[bytes] = set()
    is_behind = False
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise BadHeaders(f"{name[:80]!r} is no name of a header field")
        if name[0] != ord(":"):
            is_behind = True
            if name in _FORBIDDEN:
                raise BadHeaders(f"the header field {name!r} is none of HTTP/2")
        elif name not in _PSEUDO or name in pseudo or is_behind:
            raise BadHeaders(f"the header field {name[:80]!r} is unknown, repeated, or not at the beginning")
        else:
            pseudo.add(name)
    if b":method" not in pseudo:
        raise BadHeaders("a request without a method")
    if b":authority" not in pseudo and b"host" not in names:
        raise BadHeaders("a request without an authority")
    if names.count(b"host") > 1:
        raise BadHeaders("a request with two hosts")
    return tuple(name.decode("ascii") for name in names)


def _check_values(headers: dict[str, str]) -> None:
    is_connect, has_protocol = headers[":method"] == "CONNECT", ":protocol" in headers
    if has_protocol and not is_connect:
        raise BadHeaders("a protocol in a request other than CONNECT")
    if (has_protocol or not is_connect) and not (headers.get(":path") and ":scheme" in headers):
        raise BadHeaders("a request without a path or a scheme")
    if headers.get("te", "trailers").lower() != "trailers":
        raise BadHeaders("a transfer encoding that is none of HTTP/2")
    if ":authority" in headers and headers.get("host", headers[":authority"]) != headers[":authority"]:
        raise BadHeaders("a request with a host other than its authority")
