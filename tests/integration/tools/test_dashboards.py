"""The metrics that dashboards and alert rules use, on the pages of real brokers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import trio
import yaml
from prometheus_client.parser import text_string_to_metric_families

import bmqctl.client.rocketmq as rocketmq
from scripts.releases.dashboards import DASHBOARDS, FOLDER
from scripts.releases.metric_names import metric_names
from scripts.suites.prometheus import GROUP, TOPIC, page_of, use, watched_brokers
from tests.waiting import WAIT_S, eventually

# The metric that Prometheus makes for each target itself.
OF_PROMETHEUS = {"up"}


def names_of(port: int) -> set[str]:
    return {sample.name for family in text_string_to_metric_families(page_of(port)) for sample in family.samples}


def expressions() -> list[str]:
    found = []
    for dashboard in DASHBOARDS:
        panels = json.loads((FOLDER / f"{dashboard.name}.json").read_text())["panels"]
        found += [target["expr"] for panel in panels for target in panel.get("targets", ())]
        found += [variable.metric for variable in dashboard.variables]
    rules = yaml.safe_load((FOLDER.parent / "prometheus" / "alerts.yml").read_text())
    return found + [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


@pytest.mark.process
def test_every_metric_is_one_that_brokers_have(tmp_path: Path) -> None:
    with watched_brokers(tmp_path) as watched:
        trio.run(use, watched)
        exported = names_of(watched.node_port)

        def of_rocketmq() -> set[str] | None:
            # The message is on its way to the dead letters, and a client that has left is still counted, or not.
            found = names_of(watched.broker_port)
            return found if "rocketmq_send_to_dlq_messages_total" in found else None

        exported |= eventually(of_rocketmq, WAIT_S)

        async def connections() -> set[str]:
            async with rocketmq.connect(f"rocketmq://{watched.broker.nameserver}") as session:
                await session.producer(TOPIC)
                await session.consume(TOPIC, GROUP)
                return await trio.to_thread.run_sync(names_of, watched.broker_port)

        exported |= trio.run(connections)
    assert len(expressions()) > 40
    for expression in expressions():
        plain, patterns = metric_names(expression)
        assert plain - exported - OF_PROMETHEUS == set(), expression
        for pattern in patterns:
            assert any(re.fullmatch(pattern, name) for name in exported), expression
