"""The first line of modules that mypyc compiles: it says so, and where the rules for them are.

    .venv/bin/python -m scripts.checks.compiled [--write]

Each module that packaging/compiled.toml lists as compiled begins with `LINE`, and no other does. `--write` mends them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from scripts.checks.sizes import PACKAGES
from scripts.releases import compiling

LINE = "# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.\n"


def marked(text: str, *, is_compiled: bool) -> str:
    plain = text.removeprefix(LINE)
    return LINE + plain if is_compiled else plain


def wrong(root: Path, paths: Iterable[Path]) -> dict[Path, str]:
    """Return the text that each module with a wrong first line should have."""
    compiled = set(compiling.modules(root).compiled)
    found = {}
    for path in paths:
        text = path.read_text()
        right = marked(text, is_compiled=path.relative_to(root).as_posix() in compiled)
        if right != text:
            found[path] = right
    return found


def main() -> int:
    root = Path(__file__).parents[2]
    found = wrong(root, sorted(file for package in PACKAGES for file in (root / package).rglob("*.py")))
    for path, right in found.items():
        if "--write" in sys.argv:
            path.write_text(right)
        else:
            print(f"compiled: {path.relative_to(root)}: the first line is wrong; --write mends it", file=sys.stderr)
    return 1 if found and "--write" not in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
