from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.bench.coordinator import Outcome
from bmqctl.bench.plan import Plan
from bmqctl.bench.tally import ProducerTally, settle
from bmqctl.commands import bench as command
from bmqctl.ports import free_port

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
    monkeypatch.setattr(command, "installed_version", lambda: None)
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

    monkeypatch.setattr(command, "run_bench", run)
    result = bench("--broker", "tcp://example:1234", "--rate", "50", "--size", "100")
    assert result.exit_code == status
    assert said in result.stdout
    (plan,) = plans
    assert (plan.host, plan.port, plan.rate, plan.size, plan.duration_s) == ("example", 1234, 50.0, 100, 10.0)
    assert plan.queue.startswith("bmq://bmq.test.persistent.priority/bench-")


def test_a_count_needs_no_duration(bench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run_bench", lambda plan, _: outcome_of(plan))
    result = bench("--count", "2", "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["plan"]["duration_s"] is None
    assert report["counts"]["acked"] == 2
    assert report["throughput_per_s"]["posted"] == 2.0
    assert report["latency_us"]["ack"]["max"] == 500_000.0


def test_a_report_is_one_row_for_spreadsheets(bench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run_bench", lambda plan, _: outcome_of(plan, nacked=3))
    result = bench("--count", "2", "--output", "csv")
    assert result.exit_code == 1
    (row,) = csv.DictReader(io.StringIO(result.stdout))
    assert (row["counts.acked"], row["latency_us.ack.max"], row["plan.size"]) == ("2", "500000.0", "1024")
    assert json.loads(row["nacks"]) == {"LIMIT_BYTES": 3}
    result = bench("--count", "2", "--output", "jsonl")
    assert json.loads(result.stdout)["counts.nacked"] == 3
