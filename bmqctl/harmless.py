"""Texts of others, for terminals and spreadsheets: names, contents and answers must not act where they are printed.

Commands print through `HarmlessStream`, which the root of the command line puts in place of the standard streams: what
is printed as text controls no terminal, whoever forgets to think of it. Bytes, as of `--raw`, pass as they are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

__all__ = ["HarmlessStream", "csv_text", "escaped", "guard_output", "one_line"]

# Control characters; what turns the direction of text, hides or ends a line; and halves of surrogate pairs, which are
# no text: those from 0xDC80 on stand for bytes of names.
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

# Spreadsheets take a cell that begins so for a formula, unless it is a number.
_FORMULA: Final = re.compile(r"[=+\-@＝＋－＠](?!(?<=[+-])[0-9]+(?:\.[0-9]+)?$)")  # noqa: RUF001


def escaped(text: str) -> str:
    """Return text without control characters other than line feeds, and without what is no text."""
    return text.translate(_ESCAPES)


def one_line(text: str) -> str:
    r"""Return text that is one line, with `\n` and `\t` for what would end or move it, and otherwise `escaped`."""
    return text.translate(_OF_LINES)


def csv_text(text: str) -> str:
    r"""Return text for a cell of CSV: `escaped`, and behind an apostrophe if a spreadsheet would calculate it.

    Line ends of both kinds stay, as they are data in a quoted cell.
    """
    shown = text.translate(_ESCAPES).replace("\\x0d\n", "\r\n")
    return f"'{shown}" if _FORMULA.match(text) else shown


class HarmlessStream:
    """A text stream that escapes control characters other than line feeds and tabs, and is its stream otherwise.

    Consoles of rich write their own control characters to the stream itself; they escape what they print.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        """Write text; return its length."""
        self._stream.write(text.translate(_OF_STREAMS))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def guard_output() -> Callable[[], None]:
    """Put `HarmlessStream` in place of the standard streams; return what puts them back."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (each if isinstance(each, HarmlessStream) else HarmlessStream(each) for each in before)

    def put_back() -> None:
        sys.stdout, sys.stderr = before

    return put_back
