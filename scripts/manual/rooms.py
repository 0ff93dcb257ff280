"""The map of the rooms, from the layer contracts in pyproject.toml and the first line of each package or module."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["room_table"]

ROOT: Final = Path(__file__).resolve().parents[2]


def room_table(container: str) -> str:
    """Return a Markdown table of a package's rooms by layer, the highest first."""
    layers = _layers(container)
    folder = ROOT.joinpath(*container.split("."))
    names = sorted(
        (path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()),
        key=lambda name: (-layers.get(name, 0), name),
    )
    rows = ["| layer | room | contents |", "| ---: | --- | --- |"]
    for name in names:
        if name != "__init__":
            # A package without layers is a floor: its rooms have their own table.
            rooms = _with_inner_rooms(folder / name) if layers else iter([folder / name])
            rows.extend(_row(str(layers.get(name, "")), folder, path) for path in rooms)
    return "\n".join(rows)


def _layers(container: str) -> dict[str, int]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for contract in settings["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers" and container in contract["containers"]:
            rows = reversed(contract["layers"])
            return {name.strip(): number for number, row in enumerate(rows, 1) for name in row.split("|")}
    return {}


def _with_inner_rooms(path: Path) -> Iterator[Path]:
    yield path
    if path.is_dir():
        yield from sorted(each.parent for each in path.glob("*/__init__.py"))


def _row(layer: str, folder: Path, path: Path) -> str:
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    contents = docstring.partition("\n")[0].replace("|", "\\|")
    return f"| {layer} | `{path.relative_to(folder).as_posix()}` | {contents} |"
