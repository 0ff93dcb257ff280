"""The figures that scripts/benchmark-grpc makes of its client's output, and the start of Apache's proxy."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.bench.grpc import CLIENT_PROCESSES, Load, figures_of, read_load
from scripts.judges.children import descendants, is_running
from scripts.judges.rocketmq_reference import ReferenceProcess
from tests.waiting import WAIT_S

JAVA = """#!/bin/sh
echo "$@" >> {told}
case "$@" in
*ProxyStartup*) echo "Mon rocketmq-proxy startup successfully" ;;
*) echo "The Name Server boot success." ;;
esac
exec sleep 600
"""


def test_output_of_the_client_is_read() -> None:
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


# As the program runs, but with a client of its own, which says its process id and does nothing.
ENDED = """
import runpy, sys
from pathlib import Path
import scripts.judges.client_environment
client = Path(sys.argv.pop(1))
scripts.judges.client_environment.client_python = lambda package, name: client
runpy.run_module("scripts.bench.grpc", run_name="__main__")
"""
IDLE = """#!/bin/sh
echo $$ >> {pids}
exec sleep 600
"""


@pytest.mark.process
@pytest.mark.parametrize("case", ["idle", "sends"])
def test_told_to_end_it_ends_what_it_has_started(tmp_path: Path, case: str) -> None:
    client, pids = tmp_path / "client", tmp_path / "pids"
    client.write_text(IDLE.format(pids=pids))
    client.chmod(0o755)
    words = [sys.executable, "-c", ENDED, str(client), case, "--consumers", "4"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wanted = CLIENT_PROCESSES if case == "idle" else 1
        while not pids.exists() or len(pids.read_text().splitlines()) < wanted:
            assert process.poll() is None
            time.sleep(0.05)
        started = descendants(process.pid)
        assert len(started) == wanted + 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) != 0
    assert not [pid for pid in started if is_running(pid)]


@pytest.mark.process
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
