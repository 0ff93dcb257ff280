"""An import contract for import-linter: what a package may import, beside itself and the standard library.

import-linter's own "forbidden" contract lists what is known to be wrong, so a dependency nobody thought of passes it.
"""

from __future__ import annotations

import sys
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

__all__ = ["AllowedImports"]


class AllowedImports(Contract):
    """Each of `source_modules`, with all below it, imports directly only the others, `allowed_modules` and the
    standard library; a name allows all below it."""

    type_name = "allowed"

    # Fields are descriptors in all but type: an instance holds the parsed list.
    source_modules: Any = fields.ListField(subfield=fields.StringField())
    allowed_modules: Any = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        allowed = (*self.source_modules, *self.allowed_modules)
        broken = []
        for source in self.source_modules:
            if source not in graph.modules:
                raise ValueError(f"{self.name}: no module {source}")
            for module in sorted({source} | graph.find_descendants(source)):
                for imported in sorted(graph.find_modules_directly_imported_by(module)):
                    if imported.partition(".")[0] in sys.stdlib_module_names or is_within(imported, allowed):
                        continue
                    details = graph.get_import_details(importer=module, imported=imported)
                    broken += [f"{module} -> {imported} (l.{detail['line_number']})" for detail in details]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["broken"]:
            output.print_error(line)


def is_within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)
