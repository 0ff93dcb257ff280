"""Figures of the code as a whole, for a table of before and after.

    .venv/bin/python -m scripts.checks.house [--without WORD] [ROOT]

ROOT is a checkout, this one by default. Paths that contain WORD are left out. Modules, functions and classes are those
of the product's packages; docstrings also those of tests and scripts.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

from scripts.checks import sizes, words

# Calls by which a module reads a store's file itself.
_READS = re.compile(r"\b(os\.preadv?|mmap\.mmap|os\.lseek|np\.memmap|np\.fromfile)\(")
_READERS = ("formats/", "bmqctl/stores/blazingmq/", "bmqctl/pipeline/", "bmqctl/cli/")
# The two fields of a record's or a leader's message's number; those of control messages are part of the schema.
_NUMBER_FIELDS = (re.compile("lease|term"), re.compile("sequence|number"))


class Figure(NamedTuple):
    """A row of the table."""

    name: str
    value: str


def figures(product: Mapping[str, str], others: Mapping[str, str]) -> Iterator[Figure]:
    lines = [text.count("\n") for text in product.values()]
    found = [size for path, text in product.items() for size in sizes.sizes_of(path, text)]
    over = {
        measure: sum(size.amount > measure.limit for size in found if size.measure is measure)
        for measure in sizes.Measure
    }
    docstrings = [each for path, text in (*product.items(), *others.items()) for each in words.openings(path, text)]
    clauses = sum(words.is_clause(each.text) for each in docstrings)
    packages, loose = rooms(product)
    chosen = choices(product)
    yield Figure("packages and loose modules of bmqctl", f"{len(packages)} + {len(loose)}")
    yield Figure("files (places) that choose a system", f"{len(chosen)} ({sum(chosen.values())})")
    yield Figure("modules of the widest folder", "{1} in {0}".format(*widest(product)))
    yield Figure("modules", f"{len(lines):,}")
    yield Figure("lines", f"{sum(lines):,}")
    yield Figure("lines of a module, median", f"{median(lines):g}")
    yield Figure("lines of a module, maximum", f"{max(lines):,}")
    yield Figure("modules above 500 lines", str(over[sizes.Measure.MODULE_LINES]))
    yield Figure("functions above 60 lines", str(over[sizes.Measure.LINES]))
    yield Figure("functions above 8 parameters", str(over[sizes.Measure.PARAMETERS]))
    yield Figure("classes above 20 attributes", str(over[sizes.Measure.ATTRIBUTES]))
    yield Figure("class names in more than one module", str(len(homonyms(product))))
    yield Figure("docstrings that begin with a clause", f"{clauses:,} of {len(docstrings):,}")
    yield Figure("modules that read store files themselves", str(len(readers(product))))
    yield Figure("types for (lease or term, sequence number)", str(len(number_types(product))))


# Names of a system in a condition, and functions that return the system of a thing.
_SYSTEM = re.compile("rocket|blazing", re.IGNORECASE)
_FINDERS = frozenset(("subject_of",))


def rooms(modules: Mapping[str, str]) -> tuple[set[str], set[str]]:
    """Return the packages and the loose modules at the top of bmqctl."""
    inside = [path.removeprefix("bmqctl/") for path in modules if path.startswith("bmqctl/")]
    return {path.partition("/")[0] for path in inside if "/" in path}, {path for path in inside if "/" not in path}


def choices(modules: Mapping[str, str]) -> dict[str, int]:
    """Count the places in bmqctl that choose a system, by module.

    A place is an `if`, a conditional expression or a `match` case whose condition or pattern has an identifier or a
    text with the name of a system, or a call of `subject_of`. Modules in a folder of one system do not count.
    """
    found = {}
    for path, text in modules.items():
        if path.startswith("bmqctl/") and not _SYSTEM.search(path.rpartition("/")[0]):
            conditions = [
                node.pattern if isinstance(node, ast.match_case) else node.test
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.If | ast.IfExp | ast.match_case)
            ]
            if number := sum(map(_names_system, conditions)):
                found[path] = number
    return found


def _names_system(condition: ast.AST) -> bool:
    for node in ast.walk(condition):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                if name in _FINDERS or _SYSTEM.search(name):
                    return True
    return False


def widest(modules: Mapping[str, str]) -> tuple[str, int]:
    """Return the folder with most modules, without its folders, and their number."""
    number = Counter(path.rpartition("/")[0] for path in modules)
    return max(number.items(), key=lambda each: each[1], default=("", 0))


def homonyms(modules: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the class names that several modules have, with the modules' paths."""
    places: defaultdict[str, set[str]] = defaultdict(set)
    for path, text in modules.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                places[node.name].add(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def readers(modules: Mapping[str, str]) -> list[str]:
    """List the modules of formats and tools that read store files by calls of the system."""
    return [path for path, text in modules.items() if path.startswith(_READERS) and _READS.search(text)]


def number_types(modules: Mapping[str, str]) -> list[str]:
    """List the classes that have a lease or term and a sequence number, and nothing else, as `PATH::NAME`."""
    found = []
    for path, text in modules.items():
        for node in ast.walk(ast.parse(text)) if "/control/" not in path else ():
            if isinstance(node, ast.ClassDef):
                fields = [
                    each.target.id
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                ]
                if len(fields) == 2 and all(map(re.Pattern[str].search, _NUMBER_FIELDS, fields)):
                    found.append(f"{path}::{node.name}")
    return found


def read(root: Path, packages: Iterable[str], without: str | None) -> dict[str, str]:
    files = sorted(file for package in packages for file in (root / package).rglob("*.py"))
    paths = {file.relative_to(root).as_posix(): file for file in files}
    return {path: file.read_text() for path, file in paths.items() if without is None or without not in path}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--without", metavar="WORD")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[2], metavar="ROOT")
    given = parser.parse_args()
    rest = [package for package in words.PACKAGES if package not in sizes.PACKAGES]
    for name, value in figures(read(given.root, sizes.PACKAGES, given.without), read(given.root, rest, given.without)):
        print(f"{name:<44} {value}")


if __name__ == "__main__":
    main()
