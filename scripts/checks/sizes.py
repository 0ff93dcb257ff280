"""Sizes of the product's functions, classes and modules, and of all folders, as `scripts/check` prints and limits them.

    .venv/bin/python -m scripts.checks.sizes

The ten largest of each measure are printed. Anything above a limit needs a line in sizes.toml: under `[reasons]` if it
is better as it is, or under `[debts]` until it is divided. A line for something within its limits is an error: the
lists only become shorter.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("formats", "broker", "bmqctl")
FLOORS = (*PACKAGES, "scripts", "tests")
SHOWN = 10


class Measure(Enum):
    """A measure and its greatest allowed value."""

    LINES = ("lines of a function", 60)
    COMPLEXITY = ("complexity of a function", 12)
    PARAMETERS = ("parameters of a function", 8)
    ATTRIBUTES = ("attributes of a class", 20)
    MODULE_LINES = ("lines of a module", 500)
    MODULES = ("modules of a folder", 20)

    @property
    def limit(self) -> int:
        return self.value[1]

    @property
    def text(self) -> str:
        return self.value[0]


class Size(NamedTuple):
    """A thing, `PATH::NAME` or, for a module or a folder, `PATH`, and its size by one measure."""

    measure: Measure
    amount: int
    name: str


def sizes_of(path: str, text: str) -> Iterator[Size]:
    yield Size(Measure.MODULE_LINES, text.count("\n"), path)
    yield from _within(ast.parse(text), path, "")


def _within(node: ast.AST, path: str, prefix: str) -> Iterator[Size]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{child.name}"
            if isinstance(child, ast.ClassDef):
                yield Size(Measure.ATTRIBUTES, len(set(_attributes(child))), f"{path}::{name}")
            else:
                yield Size(Measure.LINES, (child.end_lineno or child.lineno) - child.lineno + 1, f"{path}::{name}")
                yield Size(Measure.PARAMETERS, _parameters(child.args), f"{path}::{name}")
            yield from _within(child, path, f"{name}.")
        else:
            yield from _within(child, path, prefix)


def _parameters(arguments: ast.arguments) -> int:
    named = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    own = 1 if named and named[0] in ("self", "cls") else 0
    return len(named) - own + len(arguments.kwonlyargs) + bool(arguments.vararg) + bool(arguments.kwarg)


def _attributes(of: ast.ClassDef) -> Iterator[str]:
    """Yield the names that a class declares, or that its methods set on `self`."""
    for each in of.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in ast.walk(each):
                if (
                    isinstance(inner, ast.Attribute)
                    and isinstance(inner.ctx, ast.Store)
                    and isinstance(inner.value, ast.Name)
                    and inner.value.id == "self"
                ):
                    yield inner.attr


def folders(paths: Iterable[str]) -> Iterator[Size]:
    """Count the modules of each folder, `__init__.py` among them, without those of its folders."""
    for folder, number in Counter(path.rpartition("/")[0] for path in paths).items():
        yield Size(Measure.MODULES, number, folder)


def complexities(root: Path, packages: Iterable[str], names: dict[tuple[str, int], str]) -> Iterator[Size]:
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--select=C901",
        "--output-format=json",
        "--exit-zero",
    ]
    result = subprocess.run(
        [*command, "--config=lint.mccabe.max-complexity=0", *packages], cwd=root, capture_output=True, check=True
    )
    for found in json.loads(result.stdout):
        path = Path(found["filename"]).relative_to(root).as_posix()
        amount = int(found["message"].rpartition("(")[2].partition(" ")[0])
        yield Size(Measure.COMPLEXITY, amount, names[path, found["location"]["row"]])


def functions(path: str, text: str) -> Iterator[tuple[tuple[str, int], str]]:
    def within(node: ast.AST, prefix: str) -> Iterator[tuple[tuple[str, int], str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield (path, child.lineno), f"{path}::{prefix}{child.name}"
                yield from within(child, f"{prefix}{child.name}.")
            else:
                yield from within(child, prefix)

    yield from within(ast.parse(text), "")


class Known(NamedTuple):
    """The entries of sizes.toml: things that exceed a limit, by name."""

    reasons: dict[str, str]
    debts: frozenset[str]


def read_known(text: str) -> Known:
    document = tomllib.loads(text)
    return Known(document.get("reasons", {}), frozenset(document.get("debts", {}).get("names", ())))


def complaints(sizes: Iterable[Size], known: Known) -> list[str]:
    """List a line for each thing above a limit without an entry, and for each entry that exceeds none."""
    listed = {*known.reasons, *known.debts}
    over = [size for size in sizes if size.amount > size.measure.limit]
    lines = [
        f"{size.name}: {size.amount} {size.measure.text}, {size.measure.limit} are allowed; "
        "divide it, or give the reason in scripts/checks/sizes.toml"
        for size in over
        if size.name not in listed
    ]
    lines += [
        f"{name}: exceeds no limit; remove its line in scripts/checks/sizes.toml"
        for name in sorted(listed - {s.name for s in over})
    ]
    lines += [
        f"{name}: is under [reasons] and [debts] in scripts/checks/sizes.toml"
        for name in sorted(set(known.reasons) & known.debts)
    ]
    return lines


def main() -> int:
    root = Path(__file__).parents[2]
    sizes: list[Size] = []
    names: dict[tuple[str, int], str] = {}
    for file in sorted(each for package in PACKAGES for each in (root / package).rglob("*.py")):
        path, text = file.relative_to(root).as_posix(), file.read_text()
        sizes += sizes_of(path, text)
        names.update(functions(path, text))
    sizes += complexities(root, PACKAGES, names)
    files = (file for floor in FLOORS for file in (root / floor).rglob("*.py"))
    sizes += folders(file.relative_to(root).as_posix() for file in files)
    known = read_known((Path(__file__).parent / "sizes.toml").read_text())
    for measure in Measure:
        own = sorted((size for size in sizes if size.measure is measure), key=lambda size: (-size.amount, size.name))
        over = sum(size.amount > measure.limit for size in own)
        print(f"{measure.text}: {over} of {len(own)} above {measure.limit}")
        for size in own[:SHOWN]:
            print(f"  {size.amount:>5}  {size.name}")
    found = complaints(sizes, known)
    for line in found:
        print(f"sizes: {line}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
