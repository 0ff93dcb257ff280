"""Statistics and latencies: figures, and the lines that tell them."""

from __future__ import annotations

import json

from bmqctl.cli.tool.latency import Latencies
from bmqctl.cli.tool.stats import Stats, header


def test_a_line_tells_what_came_since_the_last() -> None:
    stats = Stats()
    stats.add(100, 51_200, 10, 60_000)
    before = stats.copy()
    stats.add(3000, 3 << 20, 30, 3 << 20)
    assert stats.line(before, 2.0, "consumed", latency=False) == (
        "consumed |         1,500 |         3,000 |       1.50 MB ||            15 |            30 |       1.50 MB"
    )


def test_a_line_tells_the_latencies_since_the_last() -> None:
    stats = Stats()
    for latency in (1000, 3000):
        stats.add_latency(latency)
    line = stats.line(stats.copy(), 1.0, "consumed", latency=True)
    assert line.endswith(" ||       1.00 us <        2.00 us <        3.00 us")
    assert stats.line(stats.copy(), 1.0, "consumed", latency=True).endswith(
        " ||          0 ns <           0 ns <           0 ns"
    )
    assert stats.final("consumed", latency=True).endswith("~ latency { 1.00 us < 3.00 us }")


def test_the_last_line_tells_all() -> None:
    stats = Stats()
    assert stats.final("produced", latency=False) == "\nFinal stats: produced 0 messages [0  B] in 0 events [0  B]"
    stats.add(2000, 2_048_000, 20, 2_133_333)
    assert stats.final("produced", latency=False) == (
        "\nFinal stats: produced 2,000 messages [1.95 MB] in 20 events [2.03 MB] (Protocol: 4%)"
    )


def test_titles_stand_above_their_columns() -> None:
    for latency in (False, True):
        first, second = header(latency=latency).split("\n")
        line = Stats().line(Stats(), 1.0, "consumed", latency=latency)
        bars = [at for at, sign in enumerate(second) if sign == "+"]
        assert [at for at, sign in enumerate(first) if sign == "|"] == bars
        assert [at for at, sign in enumerate(line) if sign == "|"] == bars


def test_latencies_keep_three_digits() -> None:
    latencies = Latencies("ack")
    for value in (0, 999, 1000, 1001, 123_456, 123_999):
        latencies.add(value)
    assert json.loads(latencies.report())["dataPoints"] == {"0": 1, "999": 1, "1000": 2, "123000": 2}
    assert len(latencies) == 6


def test_a_report_has_the_references_keys() -> None:
    latencies = Latencies("end2end")
    for value in range(1, 101):
        latencies.add(value)
    report = json.loads(latencies.report())
    assert list(report) == [
        "origin", "min", "max", "avg", "median",
        "95percentile", "96percentile", "97percentile", "98percentile", "99percentile", "dataPoints",
    ]  # fmt: skip
    assert (report["origin"], report["min"], report["max"], report["avg"], report["median"]) == (
        "end2end",
        1,
        100,
        50,
        50,
    )
    assert [report[f"{n}percentile"] for n in range(95, 100)] == [95, 96, 97, 98, 99]
    assert latencies.summary().splitlines()[:4] == [
        "    totalCount......: 100",
        "    min.............: 1 ns",
        "    avg.............: 50 ns",
        "    max.............: 100 ns",
    ]
    assert "    99Percentile....: 99 ns" in latencies.summary()


def test_without_latencies_all_is_zero() -> None:
    report = json.loads(Latencies("ack").report())
    assert report.pop("dataPoints") == {}
    assert set(report.values()) == {"ack", 0}
