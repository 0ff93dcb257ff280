"""Escaping of untrusted texts, so that names, contents and answers control no terminal or spreadsheet.

The root of the command line replaces the standard streams by `HarmlessStream`, which escapes all printed text. Bytes,
such as those of `--raw`, pass unchanged.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import TextIOWrapper
from typing import Any, Final

__all__ = ["HarmlessStream", "csv_text", "escaped", "guard_output", "one_line", "output_fault"]

# Control characters; characters that change the direction of text, are invisible or end a line; and lone surrogates,
# which from 0xDC80 on stand for bytes of names.
_ESCAPES: Final = {
    **{code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)] if code != ord("\n")},
    **{
        code: f"\\u{code:04x}"
        for code in [0x61C, 0xFEFF, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070)]
    },
    **{code: f"\\u{code:04x}" for code in range(0xD800, 0xE000)},
    **{0xDC00 + byte: f"\\x{byte:02x}" for byte in range(0x80, 0x100)},
}
_OF_LINES: Final = {**_ESCAPES, ord("\n"): "\\n", ord("\t"): "\\t"}
_OF_STREAMS: Final = {code: text for code, text in _ESCAPES.items() if code != ord("\t")}

# Spreadsheets treat a cell with such a beginning as a formula, unless it is a number.
_FORMULA: Final = re.compile(r"[=+\-@＝＋－＠](?!(?<=[+-])[0-9]+(?:\.[0-9]+)?$)")  # noqa: RUF001


def escaped(text: str) -> str:
    """Escape control characters other than line feeds, and lone surrogates."""
    return text.translate(_ESCAPES)


def one_line(text: str) -> str:
    r"""Escape a text like `escaped`, with `\n` for line feeds and `\t` for tabs, so that it stays one line."""
    return text.translate(_OF_LINES)


def csv_text(text: str) -> str:
    r"""Escape a text for a cell of CSV, with an apostrophe in front if a spreadsheet would treat it as a formula.

    Line ends of both kinds remain: in a quoted cell they are data.
    """
    shown = text.translate(_ESCAPES).replace("\\x0d\n", "\r\n")
    return f"'{shown}" if _FORMULA.match(text) else shown


class HarmlessStream:
    """A text stream that escapes control characters other than line feeds and tabs.

    Consoles of rich escape texts themselves, and write their own control characters to the wrapped stream.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        self._stream.write(text.translate(_OF_STREAMS))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Output:
    """A text or binary stream that keeps the first error of writing in `faults`, which its `buffer` shares."""

    def __init__(self, stream: Any, faults: list[OSError]) -> None:
        self._stream = stream
        self.faults = faults

    @property
    def buffer(self) -> _Output:
        return _Output(self._stream.buffer, self.faults)

    def write(self, data: Any) -> Any:
        try:
            return self._stream.write(data)
        except OSError as fault:
            self.faults.append(fault)
            raise

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as fault:
            self.faults.append(fault)
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Diagnostics:
    """A text stream whose output may be lost: a full disk or a closed pipe must not change the end of a command."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text, if possible; return its length."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def output_fault() -> OSError | None:
    """The error of writing standard output; None if everything printed is written."""
    with suppress(OSError):
        sys.stdout.flush()
    faults: list[OSError] = getattr(sys.stdout, "faults", [])
    return faults[0] if faults else None


def guard_output() -> Callable[[], None]:
    """Replace the standard streams by `HarmlessStream`; return a function that restores them.

    Characters that a stream's encoding lacks are escaped. Errors of standard error are ignored.
    """
    before = sys.stdout, sys.stderr
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "backslashreplace")):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=errors)
    if not isinstance(sys.stdout, HarmlessStream):
        sys.stdout = HarmlessStream(_Output(sys.stdout, []))
    if not isinstance(sys.stderr, HarmlessStream):
        sys.stderr = HarmlessStream(_Diagnostics(sys.stderr))

    def put_back() -> None:
        sys.stdout, sys.stderr = before

    return put_back
