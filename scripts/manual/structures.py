"""Fixed-size structures: a drawing and a table of each, from its `Layout`; and the numbers in them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable
from enum import EnumType, IntEnum, IntFlag
from functools import cache
from typing import Any, get_args, get_type_hints

import formats
from formats.schema import Layout
from scripts.manual.drawing import structure_drawing
from scripts.manual.markdown import code, heading, table, text

__all__ = [
    "anchor",
    "described",
    "enumeration_sections",
    "enumerations",
    "layouts",
    "meanings",
    "places",
    "structure_page",
    "structure_section",
]

_DIAGRAM = re.compile(r"\n+\S+::[^\n]*, \d+ bytes?:\n.*", re.DOTALL)
# Modules of RocketMQ's formats whose structures go over connections.
_CARRIED = ("formats.rocketmq.remoting.batch", "formats.rocketmq.remoting.frame_layout")
# Modules whose enumerations belong to this program: no file or connection has their numbers.
_OWN = ("formats.bmq.stores.live",)
_KINDS = {"u": "unsigned", "i": "signed", "V": "bytes"}


@cache
def layouts() -> list[Layout[Any]]:
    """List the structures that `formats` declares, one for each class, by module and line."""
    found: dict[type[Any], Layout[Any]] = {}
    for module in pkgutil.walk_packages(formats.__path__, "formats."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Layout):
                found.setdefault(value.cls, value)
    return list(found.values())


def meanings(layout: Layout[Any]) -> dict[str, str]:
    hints = get_type_hints(layout.cls, include_extras=True)
    return {
        name: next((note for note in get_args(hint)[1:] if isinstance(note, str)), "") for name, hint in hints.items()
    }


def anchor(name: str) -> str:
    return name.lower()


def structure_section(layout: Layout[Any], level: int = 3) -> str:
    told = meanings(layout)
    rows = []
    at = 0
    for name, width in layout.field_bits.items():
        rows.append([str(at // 8), _bits(at, width), str(width), _kind(layout, name), code(name), _linked(told[name])])
        at += width
    size = "1 byte" if layout.size == 1 else f"{layout.size} bytes"
    return "\n\n".join(
        (
            heading(level, layout.name, anchor(layout.name)),
            f"{size}; `{layout.upstream}` in the original.",
            described(layout.cls),
            structure_drawing(f"{layout.name}, {size}", layout.field_bits),
            table(["byte", "bits", "size", "type", "field", "meaning"], rows),
        )
    )


def _bits(at: int, width: int) -> str:
    """Return the bits of its first byte, the most significant being 0; empty for whole bytes."""
    first = at % 8
    if not first and not width % 8:
        return ""
    return f"{first}" if width == 1 else f"{first}..{first + width - 1}"


def _kind(layout: Layout[Any], name: str) -> str:
    word = layout.dtype[layout.bit[name].word]
    return _KINDS[word.kind]


# Names of enumerations in a meaning become links.
_NAME = re.compile(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b")


def _linked(meaning: str) -> str:
    known = places()
    return _NAME.sub(lambda found: f"[{found[0]}]({known[found[0]]})" if found[0] in known else found[0], text(meaning))


@cache
def places() -> dict[str, str]:
    """Return the links to the sections of all structures and enumerations, from a page of the same system."""
    found = {each.name: f"{structure_page(each)}#{anchor(each.name)}" for each in layouts()}
    return found | {each.__name__: f"numbers.md#{anchor(each.__name__)}" for each in enumerations()}


def structure_page(layout: Layout[Any]) -> str:
    module = layout.cls.__module__
    return "wire.md" if module.startswith("formats.bmq.wire.") or module in _CARRIED else "files.md"


def described(declaration: object) -> str:
    """A docstring as Markdown, without the diagram for readers of the source."""
    prose = _DIAGRAM.sub("", inspect.cleandoc(inspect.getdoc(declaration) or ""))
    return "\n\n".join(_block(block) for block in prose.split("\n\n"))


def _block(block: str) -> str:
    if block.startswith("    "):
        return "```text\n" + inspect.cleandoc("\n" + block) + "\n```"
    if block.startswith(("| ", "- ")):
        return block
    return text(block)


@cache
def enumerations() -> list[EnumType]:
    """List the enumerations of numbers that `formats` declares, by module and line."""
    found: dict[str, EnumType] = {}
    for module in pkgutil.walk_packages(formats.__path__, "formats."):
        if module.name.startswith(_OWN):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, EnumType) and issubclass(value, IntEnum | IntFlag) and value.__module__ == module.name:
                found[f"{module.name}.{value.__name__}"] = value
    return list(found.values())


def enumeration_sections(declared: Iterable[EnumType], level: int = 2) -> str:
    """Each enumeration with its numbers; flags are the values of their bits."""
    blocks = []
    for each in declared:
        members: Any = each.__members__
        rows = [[_number(each, int(member)), code(name)] for name, member in members.items()]
        told = described(each) if (each.__doc__ or "").strip() else ""
        blocks += [
            heading(level, each.__name__, anchor(each.__name__)),
            told,
            table(["value", "name"], rows),
        ]
    return "\n\n".join(block for block in blocks if block)


def _number(declared: EnumType, value: int) -> str:
    return f"`{value:#x}`" if issubclass(declared, IntFlag) or value > 0xFFFF else str(value)
