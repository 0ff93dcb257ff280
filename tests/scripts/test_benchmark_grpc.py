"""The figures that scripts/benchmark-grpc makes of its client's output, and the start of Apache's proxy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.benchmark_grpc import Load, figures_of, read_load
from scripts.rocketmq_reference import ReferenceProcess

JAVA = """#!/bin/sh
echo "$@" >> {told}
case "$@" in
*ProxyStartup*) echo "Mon rocketmq-proxy startup successfully" ;;
*) echo "The Name Server boot success." ;;
esac
exec sleep 600
"""


def test_what_the_client_says_is_read() -> None:
    assert read_load("load per_s 12.5\n") == ("per_s", 12.5)
    assert read_load("INFO load per_s 12.5\n") is None
    assert read_load("load per_s\n") is None


def loads(name: str, *values: float) -> list[Load]:
    return [Load({name: value, "p99_ms": 2 * value}, 100 * value, 7) for value in values]


def test_medians_are_compared() -> None:
    figures = figures_of(
        "sends", {"ours": loads("per_s", 3, 1, 2), "reference": loads("per_s", 1, 4, 9)}, "per_s", "/s"
    )
    values = {figure.name: figure.value for figure in figures}
    assert values["ours: sends"] == 2
    assert values["reference: sends"] == 4
    assert values["ours / reference: sends"] == 0.5
    assert [figure.reached for figure in figures if figure.wanted] == [False]
    assert figures[-1].value == 0.5


def test_a_time_is_to_be_no_higher() -> None:
    found = {"ours": loads("p50_ms", 1), "reference": loads("p50_ms", 2)}
    figures = figures_of("p50", found, "p50_ms", "ms", is_rate=False)
    assert [figure.reached for figure in figures if figure.wanted] == [True]
    assert len(figures_of("p50", {"ours": loads("p50_ms", 1)}, "p50_ms", "ms")) == 4


@pytest.mark.process
@pytest.mark.timeout(30)
def test_apaches_proxy_runs_with_its_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(JAVA.format(told=tmp_path / "told"))
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{java.parent}:/usr/bin:/bin")
    with ReferenceProcess("jars", tmp_path / "node", has_proxy=True) as reference:
        assert len(reference.pids) == 2
        proxy = json.loads((tmp_path / "node" / "proxy.json").read_text())
        assert reference.endpoint == f"127.0.0.1:{proxy['grpcServerPort']}"
    # They start at the same time.
    lines = sorted((tmp_path / "told").read_text().splitlines(), key=lambda line: "ProxyStartup" in line)
    names, both = (line.split() for line in lines)
    assert names[-2:] == ["-c", str(tmp_path / "node" / "namesrv.conf")]
    options = both[both.index("org.apache.rocketmq.proxy.ProxyStartup") + 1 :]
    assert options[:4] == ["-pm", "local", "-n", reference.nameserver]
    assert options[4:] == ["-bc", str(tmp_path / "node" / "broker.conf"), "-pc", str(tmp_path / "node" / "proxy.json")]
