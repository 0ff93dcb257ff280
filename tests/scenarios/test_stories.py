"""Protocol stories: see `tests.scenarios.story`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.story import STORIES, told


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    assert told(path.read_text()) == path.read_text()
