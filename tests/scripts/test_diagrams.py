"""The diagrams in the design document are those of the tables."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_design_document_shows_the_tables_as_they_are() -> None:
    scope = runpy.run_path(str(ROOT / "scripts" / "diagrams"))
    text = (ROOT / "broker" / "DESIGN.md").read_text()
    assert scope["updated"](text) == text
    assert "NEGOTIATING" in scope["session_diagram"]()
