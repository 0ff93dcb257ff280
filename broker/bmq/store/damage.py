# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Damage that other nodes are to heal: noted in the folder before anything is set aside, until this node has it all.

A node that has lost part of what it had must not be counted on: it may have acknowledged what is in none of its files
any longer. The note says so to every process that starts on the folder, however often one dies before it is healed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.common.files import Directory

__all__ = ["LEDGER_NOTE", "Damage", "partition_note"]

LEDGER_NOTE: Final = "bmq_csl.damaged"
TEXT_SIZE_MAX: Final = 16 << 10


def partition_note(partition_id: int) -> str:
    """The name of the note that the files of a partition are damaged."""
    return f"bmq_{partition_id}.damaged"


class Damage:
    """The damage of one part of a store. `is_there` until others have healed it."""

    def __init__(self, directory: Directory, name: str) -> None:
        self.name = name
        self._directory = directory
        self.is_there = name in directory.names()

    def note(self, text: str) -> bool:
        """Keep in the folder that there is damage; False, and nothing kept, when the disk is full.

        It is on the disk when this returns.
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
        """Move the damaged files out of the way, where nothing deletes them; where they are now."""
        assert self.is_there
        moved = [self._directory.set_aside(name) for name in names]
        self._directory.flush()
        return moved

    def heal(self, *, synced: bool = False) -> None:
        """Remove the note, as this node has all of it again; `synced` from the disk, too, so that the node is not taken
        for damaged after a power failure: too few might be left that are not.
        """
        if self.is_there:
            self._directory.remove(self.name)
            self.is_there = False
            if synced:
                self._directory.flush()
