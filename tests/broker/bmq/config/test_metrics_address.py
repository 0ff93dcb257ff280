"""The address of a broker's metrics: of the reference's plugin, or of the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from broker.bmq.config import NodeConfig, default_config
from broker.bmq.config.broker_schema import AppConfig

PLUGIN = "PrometheusStatConsumer"


def configured(specific: dict[str, Any] | None, *, enabled: bool = True) -> NodeConfig:
    config = default_config()
    found = config.broker.app_config.model_dump(by_alias=True, mode="json", exclude_none=True)
    plugin = {"name": PLUGIN} | ({} if specific is None else {"prometheusSpecific": specific})
    found["stats"] = {"plugins": [{"name": "Other"}, plugin]}
    found["plugins"] = {"libraries": ["./"], "enabled": [PLUGIN] if enabled else []}
    broker = config.broker.model_copy(update={"app_config": AppConfig.model_validate_json(json.dumps(found))})
    return replace(config, broker=broker)


@pytest.mark.parametrize(
    ("config", "address"),
    [
        (default_config(), None),
        (configured({"mode": "E_PULL", "host": "0.0.0.0", "port": 9100}), ("0.0.0.0", 9100)),
        (configured({}), ("127.0.0.1", 8080)),
        (configured(None), None),
        (configured({"port": 9100}, enabled=False), None),
        # Nothing is pushed to anybody.
        (configured({"mode": "E_PUSH", "port": 9091}), None),
    ],
)
def test_the_plugin_of_the_reference(config: NodeConfig, address: tuple[str, int] | None) -> None:
    assert config.metrics_address == address


def test_options_precede_the_configuration() -> None:
    configured_one = configured({"host": "0.0.0.0", "port": 9100})
    assert default_config().changed(metrics_port=9200).metrics_address == ("127.0.0.1", 9200)
    assert configured_one.changed(metrics_port=9200).metrics_address == ("0.0.0.0", 9200)
    assert configured_one.changed(metrics_host="127.0.0.2").metrics_address == ("127.0.0.2", 9100)
    assert configured({"mode": "E_PUSH"}).changed(metrics_port=9200).metrics_address == ("127.0.0.1", 9200)
    changed = configured_one.changed(metrics_port=9200).broker.app_config
    assert [plugin.name for plugin in changed.stats.plugins] == ["Other", PLUGIN]
