"""Hosts as command lines and configurations write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.bmq.config.broker_schema import StatPluginConfigPrometheus, TcpInterfaceListener
from broker.bmq.config.errors import ConfigError
from broker.bmq.config.load import parse
from broker.rocketmq.config.property_readers import PropertyError
from broker.rocketmq.config.property_tables import read_property
from formats.addresses import read_host

HOSTS = {
    "::1": "::1",
    "[::1]": "::1",
    "fe80::1%lo": "fe80::1%lo",
    "0.0.0.0": "0.0.0.0",
    "a-b.c": "a-b.c",
}
NO_HOSTS = ("", "a/b", "[", "[]", "a]", "x:y", "::1%", "a b", "a\nb", "1:2:3", "[[::1]]", "tcp://h", "a\0")


def _listener(text: str) -> str:
    read = parse(TcpInterfaceListener, json.dumps({"name": "a", "port": 1, "address": text}).encode(), "file")
    return read.address


def _metrics(text: str) -> str:
    return parse(StatPluginConfigPrometheus, json.dumps({"host": text}).encode(), "file").host


def _property(name: str) -> Callable[[str], Any]:
    return lambda text: read_property(Path("broker.conf"), "node", name, text)


READERS: dict[str, Callable[[str], Any]] = {
    "text": read_host,
    "a listener of BlazingMQ": _listener,
    "metrics of BlazingMQ": _metrics,
    **{name: _property(name) for name in ("bindAddress", "brokerIP1", "metricsPromExporterHost")},
}


@pytest.mark.parametrize("reader", READERS)
def test_a_host_loses_its_brackets_and_any_other_text_is_refused(reader: str) -> None:
    assert {text: READERS[reader](text) for text in HOSTS} == HOSTS
    for text in NO_HOSTS:
        with pytest.raises(
            (ValueError, ConfigError, PropertyError), match="is neither an address nor the name of a host"
        ):
            READERS[reader](text)
