"""Runs in turns, and the comparison of two brokers."""

from __future__ import annotations

from rich.console import Console

from bmqctl.bench.coordinator import Outcome
from bmqctl.bench.series import FIRST, ONLY, SECOND, Run, comparisons, series_json, series_tables, turns
from bmqctl.bench.stamp import MAGIC, STAMP, Stamp
from bmqctl.bench.tally import ConsumerTally, ProducerTally, settle
from tests.bmqctl.bench.plans import PLAN

SECOND_NS = 1_000_000_000


def run_of(
    number: int, broker: str, took_s: float, latency_ms: float, scenario: str = "s", delivered: int = 100
) -> Run:
    producer, consumer = ProducerTally(0), ConsumerTally(PLAN.run)
    end_ns = int(took_s * SECOND_NS)
    due_ns = end_ns - int(latency_ms * 1e6)
    producer.post(100, 0)
    for sequence in range(100):
        producer.ack(sequence, due_ns, end_ns)
        if sequence < delivered:
            assert consumer.deliver(STAMP.pack(Stamp(MAGIC, PLAN.run, 0, sequence, due_ns)), end_ns)
    consumers = [consumer] if delivered else []
    return Run(scenario, number, broker, Outcome(PLAN, "test", settle([producer], consumers), 0, (), False))


def text_of(runs: list[Run]) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(series_tables(runs))
    return captured.get()


def test_the_brokers_begin_in_turns() -> None:
    assert list(turns(3, [FIRST, SECOND])) == [
        (1, FIRST),
        (1, SECOND),
        (2, SECOND),
        (2, FIRST),
        (3, FIRST),
        (3, SECOND),
    ]
    assert list(turns(2, [ONLY])) == [(1, ONLY), (2, ONLY)]


def test_a_ratio_is_taken_in_each_round_and_above_one_the_first_was_better() -> None:
    runs = [
        run_of(1, FIRST, 1.0, 10),
        run_of(1, SECOND, 2.0, 40),
        run_of(2, SECOND, 1.0, 10),
        run_of(2, FIRST, 2.0, 20),
        run_of(3, FIRST, 1.0, 10),
        run_of(3, SECOND, 4.0, 80),
    ]
    found = {each.figure.name: each for each in comparisons(runs)}
    assert found["acked, messages/s"].first == [100, 50, 100]
    assert found["acked, messages/s"].versus == [50, 100, 25]
    assert found["acked, messages/s"].ratios == [2, 0.5, 4]
    assert [round(ratio, 1) for ratio in found["end to end p50, ms"].ratios] == [4, 0.5, 8]
    (ratio,) = (
        each["ratio"] for each in series_json(runs)["comparisons"] if each["figure"] == "throughput_per_s.acked"
    )
    assert ratio == {"median": 2, "min": 0.5, "max": 4}
    assert "2.00 (0.50 to 4.00)" in text_of(runs)


def test_a_round_without_its_other_half_is_not_compared() -> None:
    runs = [run_of(1, FIRST, 1.0, 10), run_of(1, SECOND, 1.0, 10), run_of(2, SECOND, 1.0, 10)]
    assert all(len(each.ratios) == 1 for each in comparisons(runs))
    assert comparisons([run_of(1, ONLY, 1.0, 10), run_of(2, ONLY, 1.0, 10)]) == []


def test_a_figure_that_was_not_measured_has_no_ratio() -> None:
    runs = [run_of(1, FIRST, 1.0, 10, delivered=0), run_of(1, SECOND, 1.0, 10, delivered=0)]
    found = {each.figure.name: each.ratios for each in comparisons(runs)}
    assert found["acked, messages/s"] == [1]
    assert found["end to end p99, ms"] == []
    assert {each["figure"]: each["ratio"] for each in series_json(runs)["comparisons"]}[
        "latency_us.end_to_end.p99"
    ] is None
    text_of(runs)


def test_scenarios_are_compared_each_by_itself() -> None:
    runs = [run_of(1, broker, 1.0, 10, scenario) for scenario in ("a", "b") for broker in (FIRST, SECOND)]
    assert {each.scenario for each in comparisons(runs)} == {"a", "b"}
    report = series_json(runs)
    assert [(run["scenario"], run["broker"]) for run in report["runs"]] == [
        ("a", "first"),
        ("a", "versus"),
        ("b", "first"),
        ("b", "versus"),
    ]


def test_a_run_that_lost_messages_says_so() -> None:
    shown = text_of([run_of(1, ONLY, 1.0, 10, delivered=97)])
    assert shown.splitlines()[-1].split()[-1] == "3"
