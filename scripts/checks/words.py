"""First lines of docstrings, as `scripts/check` checks them.

    .venv/bin/python -m scripts.checks.words

A docstring begins with an imperative or a noun phrase. One that begins with a subordinate clause ("Whether the queue is
empty", "As `put`, but ..."), a preposition or a conjunction ("Of one queue", "Until all have answered", "And twice"),
or a pronoun without a noun ("It goes on", "These came later", "Nobody listens") is an error, except in the packages of
`UNFINISHED`. An entry there without such a docstring is an error too: the list only becomes shorter.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("formats", "broker", "bmqctl", "scripts", "tests")

UNFINISHED: tuple[str, ...] = ()
"""Paths, relative to the root, of packages and modules to be edited."""

_CLAUSE = re.compile(
    r"(What|Whatever|Whether|How|Who|Whoever|Whom|Whose|Where|When|Why|Which|As|That|If|Since|Until|Once|While"
    r"|Though|Although|Because|Unless|So|Then|And|Or|But|Also|Of|By|With|Without|Within|Behind|Before|After|Among"
    r"|Under|From|For|In|On|At|To|Not|Neither|Like|Told"
    r"|It|Its|They|Their|This|These|Those|There|None|Nothing|Nobody|Somebody|Someone|Something"
    r"|Everybody|Everyone|Everything)\b(?!-)",
    re.ASCII,
)


class Opening(NamedTuple):
    """The first line of a docstring, and its place."""

    path: str
    line: int
    text: str


def openings(path: str, text: str) -> Iterator[Opening]:
    """Yield the first lines of all docstrings of a module, its classes with their attributes, and its functions."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found = ast.get_docstring(node)
            if found:
                yield Opening(path, node.body[0].lineno, found.partition("\n")[0])
        if isinstance(node, ast.ClassDef):
            for attribute, after in pairwise(node.body):
                match attribute, after:
                    case ast.AnnAssign() | ast.Assign(), ast.Expr(value=ast.Constant(value=str(told))):
                        yield Opening(path, after.lineno, told.partition("\n")[0])


def is_clause(text: str) -> bool:
    """Return True if a docstring's first line begins with a conjunction, a preposition or a pronoun."""
    return _CLAUSE.match(text) is not None


def complaints(found: Iterable[Opening], unfinished: Sequence[str]) -> list[str]:
    """List a line for each clause outside `unfinished`, and for each of its entries without a clause."""
    lines = []
    needed = set()
    for each in found:
        if not is_clause(each.text):
            continue
        entries = {entry for entry in unfinished if each.path == entry or each.path.startswith(f"{entry}/")}
        needed |= entries
        if not entries:
            lines.append(
                f"{each.path}:{each.line}: begin with what the thing does or is, not with a clause: {each.text}"
            )
    lines += [
        f"{entry}: has no docstring that begins with a clause; remove it from UNFINISHED in scripts/checks/words.py"
        for entry in unfinished
        if entry not in needed
    ]
    return lines


def main() -> int:
    root = Path(__file__).parents[2]
    files = sorted(each for package in PACKAGES for each in (root / package).rglob("*.py"))
    found = [each for file in files for each in openings(file.relative_to(root).as_posix(), file.read_text())]
    clauses = sum(is_clause(each.text) for each in found)
    print(f"{clauses} of {len(found)} docstrings begin with a clause")
    lines = complaints(found, UNFINISHED)
    for line in lines:
        print(f"words: {line}", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
