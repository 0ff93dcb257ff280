"""Files that describe rejected messages, for people."""

from __future__ import annotations

import os
import tempfile

__all__ = ["keep_rejected"]


def keep_rejected(text: str) -> str:
    """Write `text` into a new temporary file that only this account can read; return its path. Raises `OSError`."""
    handle, path = tempfile.mkstemp(prefix="bmq-rejected-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return path
