"""Compare the wheel of a checkout with the one made of its sdist.

    python -m scripts.releases.same_wheels WHEEL OTHER

They must have the same files except the one with the commit, which only a checkout has, and the list of files. Exits
with 1 if not.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

__all__ = ["differences"]

OF_THE_COMMIT = ("bmqctl/commit.txt", ".dist-info/RECORD")


def differences(wheel: Path, other: Path) -> list[str]:
    """List the files that only one of two wheels has, or that differ."""
    first, second = _sums(wheel), _sums(other)
    return [
        f"{name}: {'differs' if name in first and name in second else f'only in {(wheel, other)[name in second].name}'}"
        for name in sorted(first.keys() | second.keys())
        if not name.endswith(OF_THE_COMMIT) and first.get(name) != second.get(name)
    ]


def _sums(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.CRC for entry in archive.infolist()}


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: python -m scripts.releases.same_wheels WHEEL OTHER")
    found = differences(Path(sys.argv[1]), Path(sys.argv[2]))
    for line in found:
        print(f"same_wheels: {line}", file=sys.stderr)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
