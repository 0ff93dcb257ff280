"""Files of definitions are read with their faults named, and compared."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bmqctl.systems.definitions.model import (
    Action,
    BadDefinitions,
    Change,
    Definitions,
    changes_between,
    one_of,
    parse_definitions,
    whole_changes,
)
from bmqctl.systems.definitions.rocketmq import checked


def definitions(**topics: dict[str, Any]) -> Definitions:
    return Definitions("RocketMQ", {"topics": topics})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "system: expected one of BlazingMQ, RocketMQ"),
        ('{"system": "Kafka"}', "system: expected one of"),
        ('{"system": "RocketMQ", "domains": {}}', "domains: RocketMQ has topics and groups"),
        ('{"system": "BlazingMQ", "topics": {}}', "topics: BlazingMQ has domains"),
        ('{"system": "RocketMQ", "topics": []}', "topics: expected an object of objects"),
        ('{"system": "RocketMQ", "topics": {"a": 1}}', "topics: expected an object of objects"),
        ('{"system": "RocketMQ", "topics": {"a": {}, "a": {}}}', "'a' occurs twice"),
    ],
)
def test_a_file_that_is_none(text: str, reason: str) -> None:
    with pytest.raises(BadDefinitions, match=reason):
        parse_definitions(text)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"perms": 6}, "topics.t.perms: there is no such field; there are attributes, order, perm"),
        ({"perm": "rw"}, "topics.t: .*perm"),
        ({"attributes": {"a": 1}}, "topics.t: .*attributes"),
    ],
)
def test_fields_that_cannot_be(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadDefinitions, match=reason):
        checked(definitions(t=fields))


def test_defaults_are_filled_in_and_a_file_is_read_as_it_was_written() -> None:
    found = checked(definitions(t={"perm": 4}))
    assert found.tables["topics"]["t"]["readQueueNums"] == 16
    assert parse_definitions(found.to_text()) == found
    assert list(json.loads(found.to_text())) == ["system", "topics"]


def test_changes() -> None:
    found = definitions(a={"x": 1, "y": {"p": True}}, b={"x": 1}, c={"x": 1})
    wanted = definitions(a={"x": 2, "y": {"p": 1}}, c={"x": 1}, d={"x": 3})
    assert list(changes_between(found, wanted)) == [
        Change(Action.CHANGE, "topics", "a", "x", 1, 2),
        Change(Action.CHANGE, "topics", "a", "y.p", True, 1),
        Change(Action.DELETE, "topics", "b", "", {"x": 1}, None),
        Change(Action.CREATE, "topics", "d", "", None, {"x": 3}),
    ]
    assert [(each.action, each.name) for each in whole_changes(found, wanted)] == [
        (Action.CHANGE, "a"),
        (Action.DELETE, "b"),
        (Action.CREATE, "d"),
    ]
    assert list(changes_between(found, Definitions("RocketMQ", {"groups": {}}))) == []


def test_brokers_that_have_not_the_same_are_named() -> None:
    holders = [("a", definitions(t={"perm": 6})), ("b", definitions(t={"perm": 6}))]
    assert one_of(holders) is holders[0][1]
    holders.append(("c", definitions(t={"perm": 4})))
    with pytest.raises(BadDefinitions, match="topics t is not the same on brokers a and c; name one of them"):
        one_of(holders)
