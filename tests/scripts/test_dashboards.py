"""The dashboards and the alert rules, as files."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
import yaml

from scripts.releases.dashboards import DASHBOARDS, FOLDER, Dashboard, render
from scripts.releases.metric_names import metric_names

ALERTS = FOLDER.parent / "prometheus" / "alerts.yml"


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=[each.name for each in DASHBOARDS])
def test_the_file_is_that_of_the_table(dashboard: Dashboard) -> None:
    kept = (FOLDER / f"{dashboard.name}.json").read_text()
    assert kept == render(dashboard), "run python -m scripts.releases.dashboards"


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=[each.name for each in DASHBOARDS])
def test_panels_have_places_of_their_own(dashboard: Dashboard) -> None:
    panels: list[dict[str, Any]] = json.loads(render(dashboard))["panels"]
    assert max(Counter(panel["id"] for panel in panels).values()) == 1
    cells = Counter(
        (x, y)
        for panel in panels
        for at in (panel["gridPos"],)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    )
    assert max(cells.values()) == 1
    assert max(x for x, _ in cells) < 24
    assert [one["gridPos"]["y"] for one, _ in pairwise(panels)] == sorted(each["gridPos"]["y"] for each in panels[:-1])


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=[each.name for each in DASHBOARDS])
def test_expressions_use_the_choices_that_there_are(dashboard: Dashboard) -> None:
    text = render(dashboard)
    for variable in dashboard.variables:
        assert f'=~\\"${variable.name}\\"' in text
    assert "{__name__" not in text.replace("{__name__=~", "")


def test_alerts_have_what_people_read() -> None:
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    assert max(Counter(rule["alert"] for rule in rules).values()) == 1
    for rule in rules:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert metric_names(rule["expr"]).plain


@pytest.mark.parametrize(
    ("expression", "plain", "patterns"),
    [
        ("up == 0", {"up"}, set()),
        ('sum by (a, b) (rate(x_total{c="d{e"}[5m]))', {"x_total"}, set()),
        ("max without (q) (a) / on (z) group_left () b", {"a", "b"}, set()),
        ("a and b == 2 or c unless d offset 10m", {"a", "b", "c", "d"}, set()),
        ("x > 3e11", {"x"}, set()),
        ('label_replace({__name__=~"p[0-9]+_x",l="1"}, "n", "$1", "__name__", "p(.*)")', set(), {"p[0-9]+_x"}),
        ("topk(10, sum by (g) (a{}))", {"a"}, set()),
    ],
)
def test_names_in_expressions(expression: str, plain: set[str], patterns: set[str]) -> None:
    found = metric_names(expression)
    assert found.plain == plain
    assert found.patterns == patterns
