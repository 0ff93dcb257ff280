"""The manual has every property that RocketMQ's nodes read, and the defaults of those that only they have."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from broker.rocketmq.assembly import config
from broker.rocketmq.assembly.access_config import ACCESS_READERS
from broker.rocketmq.assembly.other_stores import KIND_PROPERTIES
from broker.rocketmq.assembly.places import PLACES
from broker.rocketmq.nameserver import bounds
from broker.rocketmq.tables import options

MANUAL = Path(__file__).resolve().parents[2] / "docs" / "operate"
ROW = re.compile(r"\| `(\w+)` \| (\w+) \|")


def tables() -> list[dict[str, tuple[Any, str]]]:
    """The tables of properties of a configuration file."""
    return [config._NODE, config._BROKER, config._STORE, config._TIMES, config._REPLICATION, config._CONTROLLER]


def test_each_property_is_in_the_manual() -> None:
    text = "\n".join(page.read_text() for page in MANUAL.glob("*.md"))
    names = {name for table in (*tables(), PLACES) for name in table} | set(bounds.BOUNDS) | set(ACCESS_READERS)
    names |= KIND_PROPERTIES
    assert len(names) > 80
    assert [name for name in sorted(names) if f"`{name}" not in text and f"{name}=" not in text] == []


@pytest.mark.parametrize("kind", [options, bounds])
def test_the_defaults_of_bounds_are_those_of_the_manual(kind: Any) -> None:
    shown = dict(ROW.findall((MANUAL / "configuration.md").read_text()))
    made = options.BrokerOptions() if kind is options else bounds.NameserverBounds()
    assert {name: shown.get(name) for name in kind.BOUNDS} == {
        name: str(getattr(made, attribute)) for name, attribute in kind.BOUNDS.items()
    }
    assert {each.name for each in fields(made)} >= set(kind.BOUNDS.values())
