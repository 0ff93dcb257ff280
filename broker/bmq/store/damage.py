# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Notes in a store's folder that a part of it is damaged, kept until other nodes have healed it.

A damaged node must not be counted on: it may have lost records that it acknowledged. The note is written before any
file is set aside, so that every later process finds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.common.files import Directory

__all__ = ["LEDGER_NOTE", "Damage", "partition_note"]

LEDGER_NOTE: Final = "bmq_csl.damaged"
TEXT_SIZE_MAX: Final = 16 << 10


def partition_note(partition_id: int) -> str:
    return f"bmq_{partition_id}.damaged"


class Damage:
    """The damage of one part of a store; `is_there` until other nodes have healed it."""

    def __init__(self, directory: Directory, name: str) -> None:
        self.name = name
        self._directory = directory
        self.is_there = name in directory.names()

    def note(self, text: str) -> bool:
        """Write the note and flush it to the disk; return False, leaving no note, if the disk is full.

        Keeps the first TEXT_SIZE_MAX bytes of `text`.
        """
        content = text.encode()[:TEXT_SIZE_MAX]
        file = self._directory.open(self.name, len(content))
        if not file.reserve(len(content)):
            file.close()
            self._directory.remove(self.name)
            return False
        file.buffer[: len(content)] = content
        file.flush()
        file.close(len(content))
        self._directory.flush()
        self.is_there = True
        return True

    def set_aside(self, names: Iterable[str]) -> list[str]:
        """Move the damaged files where nothing deletes them; return their new places."""
        assert self.is_there
        moved = [self._directory.set_aside(name) for name in names]
        self._directory.flush()
        return moved

    def heal(self, *, synced: bool = False) -> None:
        """Remove the note, once this node has the whole part again.

        `synced` flushes the removal to the disk. Otherwise a power failure may bring the note back, and leave too few
        undamaged nodes.
        """
        if self.is_there:
            self._directory.remove(self.name)
            self.is_there = False
            if synced:
                self._directory.flush()
