"""Checks of the stores of a mixed cluster, when its nodes have ended."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bmqctl.common.children import COMMAND
from scripts.mixtures.faults import Differs

__all__ = ["check_readable", "check_same", "journal_bytes"]

LIMIT_S = 120.0


def journal_bytes(store: Path) -> bytes:
    """Return the contents of a store's journals."""
    return b"".join(file.read_bytes() for file in sorted(store.glob("*.bmq_journal")))


def check_readable(store: Path, storage_tool: Path) -> None:
    """Raise `Differs` unless our tool finds a store sound, and the reference's reads each of its journals."""
    _bmqctl("journal", "validate", str(store))
    for journal in sorted(store.glob("*.bmq_journal")):
        done = subprocess.run(
            [str(storage_tool), "--journal-file", str(journal), "--summary"],
            cwd=store.parent,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode:
            raise Differs(f"the reference's tool does not read {journal}: {done.stdout}{done.stderr}")


def check_same(stores: Sequence[Path]) -> None:
    """Raise `Differs` unless all stores hold the same records."""
    for other in stores[1:]:
        _bmqctl("journal", "diff", str(stores[0]), str(other))


def _bmqctl(*words: str) -> None:
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise Differs(
            f"bmqctl {' '.join(words)}: exit code {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-2000:]}"
        )


def at_rest(stores: Iterable[Path]) -> Callable[[], bool]:
    """Return a function that is true when no store has changed since its last call."""
    last: list[bytes] = []
    watched = list(stores)

    def same() -> bool:
        nonlocal last
        now = [journal_bytes(store) for store in watched]
        is_same, last = now == last, now
        return is_same

    return same
