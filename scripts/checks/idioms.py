"""Idioms of translated English in prose, as `scripts/check` counts them.

    .venv/bin/python -m scripts.checks.idioms [--list ROOM]

Prose is docstrings, comments, and the pages of the manual. A room above its limit in `LIMITS`, in idioms for each 1,000
lines of prose, fails; lower the limit of one well below it. `--list` prints the places of a room.
docs/contribute/prose.md shows what to write instead.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

LIMITS: Final[Mapping[str, int]] = {
    "formats": 1,
    "broker/common": 1,
    "broker/shell": 3,
    "broker/bmq": 2,
    "broker/rocketmq": 2,
    "bmqctl": 3,
    "scripts": 2,
    "tests": 1,
    "docs": 5,
}

# A question may begin with `What` or `Who`; a proxy or a balancer has a place behind it.
IDIOMS: Final[Mapping[str, re.Pattern[str]]] = {
    "anew": re.compile(r"\banew\b"),
    "so many": re.compile(r"\bso (?:many|much|long|often)\b(?! (?:as|that)\b)", re.IGNORECASE),
    "behind": re.compile(r"\bbehind\b(?! (?:\w+ )?(?:prox|balancer|connection|service|the loop))", re.IGNORECASE),
    "is told": re.compile(r"\b(?:is|are|was|were|be|been|being) told\b|\b(?:tells? of|telling of|told of)\b"),
    "those who": re.compile(r"\bthose (?:who|that|which)\b", re.IGNORECASE),
    "What": re.compile(r"(?:^|[.:;!?] )What\b(?![^.]*\?)", re.MULTILINE),
    "who": re.compile(r"(?:^|[.:;!?] )Who\b(?![^.]*\?)|\b[Ww]hoever\b", re.MULTILINE),
    "he": re.compile(r"\b(?:he|him|his|himself)\b"),
}


class Found(NamedTuple):
    """An idiom in a line of prose."""

    path: str
    line: int
    idiom: str
    text: str


def prose_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield docstrings and comments with the numbers of their first lines."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield node.body[0].lineno, docstring
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def find(path: str, prose: Iterable[tuple[int, str]]) -> Iterator[Found]:
    for first, piece in prose:
        for number, line in enumerate(piece.split("\n"), first):
            for idiom, pattern in IDIOMS.items():
                for _ in pattern.finditer(line):
                    yield Found(path, number, idiom, line.strip())


def complaints(rates: Mapping[str, float], limits: Mapping[str, int]) -> list[str]:
    return [
        f"{room}: {rate:.1f} idioms for each 1,000 lines of prose, the limit is {limits[room]}: "
        "see docs/contribute/prose.md"
        for room, rate in rates.items()
        if rate > limits[room]
    ]


def read(root: Path, room: str) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    for file in sorted((root / room).rglob("*.md" if room == "docs" else "*.py")):
        text = file.read_text()
        yield file.relative_to(root).as_posix(), [(1, text)] if room == "docs" else [*prose_of(text)]


def main() -> int:
    """Print the rate of each room, or the places of one; return 1 if a room is above its limit."""
    parser = argparse.ArgumentParser(description="Count idioms of translated English in prose.")
    parser.add_argument("--list", metavar="ROOM", choices=LIMITS, help="print the places of a room")
    wanted: str | None = parser.parse_args().list
    root = Path(__file__).parents[2]
    rates = {}
    for room in LIMITS if wanted is None else (wanted,):
        lines = count = 0
        for path, prose in read(root, room):
            lines += sum(piece.count("\n") + 1 for _, piece in prose)
            for each in find(path, prose):
                count += 1
                if wanted:
                    print(f"{each.path}:{each.line}: [{each.idiom}] {each.text}")
        rates[room] = 1000 * count / max(lines, 1)
    print("; ".join(f"{room} {rate:.0f}" for room, rate in rates.items()), "idioms for each 1,000 lines of prose")
    above = complaints(rates, LIMITS)
    for line in above:
        print(f"idioms: {line}", file=sys.stderr)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
