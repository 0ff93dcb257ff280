"""The metrics of bridges, as a Prometheus reads them."""

from __future__ import annotations

from collections import Counter

from bmqctl.carrying.bridge.account import Account
from bmqctl.carrying.bridge.metrics import metrics_text


def test_each_bridge_has_each_metric() -> None:
    account = Account(10, 4, 1, Counter(wide=2), 5, 600)
    text = metrics_text([("orders", account), ('a"b\\c\nd', Account())])
    lines = text.splitlines()
    assert text.endswith("\n")
    assert lines[:4] == [
        "# HELP bmqctl_bridge_taken_total Messages delivered by the source.",
        "# TYPE bmqctl_bridge_taken_total counter",
        'bmqctl_bridge_taken_total{bridge="orders"} 10',
        'bmqctl_bridge_taken_total{bridge="a\\"b\\\\c\\nd"} 0',
    ]
    found = dict(line.rsplit(" ", 1) for line in lines if "orders" in line)
    assert {name.split("{")[0].removeprefix("bmqctl_bridge_"): int(value) for name, value in found.items()} == {
        "taken_total": 10,
        "delivered_total": 4,
        "refused_total": 2,
        "returned_total": 1,
        "repeated_total": 5,
        "delivered_bytes_total": 600,
        "in_flight": 3,
    }
    assert "# TYPE bmqctl_bridge_in_flight gauge" in lines
