"""The table of scenarios, the plans that they make, and the definitions of their domains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bmqctl.bench.brokers import write_domains
from bmqctl.bench.scenarios import SCENARIOS, UnknownScenario, matching
from bmqctl.bench.stamp import Source
from broker.bmq.config.domain_schema import DomainVariant
from broker.bmq.config.load import parse
from tests.bmqctl.bench.plans import PLAN


def test_the_published_loads_are_there_at_each_level_and_on_each_route() -> None:
    loads = ["priority-1q", "priority-10q", "priority-50q", "priority-100q", "fanout-5c", "fanout-30c"]
    for load in loads:
        for level in ("strong", "eventual"):
            for route in ("direct", "proxy"):
                scenario = SCENARIOS[f"{load}-{level}-{route}"]
                assert (scenario.consistency, scenario.route) == (level, route)
    assert SCENARIOS["priority-50q-strong-direct"].notation == "50Q, 50P, 50C"
    assert SCENARIOS["fanout-5c-eventual-proxy"].published_rate == 20_000
    assert SCENARIOS["broadcast-10c-direct"].notation == "1Q, 1P, 10C"


@pytest.mark.parametrize(
    ("patterns", "count"),
    [
        (["priority-1q-strong-direct"], 1),
        (["priority-1q"], 4),
        (["priority-1q", "priority-1q-strong"], 4),
        (["priority-*-strong-direct"], 4),
        (["fanout", "broadcast"], 14),
        (["*"], len(SCENARIOS)),
        ([], 0),
    ],
)
def test_patterns(patterns: list[str], count: int) -> None:
    found = matching(patterns)
    assert len({scenario.name for scenario in found}) == len(found) == count


@pytest.mark.parametrize("pattern", ["priority-1", "nothing", "", "fanout-5c-strong-direct-"])
def test_a_pattern_without_a_scenario(pattern: str) -> None:
    with pytest.raises(UnknownScenario):
        matching([pattern])


def test_queues_have_a_producer_and_a_consumer_each() -> None:
    plan = SCENARIOS["priority-10q-strong-direct"].plan(PLAN, "run", 2)
    assert (plan.all_producers, plan.all_consumers, plan.copies) == (10, 10, 1)
    queues = {f"bmq://bench.priority.strong/run-{number}" for number in range(10)}
    assert {plan.producer_uri(index) for index in range(10)} == queues
    assert {plan.consumer_uri(index) for index in range(10)} == queues
    assert [plan.source(index) for index in (0, 9)] == [Source(0, 0), Source(9, 0)]


def test_each_app_of_a_fan_out_has_a_consumer() -> None:
    plan = SCENARIOS["fanout-30c-eventual-proxy"].plan(PLAN, "run", 2)
    assert (plan.all_producers, plan.all_consumers, plan.copies) == (1, 30, 30)
    assert plan.producer_uri(0) == "bmq://bench.fanout30.eventual/run"
    assert [plan.consumer_uri(index) for index in (0, 29)] == [
        f"bmq://bench.fanout30.eventual/run?id=app{number}" for number in (1, 30)
    ]
    assert len({plan.source(index) for index in range(30)}) == 30


def test_each_consumer_of_a_broadcast_is_given_each_message() -> None:
    plan = SCENARIOS["broadcast-5c-proxy"].plan(PLAN, "run", 2)
    assert (plan.all_consumers, plan.copies) == (5, 5)
    assert {plan.consumer_uri(index) for index in range(5)} == {"bmq://bench.broadcast/run"}
    assert [plan.source(index).group for index in range(5)] == [0, 1, 2, 3, 4]


def test_the_domains_are_those_that_a_broker_reads(tmp_path: Path) -> None:
    files = write_domains(tmp_path / "new" / "domains", "east")
    read = {}
    for file in files:
        definition = parse(DomainVariant, file.read_bytes(), str(file)).definition
        assert definition is not None
        assert definition.location == "east"
        assert definition.parameters.name == file.stem
        read[file.stem] = json.loads(file.read_text())["definition"]["parameters"]
    assert {scenario.domain for scenario in SCENARIOS.values()} == set(read)
    assert read["bench.fanout5.strong"]["mode"] == {"fanout": {"appIDs": ["app1", "app2", "app3", "app4", "app5"]}}
    assert read["bench.priority.strong"]["consistency"] == {"strong": {}}
    assert read["bench.broadcast"]["storage"]["config"] == {"inMemory": {}}
