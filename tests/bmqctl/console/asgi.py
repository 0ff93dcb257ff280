"""Requests to an ASGI application within this process, as a browser makes them."""

from __future__ import annotations

import json
from http.cookies import SimpleCookie
from typing import Any, NamedTuple

import trio
from starlette.types import ASGIApp, Message

__all__ = ["Answer", "Browser"]


class Answer(NamedTuple):
    """An answer; header names are lower-case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.body)


class Browser:
    """Keeps cookies, and sends the headers of a page of the console's own."""

    def __init__(self, application: ASGIApp, host: str = "127.0.0.1:30180") -> None:
        self._application = application
        self.host = host
        self.cookies: dict[str, str] = {}
        self.token = ""

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.ask("GET", path, b"", headers)

    async def post(self, path: str, value: object, **headers: str) -> Answer:
        own = {"content_type": "application/json", "x_console_token": self.token, "sec_fetch_site": "same-origin"}
        return await self.ask("POST", path, json.dumps(value).encode(), {**own, **headers})

    async def begin(self) -> Any:
        """Begin a session, and keep its token."""
        value = (await self.get("/api/session")).value
        self.token = value["token"]
        return value

    async def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        """Send a request; underscores in the names of headers are hyphens."""
        sent: list[Message] = []
        raw = {"host": self.host, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if self.cookies:
            raw.setdefault("cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items()))
        route, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": route,
            "raw_path": route.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in raw.items()],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 30180),
        }

        asked = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Message:
            found = next(asked, None)
            if found is None:
                # The browser stays connected.
                await trio.sleep_forever()
            assert found is not None
            return found

        async def send(message: Message) -> None:
            sent.append(message)

        await self._application(scope, receive, send)
        start = sent[0]
        found = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        for name, morsel in SimpleCookie(found.get("set-cookie", "")).items():
            self.cookies[name] = morsel.value
        return Answer(start["status"], found, b"".join(each.get("body", b"") for each in sent[1:]))
