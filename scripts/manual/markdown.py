"""Pieces of Markdown, with everything escaped that a page must show as it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["code", "heading", "page", "table", "text"]

_CODE = re.compile(r"(`[^`]*`)")


def code(value: object) -> str:
    """`value` as code; nothing for an empty one."""
    shown = str(value)
    return f"`{shown}`" if shown else ""


def text(value: str) -> str:
    """Plain text with its code in backticks; `<`, `*` and `_` outside them are shown as they are."""
    parts = _CODE.split(value)
    return "".join(part if part.startswith("`") else re.sub(r"([<*_\[\]])", r"\\\1", part) for part in parts)


def heading(level: int, title: str, anchor: str) -> str:
    """A heading with its own anchor, so that links to it survive a change of the text."""
    return f"{'#' * level} {title} {{ #{anchor} }}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; nothing without rows."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    if not lines:
        return ""
    return "\n".join(["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns), *lines])


def page(*blocks: str) -> str:
    return "\n\n".join(block.strip("\n") for block in blocks if block) + "\n"
