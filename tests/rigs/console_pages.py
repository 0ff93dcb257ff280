"""The console as a browser has it: requests over HTTP, and pages in Chromium."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.cookiejar import CookieJar
from typing import Any, NamedTuple

from bmqctl.common.children import COMMAND
from bmqctl.common.ports import free_port
from tests import browser
from tests.waiting import WAIT_S, eventually

__all__ = ["Asked", "Pages", "console", "play"]


class Asked(NamedTuple):
    """An answer's status, and its value of JSON."""

    status: int
    value: Any


class Pages:
    """A browser's session with a console on a port of this machine; over HTTPS with an authority to trust."""

    def __init__(self, port: int, trusted: ssl.SSLContext | None = None) -> None:
        self.url = f"http://127.0.0.1:{port}" if trusted is None else f"https://127.0.0.1:{port}"
        self.cookies = CookieJar()
        handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPCookieProcessor(self.cookies)]
        if trusted is not None:
            handlers.append(urllib.request.HTTPSHandler(context=trusted))
        self._opener = urllib.request.build_opener(*handlers)
        self._token = ""
        self._number = 0

    def begin(self) -> Any:
        """Begin a session, as soon as the console answers."""

        def ask() -> Asked | None:
            try:
                return self.get("/api/session")
            except (OSError, http.client.HTTPException):
                return None

        value = eventually(ask).value
        self._token = value["token"]
        return value

    def is_over(self) -> bool:
        """Return True if nothing listens there any more."""
        try:
            self.get("/api/session")
        except OSError:
            return True
        return False

    def look(self) -> Any:
        """Return a look at the cluster after the last one."""
        found = self.get(f"/api/overview?after={self._number}")
        assert found.status == 200, found
        self._number = found.value["number"]
        return found.value

    def get(self, path: str) -> Asked:
        return self._ask(urllib.request.Request(self.url + path))

    def post(self, path: str, value: object) -> Asked:
        headers = {"Content-Type": "application/json", "X-Console-Token": self._token}
        found = self._ask(urllib.request.Request(self.url + path, json.dumps(value).encode(), headers))
        if found.status == 200 and "token" in found.value:
            self._token = found.value["token"]
        return found

    def _ask(self, request: urllib.request.Request) -> Asked:
        try:
            with self._opener.open(request, timeout=WAIT_S) as answer:
                return Asked(answer.status, json.load(answer))
        except urllib.error.HTTPError as refused:
            with refused:
                return Asked(refused.code, json.load(refused))


@contextmanager
def console(*words: str) -> Iterator[Pages]:
    """Run `bmqctl console` during the block; it has to end well."""
    port = free_port()
    process = subprocess.Popen(
        [*COMMAND, "console", "--port", str(port), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        pages = Pages(port)
        pages.begin()
        yield pages
        process.terminate()
        out, err = process.communicate(timeout=WAIT_S)
        assert (process.returncode, err) == (0, "")
        assert out.startswith("bmqctl: console of ")
    finally:
        process.kill()
        process.communicate()


def play(steps: Sequence[Sequence[object]]) -> Any:
    """Play steps in Chromium (see `tests.browser`) without failures or output; return the results."""
    done = subprocess.run(
        [sys.executable, browser.__file__],
        input=json.dumps(steps),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["failed"] is None, found
    assert found["said"] == [], found["said"]
    return found
