"""Faults planted in the core, one at a time, by changing a line of its source as it is imported.

Each says what is wrong in one sentence, and, if no world can show it, why not and which unit test does: see
`catalogue`. A mutant is planted in a process of its own before that imports the module.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

__all__ = ["Mutant", "plant", "stale"]

ROOT = Path(__file__).resolve().parents[3]


class Mutant(NamedTuple):
    """One planted fault. `edits` are (old text, new text) in the source of `module`, each there exactly once.

    `hidden` says why no world can show it, or none of the first ones does; empty if worlds do. `unit` is the test that
    does, or the file of tests.
    """

    name: str
    area: str
    says: str
    module: str
    edits: tuple[tuple[str, str], ...]
    hidden: str = ""
    unit: str = ""

    @property
    def systems(self) -> tuple[str, ...]:
        """The systems whose worlds may show it, the likeliest first."""
        if self.module.startswith("bmqctl"):
            return ("mixed",)
        if not self.module.startswith("broker.rocketmq"):
            return ("bmq",)
        return ("controllers", "rocketmq") if self.area in ("controllers", "groups") else ("rocketmq", "controllers")

    @property
    def path(self) -> Path:
        return ROOT / (self.module.replace(".", "/") + ".py")

    def changed(self, source: str) -> str:
        """The source with the fault in it; LookupError if it is not as it was when the fault was thought of."""
        for old, new in self.edits:
            if source.count(old) != 1:
                raise LookupError(f"'{self.name}' changes {old!r}, which is {source.count(old)} times in {self.module}")
            source = source.replace(old, new)
        return source


class _Loader(SourceFileLoader):
    """Reads one module's source with the fault in it, and writes no compiled file."""

    def __init__(self, mutant: Mutant) -> None:
        super().__init__(mutant.module, str(mutant.path))
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        source = self._mutant.changed(self._mutant.path.read_text())
        code: CodeType = compile(source, str(self._mutant.path), "exec", dont_inherit=True)
        return code


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            spec.loader = _Loader(self._mutant)
        return spec


def plant(mutant: Mutant) -> None:
    """Have the module imported with the fault. Only before it is imported for the first time."""
    assert mutant.module not in sys.modules, f"{mutant.module} is imported already"
    sys.meta_path.insert(0, _Finder(mutant))


def stale(mutants: Sequence[Mutant]) -> list[str]:
    """List the changes whose text is not in the source any longer."""
    found = []
    for mutant in mutants:
        try:
            compile(mutant.changed(mutant.path.read_text()), mutant.module, "exec")
        except (LookupError, SyntaxError) as error:
            found.append(f"{mutant.name}: {error}")
    return found
