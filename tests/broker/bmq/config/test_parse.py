"""Parsing of arbitrary files: each gives a configuration or one line about the error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from broker.bmq.config.broker_schema import Configuration, LogController, StatPluginConfig
from broker.bmq.config.cluster_schema import ClustersDefinition, PartitionConfig
from broker.bmq.config.domain_schema import DomainVariant
from broker.bmq.config.errors import ConfigError
from broker.bmq.config.load import parse
from broker.bmq.config.model import Model

ROOTS: list[type[Model]] = [Configuration, ClustersDefinition, DomainVariant]
steady = settings(deadline=None, derandomize=True)


def names(model: type[Model]) -> set[str]:
    """The names of all members below a model."""
    found: set[str] = set()

    def visit(fields: dict[str, FieldInfo]) -> None:
        for field in fields.values():
            if field.alias is not None and field.alias not in found:
                found.add(field.alias)
                for inner in nested(field.annotation):
                    visit(inner.model_fields)

    visit(model.model_fields)
    return found


def nested(hint: Any) -> list[type[Model]]:
    if isinstance(hint, type) and issubclass(hint, Model):
        return [hint]
    return [model for part in getattr(hint, "__args__", ()) for model in nested(part)]


NAMES = sorted({name for root in ROOTS for name in names(root)})
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "tcp://localhost:1", "E_LEAST_ASSIGNED", "\ud800", "a\nb"])
    | st.text(max_size=5)
)
CONTENTS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    max_leaves=30,
)


def check(root: type[Model], text: bytes) -> None:
    try:
        found = parse(root, text, "file")
    except ConfigError as fault:
        told = str(fault)
    else:
        assert parse(root, found.model_dump_json(by_alias=True, exclude_none=True).encode(), "file") == found
        return
    assert told.startswith("file: ")
    assert len(told.splitlines()) == 1
    assert len(told) < 600


PARTITIONS = {
    "numPartitions": 1,
    "location": "a",
    "archiveLocation": "b",
    **dict.fromkeys(("maxDataFileSize", "maxJournalFileSize", "maxQlistFileSize"), 1 << 20),
}


@pytest.mark.parametrize(
    ("root", "content", "place"),
    [
        (PartitionConfig, PARTITIONS | {"location": "a\0b"}, "location"),
        (LogController, {"fileName": "\0"}, "fileName"),
        (StatPluginConfig, {"hosts": ["a", "b\0"]}, "hosts"),
    ],
)
def test_a_text_with_the_character_that_no_path_has_is_refused(
    root: type[Model], content: dict[str, Any], place: str
) -> None:
    with pytest.raises(ConfigError, match=rf"\$\.{place}: has the character \\u0000; remove it"):
        parse(root, json.dumps(content).encode(), "file")


def test_members_are_found_at_every_depth() -> None:
    assert {"port", "endpoint", "appIDs", "maxCSLFileSize", "boolVal", "bytesWatermarkRatio"} <= set(NAMES)


@steady
@given(st.sampled_from(ROOTS), CONTENTS)
def test_any_json(root: type[Model], content: Any) -> None:
    check(root, json.dumps(content).encode())


@steady
@given(st.sampled_from(ROOTS), st.binary(max_size=50))
def test_any_bytes(root: type[Model], text: bytes) -> None:
    check(root, text)


@pytest.mark.parametrize("text", [b'{"redirect": "\\ud800"}', b'{"redirect": 1e400}', b'{"redirect": "a\nb"}'])
def test_json_that_the_parsers_do_not_agree_on(text: bytes) -> None:
    check(DomainVariant, text)
