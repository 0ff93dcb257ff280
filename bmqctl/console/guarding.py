"""The guard before the console's application: it refuses the attacks of a hostile page in the person's browser.

- A request must name one of the console's hosts: a foreign name that resolves to this machine does not reach it (DNS
  rebinding).
- A request to `/api/`, or for a change, must come from the console's own pages, according to `Sec-Fetch-Site` and
  `Origin`.
  A change also needs the session's token in a header, which `application` checks.
- Pages may only load and request what the console itself serves, run no inline script, and may not be framed by other
  pages.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, MutableMapping
from http import HTTPStatus
from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HEADERS", "PageGuard", "host_of", "is_loopback"]

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_SAFE: Final = frozenset({"GET", "HEAD"})
_API: Final = "/api/"
# RFC 3986: an IPv6 address in brackets, or a name, and a port.
_HOST: Final = re.compile(
    r"(?:\[(?P<address>[0-9a-f]*:[0-9a-f:.]+)\]|(?P<name>[^\s\[\]:/?#@\\]+))(?::[0-9]{0,5})?", re.IGNORECASE
)
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Return True for an address that only this machine reaches."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_of(header: str) -> str:
    """The name or address in a `Host` header without its port; "" for an invalid header."""
    found = _HOST.fullmatch(header)
    return "" if found is None else (found["address"] or found["name"]).lower()


class PageGuard:
    """Passes on requests of the console's own pages. `hosts` are names besides the loopback interface's."""

    def __init__(self, application: ASGIApp, hosts: Iterable[str]) -> None:
        self._application = application
        self._hosts = _LOOPBACK_NAMES | {each.lower().strip("[]") for each in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        application = self._refusal(scope["method"], scope["path"], Headers(scope=scope)) or self._application

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_headers(message)
            await send(message)

        await application(scope, receive, send_guarded)

    def _refusal(self, method: str, path: str, headers: Headers) -> ASGIApp | None:
        host = headers.get("host", "")
        if host_of(host) not in self._hosts:
            return PlainTextResponse(
                f"This console is not known as {host[:100]!r}: start it with --allow-host to add a name.\n",
                HTTPStatus.MISDIRECTED_REQUEST,
            )
        if (method not in _SAFE or path.startswith(_API)) and not _is_own(headers, host):
            return PlainTextResponse("The request comes from another page.\n", HTTPStatus.FORBIDDEN)
        return None


def _is_own(headers: Headers, host: str) -> bool:
    """Return True unless the browser's headers name another origin than the console's."""
    site = headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        return False
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == host


def _add_headers(message: MutableMapping[str, Any]) -> None:
    headers = MutableHeaders(raw=message["headers"])
    for name, value in HEADERS.items():
        headers[name] = value
    headers.setdefault("Cache-Control", "no-store")
