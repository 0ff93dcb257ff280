"""The completion of the names of contexts in a shell."""

from __future__ import annotations

from bmqctl.cli.contexts.file import contexts_path, read_contexts
from bmqctl.cli.contexts.model import BadContext

__all__ = ["context_names"]


def context_names(incomplete: str) -> list[str]:
    """Return the names with this beginning; none if the file of contexts cannot be read, which other commands
    report.
    """
    try:
        names = sorted(read_contexts(contexts_path()).contexts)
    except (BadContext, OSError):
        return []
    return [each for each in names if each.startswith(incomplete)]
