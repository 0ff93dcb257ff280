"""The diagrams and maps in the manual and in the docstrings are those of the declarations."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_pages_show_the_declarations_as_they_are() -> None:
    scope = runpy.run_path(str(ROOT / "scripts" / "diagrams"))
    pages = {page.name: page.read_text() for page in (ROOT / "docs").rglob("*.md")}
    stale = [name for name, text in pages.items() if scope["updated"](text) != text]
    assert stale == [], "scripts/diagrams --write updates them"


def test_each_lifecycle_is_on_its_page_and_in_the_list() -> None:
    scope = runpy.run_path(str(ROOT / "scripts" / "diagrams"))
    listed = (ROOT / "docs" / "contribute" / "ordering-and-lifecycles.md").read_text()
    for name, lifecycle in scope["LIFECYCLES"].items():
        assert scope["lifecycle_diagram"](name) in (ROOT / "docs" / lifecycle.page).read_text()
        assert f"`{lifecycle.variable}` | [{Path(lifecycle.page).stem}]" in listed
    assert "RUNNING      --disconnect-->" in scope["lifecycle_diagram"]("session")


def test_map_has_each_room_with_its_layer() -> None:
    text = (ROOT / "docs" / "contribute" / "layout.md").read_text()
    for container in ("formats.bmq", "formats.rocketmq", "broker", "broker.bmq", "broker.rocketmq", "bmqctl"):
        assert f"<!-- rooms: {container} -->" in text
    assert "| 1 | `store` | Offsets, appends and recovery over writable buffers;" in text
    assert "`consuming/pop` | POP:" in text


def test_docstrings_show_the_structures_as_they_are() -> None:
    scope = runpy.run_path(str(ROOT / "scripts" / "diagrams"))
    layouts = scope["layouts"]()
    assert len(layouts) > 30
    for layout in layouts:
        path = Path(inspect.getsourcefile(layout.cls) or "")
        assert scope["documented"](path.read_text(), layout) == path.read_text()


def test_diagram_is_put_into_a_docstring_once() -> None:
    scope = runpy.run_path(str(ROOT / "scripts" / "diagrams"))
    (layout,) = (each for each in scope["layouts"]() if each.name == "RdaInfo")
    source = 'class RdaInfo(NamedTuple):\n    """The byte."""\n\n    unlimited: int\n'
    drawn = """class RdaInfo(NamedTuple):
    \"\"\"The byte.

    bmqp::RdaInfo, 1 byte:

        0 | unlimited 1 | poisonous 1 | counter 6 |
    \"\"\"

    unlimited: int
"""
    assert scope["documented"](source, layout) == drawn
    assert scope["documented"](drawn, layout) == drawn
