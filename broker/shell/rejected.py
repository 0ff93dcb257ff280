"""Files for people that say what a rejected message was."""

from __future__ import annotations

import os
import tempfile

__all__ = ["keep_rejected"]


def keep_rejected(text: str) -> str:
    """Write `text` into a new file among the temporary ones, readable by all as the reference's is; its path.

    OSError when that cannot be done.
    """
    handle, path = tempfile.mkstemp(prefix="bmq-rejected-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        os.fchmod(handle, 0o644)
        file.write(text)
    return path
