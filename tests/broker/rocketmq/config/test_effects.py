"""Each property of a RocketMQ node has an effect: it sets a field of the configuration, and the node reads that field.

A property is changed in a file of its own, and the configuration compared with that of an empty file. That the node
reads a field is found in its source, by the names that its modules have for the part of the configuration.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import broker.rocketmq
from broker.rocketmq.config.node import PropertyError, RocketConfig, load_rocketmq_config
from broker.rocketmq.config.property_tables import TABLES, Property

ROOT: Final = Path(broker.rocketmq.__file__).parent
# The modules that declare and read the properties of the file.
DECLARED: Final = {ROOT / "config" / name for name in ("node.py", "property_tables.py", "property_readers.py")}

# The names that modules have for the part of the configuration that a property sets.
RECEIVERS: Final[dict[str, set[str]]] = {
    "node": {"config"},
    "broker": {"options", "_options", "_limits", "_checks", "checks"},
    "store": {"options", "store_options"},
    "times": {"times", "_times"},
    "replication": {"options", "_options", "_times", "replication"},
    "controller": {"options", "_options", "controller"},
    "nameserver": {"bounds", "_bounds"},
    "places": {"places"},
    "tls": {"options"},
    "access": {"options", "_options", "access", "config"},
}

# Properties that set a field of another name or part, and that field.
OTHERWISE: Final = {
    "traceTopicEnable": ("broker", "trace_topic"),
    "msgTraceTopicName": ("broker", "trace_topic"),
    "migrateAuthFromV1Enabled": ("node", "plain_accounts"),
    "aclEnable": ("node", "plain_accounts"),
    # Methods of the configuration pass these on.
    "brokerIP1": ("node", "broker_options"),
    "haListenPort": ("node", "ha_listen_port"),
    "metricsExporterType": ("node", "pages_port"),
    "supportActingMaster": ("node", "nameserver_properties"),
    "notifyMinBrokerIdChanged": ("node", "nameserver_properties"),
    "tlsEnable": ("tls", "is_dialing"),
}

SECRET: Final = '{"accessKey":"a","secretKey":"b"}'
# Values for kinds of which another one does not follow from the default, by the kind's text.
OF_KIND: Final = {
    "text": "other",
    "address or name of a host": "127.0.0.9",
    "path": "other",
    "paths, separated by commas": "other",
    "HOST:PORT, separated by semicolons": "127.0.0.9:1",
    "hours, separated by semicolons": "17",
    "SYNC_FLUSH or ASYNC_FLUSH": "SYNC_FLUSH",
    "PROM, DISABLE; OTLP_GRPC and LOG as DISABLE": "PROM",
    "codes of requests, separated by commas": "10",
    "delays with a unit of s, m, h or d, separated by blanks": "7s",
    "addresses and networks, separated by commas": "192.0.2.0/24",
    "ID-HOST:PORT, separated by semicolons": "n1-127.0.0.1:9",
    "disabled, permissive, enforcing": "enforcing",
    "none, optional, require": "optional",
}
OF_PROPERTY: Final = {
    # A role of its own does not change the id of a master.
    "brokerRole": "SYNC_MASTER",
    "brokerId": "5",
    "controllerDLegerPeers": "n0-127.0.0.1:9",
    "initAuthenticationUser": '{"username":"a","password":"b"}',
    "innerClientAuthenticationCredentials": SECRET,
    "peerSecretKey": "0123456789abcdef",
}
# Properties that have an effect only with another.
WITH: Final = {
    "msgTraceTopicName": "traceTopicEnable=true",
    "brokerId": "brokerRole=SLAVE\nhaMasterAddress=127.0.0.1:1",
    "enableControllerMode": "controllerAddr=127.0.0.1:1",
}
BEFORE: Final = {"brokerId": "4"}


def other(declared: Property, name: str, default: str) -> str:
    """Return a value that is not the default."""
    if name in OF_PROPERTY:
        return OF_PROPERTY[name]
    about = declared.kind.about
    if about == "true or false":
        return "false" if default == "true" else "true"
    if about.startswith("number"):
        least = int(about.split()[1])
        return str(least if default != str(least) else least + 1)
    return OF_KIND[about]


def loaded(path: Path, *lines: str) -> RocketConfig | str:
    path.write_text("".join(f"{line}\n" for line in lines))
    try:
        return load_rocketmq_config(path)
    except PropertyError as fault:
        return str(fault)


def defaults() -> dict[str, str]:
    made = RocketConfig()
    return made.controller_properties | made.nameserver_properties | made.properties


PROPERTIES: Final = [(part, name) for part, table in TABLES.items() for name in table]


@pytest.mark.parametrize(("part", "name"), PROPERTIES)
def test_a_property_changes_the_configuration(part: str, name: str, tmp_path: Path) -> None:
    declared, default = TABLES[part][name], defaults().get(name, "")
    path = tmp_path / "broker.conf"
    rest = WITH.get(name, "")
    before = loaded(path, rest, *([f"{name}={BEFORE[name]}"] if name in BEFORE else []))
    after = loaded(path, rest, f"{name}={other(declared, name, default)}")
    assert isinstance(before, RocketConfig)
    assert isinstance(after, RocketConfig), after
    assert after != before


def read_fields() -> Iterator[tuple[str, str]]:
    """Yield the fields that the node's modules read, each with the name of the object."""
    for path in ROOT.rglob("*.py"):
        if path in DECLARED:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                match node.value:
                    case ast.Attribute(attr=receiver) | ast.Name(id=receiver):
                        yield receiver, node.attr


def test_the_node_reads_the_field_of_each_property() -> None:
    # These are looked up by the names of their fields.
    from broker.rocketmq.assembly.store_check import _FIXED

    read = {*read_fields(), *(("places", field) for field in _FIXED)}
    unread = []
    for part, name in PROPERTIES:
        where, field = OTHERWISE.get(name, (part, TABLES[part][name].field))
        if not any((receiver, field) in read for receiver in RECEIVERS[where]):
            unread.append(name)
    assert unread == []
