"""The configuration's reference: a page for each file, from its model."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from broker.bmq.config.broker_schema import Configuration
from broker.bmq.config.cluster_schema import ClustersDefinition
from broker.bmq.config.domain_schema import DomainVariant
from broker.bmq.config.model import Choice, NoEffect
from broker.rocketmq.config.node import RocketConfig
from broker.rocketmq.config.other_stores import ASKED
from broker.rocketmq.config.property_tables import TABLES, Table
from scripts.manual.markdown import code, heading, page, table, text
from scripts.manual.structures import anchor, described

__all__ = ["FILES", "configuration_pages", "meanings", "models", "properties_page"]

FILES: dict[str, tuple[str, type[BaseModel], str]] = {
    "broker.md": ("bmqbrkrcfg.json", Configuration, "The process: its network, its log, who may connect."),
    "clusters.md": (
        "clusters.json",
        ClustersDefinition,
        "The clusters that a node is in, or is a proxy to. A file `proxyclusters/<name>.json` holds one "
        "[ClusterProxyDefinition](#clusterproxydefinition).",
    ),
    "domains.md": ("domains/<name>.json", DomainVariant, "One domain: the parameters of its queues."),
}

_RANGES = {
    (-(1 << 31), (1 << 31) - 1): "32-bit integer",
    (0, (1 << 32) - 1): "unsigned 32-bit integer",
    (-(1 << 63), (1 << 63) - 1): "64-bit integer",
    (0, (1 << 64) - 1): "unsigned 64-bit integer",
    (0, 65535): "port",
    (-1, 65535): "port, or -1",
}


def configuration_pages() -> dict[str, str]:
    pages = {
        path: page(f"# {text(name)}", about, *(_section(model) for model in models(root)))
        for path, (name, root, about) in FILES.items()
    }
    pages["rocketmq.md"] = properties_page()
    pages["index.md"] = page(
        "# Configuration",
        "A node reads the files of the BlazingMQ broker. Elements that are not in these tables are ignored. An "
        "integer or a boolean may be quoted. `bmqctl start node DIRECTORY` reports the first fault with its file, the "
        "path to the element and a remedy.",
        table(["file", "content"], [[f"[`{n}`]({path})", about] for path, (n, _, about) in FILES.items()]).replace(
            "(#clusterproxydefinition)", "(clusters.md#clusterproxydefinition)"
        ),
        "A RocketMQ node reads one file of [properties](rocketmq.md).",
    )
    return pages


def models(root: type[BaseModel]) -> list[type[BaseModel]]:
    """List a model and all its parts, each after its own parts."""
    found: dict[type[BaseModel], None] = {root: None}
    for model in found.copy():
        _reach(model, found)
    return list(found)


def _reach(model: type[BaseModel], found: dict[type[BaseModel], None]) -> None:
    for field in model.model_fields.values():
        for inner in _models_in(field.annotation):
            if inner not in found:
                found[inner] = None
                _reach(inner, found)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models_in(each)


@cache
def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return the meaning of each field that has one.

    It is the string below the field in the source of the class or its bases, or why the field has no effect.
    """
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if cls is BaseModel or not issubclass(cls, BaseModel):
            continue
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        assert isinstance(node, ast.ClassDef)
        for field, below in zip(node.body, node.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
                and isinstance(below.value.value, str)
            ):
                found[field.target.id] = " ".join(below.value.value.split())
    for name, about in model.model_fields.items():
        for note in about.metadata:
            if isinstance(note, NoEffect):
                found[name] = f"No effect, because {note.reason}."
    return found


def _section(model: type[BaseModel]) -> str:
    told = meanings(model)
    rows = [
        [code(field.alias or name), _type(field.annotation, field.metadata), _default(field), text(told.get(name, ""))]
        for name, field in model.model_fields.items()
    ]
    return "\n\n".join(
        block
        for block in (
            heading(2, model.__name__, anchor(model.__name__)),
            described(model) if model.__dict__.get("__doc__") else "",
            "Exactly one of these elements is given." if issubclass(model, Choice) else "",
            table(["element", "type", "default", "meaning"], rows) or "It has no elements: `{}`.",
        )
        if block
    )


def _type(annotation: Any, metadata: list[Any]) -> str:
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        notes = [each for note in notes for each in (note.metadata if isinstance(note, FieldInfo) else [note])]
        return _type(inner, [*metadata, *notes])
    if get_origin(annotation) in (Union, UnionType):
        (inner,) = (each for each in get_args(annotation) if each is not NoneType)
        return _type(inner, metadata)
    if get_origin(annotation) is tuple:
        return f"list of {_type(get_args(annotation)[0], [])}" + _bounds(
            metadata, "{} element at least", "{} elements at most"
        )
    if annotation is bool:
        return "boolean"
    if annotation is int or annotation is float:
        return _number(annotation, metadata)
    if annotation is SecretStr:
        return "text, secret"
    if annotation is str:
        return "text" + _bounds(metadata, "not empty", "{} characters at most")
    if issubclass(annotation, Enum):
        return "one of " + ", ".join(code(member.value) for member in annotation)
    return f"[{annotation.__name__}](#{anchor(annotation.__name__)})"


def _number(kind: type, metadata: list[Any]) -> str:
    least = next((note.ge for note in reversed(metadata) if isinstance(note, Ge)), None)
    most = next((note.le for note in reversed(metadata) if isinstance(note, Le)), None)
    name = "number" if kind is float else _RANGES.get((least, most), "integer")  # type: ignore[arg-type]
    if name not in ("number", "integer") or (least is None and most is None):
        return name
    return f"{name}, {least}..{most}"


def _bounds(metadata: list[Any], least: str, most: str) -> str:
    told = [least.format(note.min_length) for note in metadata if isinstance(note, MinLen) and note.min_length]
    told += [most.format(note.max_length) for note in metadata if isinstance(note, MaxLen)]
    return "".join(f", {each}" for each in told)


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is PydanticUndefined:
        return "required"
    if value is None or value == ():
        return ""
    if isinstance(value, BaseModel):
        chosen = value.model_dump(by_alias=True, exclude_none=True) if isinstance(value, Choice) else {}
        return code(next(iter(chosen), "")) if chosen else "its defaults"
    if isinstance(value, Enum):
        return code(value.value)
    if isinstance(value, bool):
        return code(str(value).lower())
    return '`""`' if value == "" else code(", ".join(value) if isinstance(value, tuple) else value)


_SECTIONS: Final = {
    "node": "Node",
    "broker": "Broker",
    "trace": "Traces",
    "store": "Sizes of files",
    "places": "Places of files",
    "times": "Transactions",
    "replication": "Masters, slaves and controllers",
    "controller": "Controller",
    "nameserver": "Nameserver",
    "tls": "TLS",
    "access": "Access control",
}


def properties_page() -> str:
    """Return the page: a section for each part of the configuration, and the refused stores."""
    refused = [[code(name), text(f"refused if it asks for {each.kind}: {each.remedy}")] for name, each in ASKED.items()]
    return page(
        "# RocketMQ: properties",
        "`bmqctl start rocketmq --config FILE` reads these properties; [Configuration](../../operate/configuration.md) "
        "says how. Others have no effect, which the start and `bmqctl config validate` report. A value that cannot be "
        "used is refused. Properties marked *own* are not known to Apache's programs.",
        *(f"## {title}\n\n{_rows(TABLES[part])}" for part, title in _SECTIONS.items()),
        f"## Stores of other kinds\n\n{table(['property', 'what happens'], refused)}",
    )


def _rows(declared: Table) -> str:
    made = RocketConfig()
    defaults = made.controller_properties | made.nameserver_properties | made.properties
    rows = [
        [
            f"{code(name)} *own*" if each.is_own else code(name),
            text(each.kind.about),
            code(defaults.get(name, "")),
            text(each.meaning),
        ]
        for name, each in declared.items()
    ]
    return table(["property", "value", "default", "meaning"], rows)
