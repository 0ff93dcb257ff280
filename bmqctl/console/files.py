"""The files of the console's pages, which are read once and served from memory."""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

__all__ = ["Files"]

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class _File(NamedTuple):
    content: bytes
    kind: str
    tag: str


class Files:
    """The files below `assets`, by their paths from there."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self._read(resources.files("bmqctl.console") / "assets", "")

    async def index(self, request: Request) -> Response:
        """Answer with the page that all others are made in."""
        return self._answer(request, "index.html")

    async def asset(self, request: Request) -> Response:
        """Answer with a file."""
        return self._answer(request, request.path_params["path"])

    def _read(self, folder: Traversable, prefix: str) -> None:
        for each in folder.iterdir():
            path = f"{prefix}{each.name}"
            if each.is_dir():
                self._read(each, f"{path}/")
            elif (kind := _TYPES.get(path.rpartition(".")[2])) is not None:
                content = each.read_bytes()
                self._files[path] = _File(content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"')

    def _answer(self, request: Request, path: str) -> Response:
        found = self._files.get(path)
        if found is None:
            return PlainTextResponse("There is no such file.\n", HTTPStatus.NOT_FOUND)
        # They are those of this version: a browser asks whether they are others.
        headers = {"ETag": found.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(found.content, media_type=found.kind, headers=headers)
