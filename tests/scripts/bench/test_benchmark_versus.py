"""The parts of scripts/benchmark --versus that measure nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.bench import versus as benchmark_versus
from scripts.bench.versus import Busy, Comparison, busy_percent, check_calm, main


def test_share_of_busy_processors_leaves_out_idle_time_and_waiting_for_disks() -> None:
    before = "cpu  100 0 50 1000 10 0 5 0 0 0\ncpu0 1 2 3"
    after = "cpu  130 0 60 1100 60 0 5 10 7 0\ncpu0 9 9 9"
    assert busy_percent(before, after) == 25.0
    assert busy_percent(before, before) == 0.0


def test_ratio_says_how_many_times_as_good_ours_is() -> None:
    assert Comparison("x: messages/s", [300.0, 100.0], [200.0, 200.0]).ratios == [1.5, 0.5]
    assert Comparison("x: us of CPU/message", [2.0, 8.0], [4.0, 4.0]).ratios == [2.0, 0.5]
    assert Comparison("latency p50 at 5,000/s, ms", [2.0], [1.0]).ratios == [0.5]


def test_busy_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark_versus, "CALM_S", 0.0)
    monkeypatch.setattr(benchmark_versus, "busy_percent", lambda before, after: 40.0)
    check_calm(40.0)
    with pytest.raises(Busy, match="40 % busy with other work, and 30 % is the limit"):
        check_calm(30.0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--versus", "no-such-program"], "no-such-program is not an executable file"),
        (["--versus", sys.executable, "--rounds", "0"], "have to be above 0"),
        (["--versus", sys.executable, "--duration", "0"], "have to be above 0"),
        (["--versus", str(Path(sys.executable).parent)], "is not an executable file"),
    ],
)
def test_options_that_cannot_be_are_refused(
    options: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
