"""Three import contracts for import-linter.

`allowed` lists the packages that a package may import beside itself and the standard library: import-linter's own
"forbidden" contract lists known errors, and lets any other dependency pass. `pure` refuses the modules for I/O, clocks
and randomness. `chosen once` keeps the choice between two families of modules out of a package.
"""

from __future__ import annotations

import re
import sys
from abc import abstractmethod
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

__all__ = ["AllowedImports", "ChosenOnce", "Pure"]

# The modules for I/O, processes, threads, clocks and randomness. Not listed, as decisions import them: `datetime` and
# `urllib`, which have pure parts, and `secrets`, by which proofs draw challenges unless a caller gives another source.
_IMPURE = (
    "anyio",
    "asyncio",
    "concurrent",
    "fcntl",
    "glob",
    "mmap",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "socketserver",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "trio",
    "uuid",
)


class _ImportRule(Contract):
    """Check each direct import of `source_modules` and of all below them."""

    # To a type checker a field is a descriptor; an instance holds the parsed list.
    source_modules: Any = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        broken = []
        for source in self.source_modules:
            if source not in graph.modules:
                raise ValueError(f"{self.name}: no module {source}")
            for module in sorted({source} | graph.find_descendants(source)):
                for imported in sorted(graph.find_modules_directly_imported_by(module)):
                    if self.allows(imported):
                        continue
                    details = graph.get_import_details(importer=module, imported=imported)
                    broken += [f"{module} -> {imported} (l.{detail['line_number']})" for detail in details]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    @abstractmethod
    def allows(self, imported: str) -> bool:
        """Return True if one of the sources may import this module."""

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["broken"]:
            output.print_error(line)


class AllowedImports(_ImportRule):
    """Each of `source_modules`, with all below it, imports directly only the others, `allowed_modules` and the standard
    library; a name allows all below it.
    """

    type_name = "allowed"

    allowed_modules: Any = fields.ListField(subfield=fields.StringField())

    def allows(self, imported: str) -> bool:
        allowed = (*self.source_modules, *self.allowed_modules)
        return imported.partition(".")[0] in sys.stdlib_module_names or is_within(imported, allowed)


class Pure(_ImportRule):
    """`source_modules`, with all below them, import directly no module for I/O, clocks or randomness.

    Indirect imports do not count: numpy and enum import `os` themselves.
    """

    type_name = "pure"

    def allows(self, imported: str) -> bool:
        return not is_within(imported, _IMPURE)


class ChosenOnce(_ImportRule):
    """`source_modules`, with all below them, import directly no module whose dotted name has a match of `pattern`.

    `breaches` are the modules that do so today. One that no longer does is an error: the list shrinks.
    """

    type_name = "chosen_once"

    pattern: Any = fields.StringField()
    breaches: Any = fields.ListField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        lines = super().check(graph, verbose).metadata["broken"]
        listed = set(self.breaches or ())
        found = {line.partition(" ")[0] for line in lines}
        broken = [line for line in lines if line.partition(" ")[0] not in listed]
        broken += [f"{module} is no breach any more: leave it out" for module in sorted(listed - found)]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def allows(self, imported: str) -> bool:
        return re.search(self.pattern, imported) is None


def is_within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)
