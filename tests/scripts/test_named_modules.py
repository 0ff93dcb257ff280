"""Code in strings, which no type checker reads, imports modules and names that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_MODULE = r"((?:formats|broker|bmqctl|scripts|tests)(?:\.\w+)+)"
_IMPORT = re.compile(rf"\bfrom {_MODULE} import (\w+)|\bimport {_MODULE}")

_JOINT = re.compile(r"""["']\s*f?["']""")
"""The place between two strings that the parser makes one."""

INVENTED = {"formats.fast"}
"""Modules that tests write themselves."""


@cache
def _exists(module: str, name: str | None) -> bool:
    path = ROOT / module.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not source.exists():
        return False
    if name is None or (path / name).is_dir() or (path / f"{name}.py").exists():
        return True
    return re.search(rf"\b{name}\b", source.read_text(encoding="utf-8")) is not None


def _gone_in(text: str) -> Iterator[str]:
    for found in _IMPORT.finditer(text):
        module = found[1] or found[3]
        if module not in INVENTED and not _exists(module, found[2]):
            yield found[0]


def gone(source: str) -> Iterator[str]:
    """Yield the imports in the strings of `source` whose module or name does not exist."""
    # To parse a source takes twenty times as long as to search its text, which is that of its strings, too.
    if not any(_gone_in(_JOINT.sub("", source))):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _gone_in(node.value)


def test_imports_in_strings_exist() -> None:
    modules = [path for room in ("bmqctl", "scripts", "tests") for path in sorted((ROOT / room).rglob("*.py"))]
    assert len(modules) > 1_000
    found = [(str(path.relative_to(ROOT)), *gone(path.read_text(encoding="utf-8"))) for path in modules]
    # This module's own examples are of modules that are gone.
    assert [row for row in found if len(row) > 1 and not row[0].endswith("test_named_modules.py")] == []


def test_imports_of_what_is_gone_are_found() -> None:
    source = 'a = "from broker.gone import x"\nb = f"import broker.gone; {a}"\nc = "from broker.rocketmq import gone"'
    assert set(gone(source)) == {"from broker.gone import x", "import broker.gone", "from broker.rocketmq import gone"}
    assert list(gone('("from broker."\n    "gone import x")')) == ["from broker.gone import x"]
    assert list(gone('"from broker.rocketmq import config; import bmqctl.app"')) == []
