"""Requests of a user to a node with access control."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.signature import signed
from tests.rigs.remoting import Remote

ROOT = ("root", "hush-root")


def call(remote: Remote, user: tuple[str, str], code: RequestCode, body: bytes = b"", **fields: Any) -> Frame:
    """Send a request that a user signs; the answer."""
    texts = {name: str(value) for name, value in fields.items()}
    return remote.call(code, body, **(signed(Frame(code, 0, ext_fields=texts, body=body), *user).ext_fields or {}))


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
