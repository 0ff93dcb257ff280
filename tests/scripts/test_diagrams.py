"""The diagrams in the design document and in the docstrings are those of the declarations."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_design_document_shows_the_tables_as_they_are() -> None:
    scope = runpy.run_path(str(ROOT / "scripts" / "diagrams"))
    text = (ROOT / "broker" / "DESIGN.md").read_text()
    assert scope["updated"](text) == text
    for name, state in {
        "session": "NEGOTIATING",
        "hop": "OPENING",
        "election": "SCOUTING",
        "cluster": "LDR_HEALING_STG2",
        "partition": "REPLICA_HEALING",
    }.items():
        assert f"<!-- diagram: {name} -->" in text
        assert state in scope["lifecycle_diagram"](name)


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
