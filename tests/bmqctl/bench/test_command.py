from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.bench.coordinator import Outcome
from bmqctl.bench.engines import official
from bmqctl.bench.plan import Plan
from bmqctl.bench.tally import ProducerTally, settle
from bmqctl.cli.run import bench_series
from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import NodeProcess

Runner = Callable[..., Any]


@pytest.fixture
def bench() -> Runner:
    return lambda *arguments: CliRunner().invoke(app, ["bench", *arguments])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--broker", "http://x"), "expected tcp://HOST:PORT"),
        (("--broker", "tcp://x:99999"), "expected tcp://HOST:PORT"),
        (("--broker", "tcp://"), "expected tcp://HOST:PORT"),
        (("--broker", "tcp://[x:1"), "expected tcp://HOST:PORT"),
        (("--queue", "orders"), "--queue orders: Invalid scheme"),
        (("--client", "theirs"), "expected own or official"),
        (("--versus", "tcp://"), "--versus tcp://: expected tcp://HOST:PORT"),
        (("--scenario", "priority-2q"), "--scenario priority-2q: there is none; bmqctl bench --list-scenarios"),
        (("--scenario", "fanout-5c", "--queue", "bmq://a/b"), "--queue cannot be given with --scenario"),
        (("--scenario", "fanout-5c", "--own-node"), "--own-node cannot be given with --scenario"),
        (("--rocketmq", "--scenario", "fanout-5c"), "--scenario cannot be given with --rocketmq"),
        (("--rocketmq", "--versus", "tcp://a:1"), "--versus cannot be given with --rocketmq"),
        (("--topic", "orders"), "--topic cannot be given without --rocketmq"),
        (("--published-rate",), "--published-rate needs --scenario"),
        (("--plot-out", "plot.gif"), "--plot-out plot.gif: the name must end with .png or .svg"),
        (("--plot-out", "/nowhere/plot.png"), "--plot-out /nowhere/plot.png: there is no folder /nowhere"),
        (("--histograms", "/dev/null/x"), "--histograms /dev/null/x: Not a directory"),
        (("--write-domains", "/dev/null/x"), "--write-domains /dev/null/x: Not a directory"),
    ],
)
def test_wrong_options_are_one_line_and_status_2(bench: Runner, arguments: tuple[str, ...], said: str) -> None:
    result = bench(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_absent_broker_is_one_line_and_status_2(bench: Runner) -> None:
    port = free_port()
    result = bench("--broker", f"tcp://127.0.0.1:{port}")
    assert result.exit_code == 2
    assert result.stderr == f"bmqctl bench: no broker at 127.0.0.1:{port}: Connection refused\n"


def test_the_official_client_must_be_installed(bench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(official, "installed_version", lambda: None)
    result = bench("--client", "official")
    assert result.exit_code == 2
    assert "pip install" in result.stderr


def outcome_of(plan: Plan, *, acked: int = 2, nacked: int = 0, faults: tuple[str, ...] = ()) -> Outcome:
    tally = ProducerTally(0)
    tally.post(acked + nacked, 2_000_000_000)
    for sequence in range(acked):
        tally.ack(sequence, 1_500_000_000, 2_000_000_000)
    for _ in range(nacked):
        tally.nack("LIMIT_BYTES", 2_000_000_000)
    return Outcome(plan, "test 1.0", settle([tally], []), 1_000_000_000, faults, interrupted=False)


@pytest.mark.parametrize(
    ("outcome", "status", "said"),
    [
        ({}, 0, "posted"),
        ({"nacked": 3}, 1, "LIMIT_BYTES"),
        ({"faults": ("the broker went away",)}, 1, "the broker went away"),
    ],
)
def test_the_status_tells_whether_all_went_well(
    bench: Runner, monkeypatch: pytest.MonkeyPatch, outcome: dict[str, Any], status: int, said: str
) -> None:
    plans: list[Plan] = []

    def run(plan: Plan, _: object) -> Outcome:
        plans.append(plan)
        return outcome_of(plan, **outcome)

    monkeypatch.setattr(bench_series, "run_bench", run)
    result = bench("--broker", "tcp://example:1234", "--rate", "50", "--size", "100")
    assert result.exit_code == status
    assert said in result.stdout
    (plan,) = plans
    assert (plan.host, plan.port, plan.rate, plan.size, plan.duration_s) == ("example", 1234, 50.0, 100, 10.0)
    assert plan.queue.startswith("bmq://bmq.test.persistent.priority/bench-")


def test_a_count_needs_no_duration(bench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_series, "run_bench", lambda plan, _: outcome_of(plan))
    result = bench("--count", "2", "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["plan"]["duration_s"] is None
    assert report["counts"]["acked"] == 2
    assert report["throughput_per_s"]["posted"] == 2.0
    assert report["latency_us"]["ack"]["max"] == 500_000.0


def test_a_report_is_one_row_for_spreadsheets(bench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_series, "run_bench", lambda plan, _: outcome_of(plan, nacked=3))
    result = bench("--count", "2", "--output", "csv")
    assert result.exit_code == 1
    (row,) = csv.DictReader(io.StringIO(result.stdout))
    assert (row["counts.acked"], row["latency_us.ack.max"], row["plan.size"]) == ("2", "500000.0", "1024")
    assert json.loads(row["nacks"]) == {"LIMIT_BYTES": 3}
    result = bench("--count", "2", "--output", "jsonl")
    assert json.loads(result.stdout)["counts.nacked"] == 3


def test_the_scenarios_are_listed(bench: Runner) -> None:
    rows = json.loads(bench("--list-scenarios", "--output", "json").stdout)
    assert rows[0] == {
        "name": "priority-1q-strong-direct",
        "load": "1Q, 1P, 1C",
        "domain": "bench.priority.strong",
        "published_rate": 60_000,
    }
    assert [row["published_rate"] for row in rows if row["name"].startswith("fanout-30c")] == [None] * 4
    assert "fanout-30c-strong-proxy" in bench("--list-scenarios").stdout


def test_the_domains_are_written_and_their_files_printed(bench: Runner, tmp_path: Path) -> None:
    result = bench("--write-domains", str(tmp_path), "--cluster", "east")
    assert result.exit_code == 0
    names = [Path(line).name for line in result.stdout.splitlines()]
    assert sorted(names) == sorted(file.name for file in tmp_path.iterdir())
    assert json.loads((tmp_path / "bench.priority.strong.json").read_text())["definition"]["location"] == "east"


def test_a_scenario_is_posted_at_the_published_rate(bench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Plan] = []

    def run(plan: Plan, _: object) -> Outcome:
        plans.append(plan)
        return outcome_of(plan)

    monkeypatch.setattr(bench_series, "run_bench", run)
    given = ("--broker", "tcp://example:1234", "--scenario", "priority-10q-strong-direct", "--count", "5", "--json")
    result = bench(*given, "--published-rate")
    assert result.exit_code == 0, result.stderr
    assert bench(*given, "--rate", "7").exit_code == 0
    assert [(plan.rate, plan.shape.queues, plan.host) for plan in plans] == [
        (120_000.0, 10, "example"),
        (7.0, 10, "example"),
    ]
    assert plans[0].queue != plans[1].queue
    (run_,) = json.loads(result.stdout)["runs"]
    assert (run_["scenario"], run_["round"], run_["counts"]["acked"]) == ("priority-10q-strong-direct", 1, 2)


@pytest.mark.parametrize(("option", "package"), [("--plot", "plotext"), ("--plot-out=p.png", "matplotlib")])
def test_plots_need_their_extra(bench: Runner, monkeypatch: pytest.MonkeyPatch, option: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    result = bench(option)
    assert result.exit_code == 2
    assert f"needs {package}, of the extra `plots`: pip install '.[plots]'" in result.stderr


@pytest.mark.process
def test_two_brokers_are_measured_in_turns(bench: Runner, tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "one") as one, NodeProcess(tmp_path / "two") as two:
        files = ("--histograms", str(tmp_path / "hdr"), "--plot", "--plot-out", str(tmp_path / "both.png"))
        brokers = ("--broker", one.uri, "--versus", two.uri)
        result = bench(*brokers, "--rounds", "2", "--count", "60", "--batch", "4", *files)
        assert result.exit_code == 0, result.stderr
        report = json.loads(bench(*brokers, "--count", "10", "--json").stdout)
    text = result.stdout
    assert "times as good" in text
    assert "latency, ms, by percentile" in text
    for line in ("a  first: end to end", "b  first: ack", "c  versus: end to end", "d  versus: ack"):
        assert line in text
    names = sorted(file.name for file in (tmp_path / "hdr").iterdir())
    assert names == sorted(
        f"bench-{broker}-{number}{suffix}"
        for broker in ("first", "versus")
        for number in (1, 2)
        for suffix in (".ack.hgrm", ".end-to-end.hgrm", ".hlog")
    )
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")
    log = HistogramLogReader(str(tmp_path / "hdr" / "bench-versus-2.hlog"), HdrHistogram(1, 2**43 - 1, 2))
    counts: dict[str, int] = {}
    while (interval := log.get_next_interval_histogram()) is not None:
        counts[interval.get_tag()] = counts.get(interval.get_tag(), 0) + interval.get_total_count()
    log.input_file.close()
    assert counts == {"end-to-end": 60, "ack": 60}
    assert [(run["round"], run["broker"]) for run in report["runs"]] == [
        (1, "first"),
        (1, "versus"),
        (2, "versus"),
        (2, "first"),
        (3, "first"),
        (3, "versus"),
    ]
    assert {run["plan"]["port"] for run in report["runs"]} == {one.port, two.port}
    ratios = {each["figure"]: each["ratio"] for each in report["comparisons"]}
    assert ratios["throughput_per_s.acked"]["min"] <= ratios["throughput_per_s.acked"]["max"]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "copies", "producers"),
    [
        ("priority-10q-strong-direct", 1, 10),
        ("fanout-5c-eventual-proxy", 5, 1),
        ("broadcast-5c-direct", 5, 1),
    ],
)
def test_a_scenario_has_a_cluster_of_its_own(bench: Runner, scenario: str, copies: int, producers: int) -> None:
    result = bench("--scenario", scenario, "--count", "200", "--json")
    assert result.exit_code == 0, result.stderr
    (run,) = json.loads(result.stdout)["runs"]
    counts = run["counts"]
    assert (counts["posted"], counts["acked"], counts["delivered"]) == (200, 200, 200 * copies)
    assert (counts["lost"], counts["duplicated"], counts["reordered"]) == (0, 0, 0)
    assert run["plan"]["shape"]["queues"] == producers
    assert run["clean"]
