"""Each of these names is written in one module, which all others import."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from formats.rocketmq import topic_names

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", ["AUTO_CREATE_TOPIC", "DEAD_LETTER_PREFIX", "RETRY_PREFIX"])
def test_a_name_stands_in_one_module(name: str) -> None:
    text = getattr(topic_names, name)
    places = [
        path.relative_to(ROOT).as_posix()
        for package in ("bmqctl", "broker", "formats")
        for path in (ROOT / package).rglob("*.py")
        if text in (source := path.read_text())
        and any(isinstance(node, ast.Constant) and node.value == text for node in ast.walk(ast.parse(source)))
    ]
    assert places == ["formats/rocketmq/topic_names.py"]
