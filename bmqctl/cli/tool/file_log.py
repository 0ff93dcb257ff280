"""The file of `--log`: one line for every event of a session, and for every message that comes or goes.

Source: `m_bmqtool::FileLogger`. Each record begins with the end of a line, as there.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from bmqctl.cli.tool.log import Severity, make_record
from formats.ball import compile_format
from formats.bmq.guid import format_guid

__all__ = ["FileLog"]

_FORMAT = compile_format(r"\n%I %p:%t %s %c %m %u")


class FileLog:
    """Writes to `path`, or nowhere; `OSError` if the file cannot be made."""

    def __init__(self, path: Path | None) -> None:
        self._file = path.open("a", encoding="utf-8", errors="surrogateescape") if path is not None else None

    def __enter__(self) -> FileLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def session_event(self, kind: str, uri: str) -> None:
        """`uri` is of the event's queue, or empty."""
        self._write("SESSION", f"{kind}|{uri}")

    def ack(self, uri: str, correlation: str, guid: bytes, result: int) -> None:
        """`result` is the application's, not that of the wire."""
        self._write("ACK", f"{uri}|{correlation}|{format_guid(guid)}|{result}|")

    def confirm(self, uri: str, guid: bytes) -> None:
        self._write("CONFIRM", f"{uri}|{format_guid(guid)}|")

    def push(self, uri: str, guid: bytes, payload: bytes) -> None:
        self._write("PUSH", f"{uri}|{format_guid(guid)}|{_text(payload)}")

    def put(self, uri: str, correlation: str, guid: bytes, payload: bytes) -> None:
        self._write("PUT", f"{uri}|{correlation}|{format_guid(guid)}|{_text(payload)}")

    def _write(self, category: str, message: str) -> None:
        if self._file is not None:
            self._file.write(_FORMAT(make_record(Severity.INFO, category, "", 0, message)))
            self._file.flush()


def _text(payload: bytes) -> str:
    return payload.decode("utf-8", "surrogateescape")
