"""Ranges, states and the line of output, as the guidelines of the Monitoring Plugins have them."""

from __future__ import annotations

import pytest

from bmqctl.systems.checking.verdict import (
    BadThreshold,
    Finding,
    Measured,
    Measurement,
    Status,
    Thresholds,
    judge,
    parse_range,
)

NAMES = ("lag", "oldest")


@pytest.mark.parametrize(
    ("text", "quiet", "alerting"),
    [
        ("10", (0, 5, 10), (-1, 10.1)),
        ("10:", (10, 1e12), (9.9, -1)),
        ("~:10", (-1e12, 10), (11,)),
        ("10:20", (10, 15, 20), (9, 21)),
        ("@10:20", (9, 21), (10, 15, 20)),
        ("-5:-1", (-5, -1), (0, -6)),
        ("0.5:", (0.5,), (0.4,)),
        ("0", (0,), (1,)),
    ],
)
def test_ranges_are_those_of_the_guidelines(text: str, quiet: tuple[float, ...], alerting: tuple[float, ...]) -> None:
    found = parse_range(text)
    assert [found.alerts(value) for value in quiet] == [False] * len(quiet)
    assert [found.alerts(value) for value in alerting] == [True] * len(alerting)


@pytest.mark.parametrize("text", ["", "@", "x", "1:x", "20:10", "1::2", "nan", "inf", "1" * 30, "1e3", " 1", "@-"])
def test_invalid_range_is_refused(text: str) -> None:
    with pytest.raises(BadThreshold, match="is no range"):
        parse_range(text)


@pytest.mark.parametrize("text", ["lag", "lags=1", "=1", "lag=x"])
def test_invalid_threshold_is_refused_with_its_option(text: str) -> None:
    with pytest.raises(BadThreshold, match=f"--critical {text}"):
        Thresholds.of([], [text], NAMES)


def test_a_value_has_one_range_of_a_kind() -> None:
    with pytest.raises(BadThreshold, match="lag has a range already"):
        Thresholds.of(["lag=1", "lag=2"], [], NAMES)


def verdict(lag: float | None, oldest: float | None, *, warning: list[str], critical: list[str]) -> Finding:
    values = [Measurement("lag", lag), Measurement("oldest", oldest, "s")]
    return judge("GROUP", Measured("all | is\nwell", values), Thresholds.of(warning, critical, NAMES))


def test_the_worst_state_counts() -> None:
    warning, critical = ["lag=10", "oldest=60"], ["lag=100"]
    found = [verdict(*each, warning=warning, critical=critical) for each in ((10, 60), (11, 0), (101, 61), (0, None))]
    assert [each.status for each in found] == [Status.OK, Status.WARNING, Status.CRITICAL, Status.UNKNOWN]
    # A critical value stays critical, though another value is unknown.
    assert verdict(101, None, warning=warning, critical=critical).status is Status.CRITICAL
    # Nobody asked for the age.
    assert verdict(1, None, warning=["lag=1"], critical=[]).status is Status.OK


def test_the_line_has_the_alerts_and_the_performance_data() -> None:
    found = verdict(11, 60.25, warning=["lag=10"], critical=["lag=100", "oldest=60"])
    assert found.line() == (
        "GROUP CRITICAL - all   is well; lag 11 (range 10); oldest 60.25s (range 60)"
        " | lag=11;10;100;0 oldest=60.25s;;60;0"
    )
    assert [each["status"] for each in found.rows()] == ["WARNING", "CRITICAL"]
    unknown = verdict(0, None, warning=["oldest=1"], critical=[])
    assert unknown.line() == "GROUP UNKNOWN - all   is well; oldest could not be measured | lag=0;;;0"


def test_usual_ranges_are_for_values_without_others() -> None:
    usual = Thresholds.of(["lag=1", "oldest=1"], ["lag=2"], NAMES)
    found = Thresholds.of([], ["lag=5"], NAMES).over(usual)
    assert (list(found.warning), found.critical["lag"].text) == (["oldest"], "5")
