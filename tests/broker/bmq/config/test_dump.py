"""Configurations as JSON: what is written is what was read, with the defaults."""

from __future__ import annotations

import json
from pathlib import Path

from broker.bmq.config import default_config
from broker.bmq.config.broker_schema import Configuration
from broker.bmq.config.domain_schema import DomainVariant
from broker.bmq.config.dump import to_json
from broker.bmq.config.load import load_broker_config, parse
from tests.rigs.config_files import write_config


def test_names_defaults_and_what_is_left_out(tmp_path: Path) -> None:
    config = load_broker_config(write_config(tmp_path / "etc"))
    found = to_json(config.broker.app_config)
    assert found["networkInterfaces"]["tcpInterface"]["port"] == 30114
    assert found["bmqconfConfig"] == {"cacheTTLSeconds": 30}
    assert found["messagePropertiesV2"]["minCppSdkVersion"] == 11207
    assert "listeners" not in found["networkInterfaces"]["tcpInterface"]
    assert "tlsConfig" not in found
    assert found["stats"]["printer"]["encoding"] == "TABLE_AND_JSON"


def test_dumped_configuration_reads_as_the_same() -> None:
    broker = default_config().broker
    assert parse(Configuration, json.dumps(to_json(broker)).encode(), "dump") == broker


def test_every_domain_reads_as_the_same() -> None:
    source = default_config().domains
    for name in source.names():
        found = source.read(name)
        assert found is not None
        assert parse(DomainVariant, json.dumps(to_json(found[1])).encode(), "dump") == found[1]
