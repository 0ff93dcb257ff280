"""The manual has every property that RocketMQ's nodes read, from its declaration."""

from __future__ import annotations

import re

from broker.rocketmq.config.node import RocketConfig
from broker.rocketmq.config.other_stores import ASKED
from broker.rocketmq.config.property_tables import TABLES
from broker.rocketmq.nameserver import bounds
from broker.rocketmq.tables import options
from scripts.manual.configuration import properties_page


def test_each_property_is_in_the_manual_once() -> None:
    names = [name for table in (*TABLES.values(), ASKED) for name in table]
    assert sorted(re.findall(r"^\| `(\w+)`", properties_page(), re.MULTILINE)) == sorted(names)


def test_defaults_in_the_manual_can_be_read() -> None:
    made = RocketConfig()
    shown = made.controller_properties | made.nameserver_properties | made.properties
    assert len(shown) > 80
    for table in TABLES.values():
        for name, each in table.items():
            if shown.get(name):
                assert each.kind.write(each.kind.read(shown[name])) == shown[name], name


def test_refusals_name_the_property_that_sets_their_bound() -> None:
    for part, declared in (("broker", options.BOUNDS), ("nameserver", bounds.BOUNDS)):
        assert {name: TABLES[part][name].field for name in declared} == declared
