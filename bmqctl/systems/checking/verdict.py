"""Measured values against thresholds, with the ranges, exit codes and line of output of monitoring plugins.

Source: the Monitoring Plugins Development Guidelines.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

__all__ = [
    "BadThreshold",
    "Finding",
    "Measured",
    "Measurement",
    "Range",
    "Status",
    "Thresholds",
    "judge",
    "parse_range",
]

_NUMBER: Final = r"-?[0-9]{1,20}(?:\.[0-9]{1,9})?"
_RANGE = re.compile(rf"(?P<inside>@?)(?:(?P<low>~|{_NUMBER})?(?P<colon>:))?(?P<high>{_NUMBER})?")


class BadThreshold(ValueError):
    """An unusable threshold; the text is the reason."""


class Status(IntEnum):
    """A state; the values are exit codes."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class Range(NamedTuple):
    """Values without an alert; with `is_inverted` those with one. `text` is the original."""

    text: str
    low: float
    high: float
    is_inverted: bool = False

    def alerts(self, value: float) -> bool:
        return (self.low <= value <= self.high) == self.is_inverted


class Measurement(NamedTuple):
    """A measured value, None if it could not be measured. `unit` is empty, `s`, `B` or `%`."""

    name: str
    value: float | None
    unit: str = ""


class Measured(NamedTuple):
    """The values of a check, one sentence about them, and further lines."""

    summary: str
    values: Sequence[Measurement]
    details: Sequence[str] = ()


class Thresholds(NamedTuple):
    """Ranges by the names of values."""

    warning: Mapping[str, Range]
    critical: Mapping[str, Range]

    @classmethod
    def of(cls, warning: Iterable[str], critical: Iterable[str], names: Sequence[str]) -> Thresholds:
        """Parse `NAME=RANGE` of both kinds. Raises `BadThreshold`, also for an unknown name."""
        return cls(_ranges("--warning", warning, names), _ranges("--critical", critical, names))

    def over(self, usual: Thresholds) -> Thresholds:
        """Add the usual thresholds of values that these do not name."""
        own = self.warning.keys() | self.critical.keys()
        return Thresholds(
            {**{name: each for name, each in usual.warning.items() if name not in own}, **self.warning},
            {**{name: each for name, each in usual.critical.items() if name not in own}, **self.critical},
        )


class Judged(NamedTuple):
    """A value with its thresholds and its state."""

    measurement: Measurement
    warning: Range | None
    critical: Range | None
    status: Status


class Finding(NamedTuple):
    """The outcome of a check."""

    title: str
    status: Status
    summary: str
    judged: Sequence[Judged] = ()
    details: Sequence[str] = ()

    def line(self) -> str:
        """The line for the monitoring system: state, summary, alerts, performance data."""
        alerts = [_alert(each) for each in self.judged if each.status is not Status.OK]
        text = _plain("; ".join([self.summary, *alerts]))
        data = " ".join(_performance(each) for each in self.judged if each.measurement.value is not None)
        return f"{self.title} {self.status.name} - {text}" + (f" | {data}" if data else "")

    def rows(self) -> list[dict[str, Any]]:
        return [
            {
                "name": each.measurement.name,
                "value": each.measurement.value,
                "unit": each.measurement.unit or None,
                "warning": None if each.warning is None else each.warning.text,
                "critical": None if each.critical is None else each.critical.text,
                "status": each.status.name,
            }
            for each in self.judged
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            "check": self.title,
            "status": self.status.name,
            "code": int(self.status),
            "summary": self.summary,
            "values": self.rows(),
            "details": list(self.details),
        }


def judge(title: str, measured: Measured, thresholds: Thresholds) -> Finding:
    """Compare each value with its thresholds; the worst state counts.

    A value with a threshold that could not be measured is unknown, which is worse than a warning.
    """
    judged = [_judged(each, thresholds) for each in measured.values]
    worst = max((each.status for each in judged), key=_severity, default=Status.OK)
    return Finding(title, worst, measured.summary, judged, measured.details)


def parse_range(text: str) -> Range:
    """Parse `[@][LOW:][HIGH]`; LOW is 0 by default, `~` is unbounded. Raises `BadThreshold`."""
    found = _RANGE.fullmatch(text)
    if found is None or (found["high"] is None and found["colon"] is None):
        raise BadThreshold(f"{text!r} is no range: expected [@][LOW:][HIGH], such as 100, 2: or 10:20")
    low = -math.inf if found["low"] == "~" else float(found["low"] or 0)
    high = math.inf if found["high"] is None else float(found["high"])
    if low > high:
        raise BadThreshold(f"{text!r} is no range: {low:g} is above {high:g}")
    return Range(text, low, high, bool(found["inside"]))


def _ranges(option: str, texts: Iterable[str], names: Sequence[str]) -> dict[str, Range]:
    found: dict[str, Range] = {}
    for text in texts:
        name, sign, bounds = text.partition("=")
        if not sign or name not in names:
            raise BadThreshold(f"{option} {text}: expected NAME=RANGE with one of the names {', '.join(names)}")
        if name in found:
            raise BadThreshold(f"{option} {text}: {name} has a range already")
        try:
            found[name] = parse_range(bounds)
        except BadThreshold as fault:
            raise BadThreshold(f"{option} {text}: {fault}") from None
    return found


def _severity(status: Status) -> int:
    return (Status.OK, Status.WARNING, Status.UNKNOWN, Status.CRITICAL).index(status)


def _judged(each: Measurement, thresholds: Thresholds) -> Judged:
    warning, critical = thresholds.warning.get(each.name), thresholds.critical.get(each.name)
    status = Status.OK
    if each.value is None:
        status = Status.UNKNOWN if warning or critical else Status.OK
    elif critical is not None and critical.alerts(each.value):
        status = Status.CRITICAL
    elif warning is not None and warning.alerts(each.value):
        status = Status.WARNING
    return Judged(each, warning, critical, status)


def _alert(each: Judged) -> str:
    measurement = each.measurement
    if measurement.value is None:
        return f"{measurement.name} could not be measured"
    bound = each.critical if each.status is Status.CRITICAL else each.warning
    assert bound is not None
    return f"{measurement.name} {_number(measurement.value)}{measurement.unit} (range {bound.text})"


def _performance(each: Judged) -> str:
    measurement = each.measurement
    assert measurement.value is not None
    warning, critical = ("" if bound is None else bound.text for bound in (each.warning, each.critical))
    return f"{measurement.name}={_number(measurement.value)}{measurement.unit};{warning};{critical};0".rstrip(";")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:.3f}".rstrip("0")


def _plain(text: str) -> str:
    """The text without characters that end the line, or the text in it, for a monitoring system."""
    return "".join(letter if letter.isprintable() and letter != "|" else " " for letter in text)
