"""The reference of the properties of RocketMQ's nodes, from their declarations."""

from __future__ import annotations

from typing import Final

from broker.rocketmq.config.node import RocketConfig
from broker.rocketmq.config.other_stores import ASKED
from broker.rocketmq.config.property_tables import TABLES, Table
from scripts.manual.markdown import code, page, table, text

__all__ = ["properties_page"]

_SECTIONS: Final = {
    "node": "Node",
    "broker": "Broker",
    "trace": "Traces",
    "store": "Sizes of files",
    "places": "Places of files",
    "times": "Transactions",
    "replication": "Masters, slaves and controllers",
    "controller": "Controller",
    "nameserver": "Nameserver",
    "tls": "TLS",
    "access": "Access control",
}


def properties_page() -> str:
    """Return the page: a section for each part of the configuration, and the stores that are refused."""
    refused = [[code(name), text(f"refused if it asks for {each.kind}: {each.remedy}")] for name, each in ASKED.items()]
    return page(
        "# RocketMQ: properties",
        "`bmqctl start rocketmq --config FILE` reads these properties; [Configuration](../../operate/configuration.md) "
        "says how. Others have no effect, which the start and `bmqctl config validate` report. A value that cannot be "
        "used is refused. Properties marked *own* are not known to Apache's programs.",
        *(f"## {title}\n\n{_rows(TABLES[part])}" for part, title in _SECTIONS.items()),
        f"## Stores of other kinds\n\n{table(['property', 'what happens'], refused)}",
    )


def _rows(declared: Table) -> str:
    made = RocketConfig()
    defaults = made.controller_properties | made.nameserver_properties | made.properties
    rows = [
        [
            f"{code(name)} *own*" if each.is_own else code(name),
            text(each.kind.about),
            code(defaults.get(name, "")),
            text(each.meaning),
        ]
        for name, each in declared.items()
    ]
    return table(["property", "value", "default", "meaning"], rows)
