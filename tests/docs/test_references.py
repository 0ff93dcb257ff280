"""Pages for contributors: files that they name exist, pages of the design are short, and each program has its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *sorted((DOCS / "design").glob("*.md")),
    *sorted((DOCS / "contribute").glob("*.md")),
    ROOT / "CONTRIBUTING.md",
]
LINES_MAX = 110

_FLOORS = ("formats/", "broker/", "bmqctl/", "scripts/", "tests/", "packaging/", "docs/")


def missing(page: str) -> Iterator[str]:
    """Yield the files and folders that a page names in backticks and that do not exist.

    A module without its folder is looked for in the rooms that the page names with a slash at the end.
    """
    quoted = re.findall(r"`([\w./-]+)`", page)
    rooms = [ROOT / name for name in quoted if name.startswith(_FLOORS) and name.endswith("/")]
    for name in quoted:
        if name.startswith(_FLOORS):
            places = [ROOT / name]
        elif name.endswith(".py"):
            places = [room / name for room in (ROOT, *rooms)]
        else:
            continue
        if not any(place.exists() for place in places):
            yield name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_a_page_names_exist(page: Path) -> None:
    assert list(missing(page.read_text(encoding="utf-8"))) == []


def test_names_of_files_that_are_gone_are_found() -> None:
    page = "`broker/bmq/queue/`: `routing.py`, `gone.py`, `broker/bmq/gone.py`, `scripts/gone`, `scripts/check`"
    assert list(missing(page)) == ["gone.py", "broker/bmq/gone.py", "scripts/gone"]


@pytest.mark.parametrize("page", sorted((DOCS / "design").glob("*.md")), ids=lambda page: page.stem)
def test_page_of_the_design_is_short(page: Path) -> None:
    written = re.sub(r"<!-- \w+: .*?<!-- end -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(written.splitlines()) <= LINES_MAX


def test_each_program_and_folder_of_scripts_has_a_line() -> None:
    page = (DOCS / "contribute" / "scripts.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    told = set(re.findall(r"`(scripts/[\w-]+/?)`", "\n".join(row.split("|")[1] for row in rows)))
    programs = {
        f"scripts/{path.name}{'/' if path.is_dir() else ''}"
        for path in (ROOT / "scripts").iterdir()
        if not path.suffix and path.name != "__pycache__"
    }
    assert told == programs
