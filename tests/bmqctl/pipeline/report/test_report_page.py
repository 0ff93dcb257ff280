from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bmqctl.pipeline.report.report_figures import LINES, ROWS, THEMES, duration, plots
from bmqctl.pipeline.report.report_model import Confirms, Messages, Report, TimeLine, assemble
from bmqctl.pipeline.report.report_page import report_page
from tests.bmqctl.pipeline.report import browser
from tests.waiting import WAIT_S

START = 1_800_000_000


def made(queues: int, hostile: str = "", every: int = 1, series_max: int = 8) -> Report:
    """A report of some hours; messages come in every bucket of time, or in few of them."""
    time = TimeLine.over(START, START + 10_000)
    names = [f"bmq://domain{number}/queue{hostile}" for number in range(queues)]
    last = time.bucket_count - 1
    messages = [
        Messages(name, outcome, "ZLIB", bucket, went, 5 + place, 500, 600, 200, 5, time.from_s)
        for place, name in enumerate(names)
        for bucket in range(0, last + 1, every)
        for outcome, went in (("confirmed", bucket), ("expired", min(bucket + 2, last)), ("outstanding", None))
    ]
    confirms = [
        Confirms(name, f"app{hostile}", "CONFIRMED", second, second, 3 + place)
        for place, name in enumerate(names)
        for second in range(100)
    ]
    return assemble(["store"], time, messages, {(names[0], "late"): 4}, confirms, series_max)


def of_one_message() -> Report:
    time = TimeLine.over(START, START)
    message = Messages("bmq://domain/queue", "outstanding", None, 0, None, 1, 10, 10, 10, 1, START)
    return assemble(["store"], time, [message], {}, [], 8)


def traces(report: Report, name: str) -> list[dict[str, Any]]:
    figure: dict[str, Any] = plots(report)[name].figure.to_plotly_json()
    return list(figure["data"])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (150, "2 min 30 s"), (5400, "1 h 30 min"), (2 * 86_400, "2 d"), (-61, "-1 min 1 s")],
)
def test_durations_are_told_in_their_two_largest_units(seconds: int, text: str) -> None:
    assert duration(seconds) == text


def test_figures_hold_what_the_report_says() -> None:
    report = made(3)
    throughput = traces(report, "throughput")
    assert plots(report)["throughput"].choices == ["All queues", "domain2/queue", "domain1/queue", "domain0/queue"]
    assert [(trace["meta"], trace["name"]) for trace in throughput[:4]] == [
        (0, "arrived"),
        (0, "confirmed"),
        (0, "left"),
        (1, "arrived"),
    ]
    assert [rate * report.bucket_s for rate in throughput[0]["y"]] == pytest.approx(report.series.arrivals, rel=1e-3)
    backlog = traces(report, "backlog")
    together = [sum(each) for each in zip(*(trace["y"] for trace in backlog[1:]), strict=True)]
    assert list(backlog[0]["y"]) == report.series.backlog == together
    spread = traces(report, "spread")
    assert [sum(trace["y"]) for trace in spread] == [app.confirmed for app in report.apps if app.latency]
    outcomes = traces(report, "outcomes")
    assert [trace["name"] for trace in outcomes] == ["confirmed", "outstanding", "expired"]
    shares = [sum(each) for each in zip(*(trace["x"] for trace in outcomes), strict=True)]
    assert shares == pytest.approx([1, 1, 1])
    half, most = (trace["x"] for trace in traces(report, "latency")[:0:-2])
    assert (set(half), set(most)) == ({49}, {98})


def test_traces_take_their_colors_from_the_theme() -> None:
    assert THEMES["light"].palette.keys() == THEMES["dark"].palette.keys()
    for plot in plots(made(30)).values():
        shown = [trace for trace in plot.figure.data if trace.meta in (None, 0)]
        assert len(plot.colors) == len(shown)
        assert not any(trace.marker.color or (trace.type == "scatter" and trace.line.color) for trace in shown)


def test_figures_stay_readable_with_many_queues() -> None:
    report = made(1000, every=50, series_max=20)
    assert len(traces(report, "backlog")) == 1 + LINES
    assert {len(trace["y"]) for trace in traces(report, "outcomes")} == {ROWS}
    assert len(plots(report)["throughput"].choices) == 21
    assert len(plots(report)["spread"].choices) == 1000


# The drawing: the marks of each plot that have a size.
DRAWN = """
(() => {
  const marks = ".scatterlayer .js-line, .scatterlayer .point, .barlayer .point path";
  const drawn = (host) => [...host.querySelectorAll(marks)]
    .filter((mark) => { const box = mark.getBoundingClientRect(); return box.width > 0 || box.height > 0; }).length;
  const hosts = [...document.querySelectorAll("[data-plot]")];
  return Object.fromEntries(hosts.map((host) => [host.dataset.plot, drawn(host)]));
})()
"""
SHOWN = "[document.documentElement.dataset.ready, document.body.innerText, document.title]"
HOVER = """
(() => {
  const plot = document.querySelector("[data-plot=throughput]"), area = plot.querySelector(".nsewdrag");
  const box = area.getBoundingClientRect();
  for (const kind of ["mouseover", "mousemove"]) {
    const place = { bubbles: true, clientX: box.left + box.width / 2, clientY: box.top + 40 };
    area.dispatchEvent(new MouseEvent(kind, place));
  }
  return plot.querySelectorAll(".modebar").length;
})()
"""
HOVERED = "document.querySelector('[data-plot=throughput] .hoverlayer').textContent"
LINE = "document.querySelector('[data-plot=throughput] .js-line').getAttribute('d')"
CHOOSE = """
(() => {
  for (const [name, choice] of [["throughput", 1], ["spread", 2]]) {
    const chooser = document.querySelector(`[data-choice=${name}]`);
    chooser.value = String(choice);
    chooser.dispatchEvent(new Event("change"));
  }
})()
"""
BARS = "document.querySelector('[data-plot=spread]').data[0].y.slice(0, 2)"
CLICK = """
(() => {
  const plot = document.querySelector("[data-plot=latency]"), area = plot.querySelector(".nsewdrag");
  plot.scrollIntoView();
  const box = plot.querySelector(".point").getBoundingClientRect();
  const place = { bubbles: true, clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 };
  for (const kind of ["mouseover", "mousemove", "mousedown"]) area.dispatchEvent(new MouseEvent(kind, place));
  document.querySelector(".dragcover")?.dispatchEvent(new MouseEvent("mouseup", place));
})()
"""
CHOSEN = "document.querySelector('[data-choice=spread]').value"
SORT = """
(() => {
  const title = document.querySelectorAll("#queues th button")[1];
  title.click(); title.click();
  return [...document.querySelectorAll("#queues tbody tr td:first-child")].map((cell) => cell.innerText);
})()
"""
COLORS = """
[getComputedStyle(document.body).backgroundColor,
 getComputedStyle(document.querySelector("[data-plot=backlog] .js-line")).stroke,
 getComputedStyle(document.querySelector("[data-plot=backlog] .xtick text")).fill,
 getComputedStyle(document.querySelector("[data-plot=backlog] .main-svg")).backgroundColor]
"""
THEME = "document.getElementById('theme').click()"
NARROW = "document.querySelector('main').style.width = '360px', dispatchEvent(new Event('resize'))"
FITS = "[...document.querySelectorAll('main .main-svg')].every((svg) => svg.getBoundingClientRect().width <= 360)"


def browse(page: Path, report: Report, *scripts: str) -> list[Any]:
    """Return the scripts' results, and check that the page logged nothing and loaded nothing else."""
    page.write_text(report_page(report))
    screenshot = page.with_suffix(".png")
    done = subprocess.run(
        [sys.executable, browser.__file__, page, screenshot, *scripts],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    *results, said, urls = json.loads(done.stdout)
    assert said == []
    assert [url for url in urls if not url.startswith("data:")] == [page.as_uri()]
    assert screenshot.stat().st_size > 10_000
    return list(results)


def test_the_page_works_in_a_browser(tmp_path: Path) -> None:
    hostile = "</script><script>document.title='taken'</script><b>%{y}"
    scripts = [
        DRAWN,
        SHOWN,
        HOVER,
        HOVERED,
        LINE,
        CHOOSE,
        LINE,
        BARS,
        CLICK,
        CHOSEN,
        SORT,
        COLORS,
        THEME,
        COLORS,
        NARROW,
        FITS,
    ]
    drawn, shown, modebars, hovered, before, _, after, bars, _, clicked, order, one, _, other, _, fits = browse(
        tmp_path / "report.html", made(3, hostile), *scripts
    )
    assert drawn == {"throughput": 3, "backlog": 4, "latency": 12, "spread": 20, "outcomes": 9}
    ready, text, title = shown
    assert (ready, title) == ("yes", "Queue report, 2027-01-15")
    assert f"bmq://domain2/queue{hostile}" in text
    assert "99 % within" in text
    assert modebars == 0
    assert "arrived: " in hovered
    assert "UTC" in hovered
    assert before != after
    assert bars == [25, 25]  # of domain2, whose bars have 5 confirms in each second
    assert clicked == "0"  # the app that a click on its latency chose
    assert order == [f"bmq://domain{number}/queue{hostile}" for number in (0, 1, 2)]
    assert all(dark != light for dark, light in zip(one[:3], other[:3], strict=True))
    assert one[3] == other[3] == "rgba(0, 0, 0, 0)"
    assert fits


def test_the_page_of_one_message(tmp_path: Path) -> None:
    drawn, (ready, text, _) = browse(tmp_path / "report.html", of_one_message(), DRAWN, SHOWN)
    assert ready == "yes"
    assert drawn == {"throughput": 3, "backlog": 1, "latency": 0, "spread": 0, "outcomes": 1}
    assert text.count("These files contain no confirm with a latency.") == 2


def test_the_page_of_a_thousand_queues(tmp_path: Path) -> None:
    report = made(1000, every=50, series_max=20)
    drawn, (ready, text, _) = browse(tmp_path / "report.html", report, DRAWN, SHOWN)
    assert ready == "yes"
    assert drawn == {"throughput": 3, "backlog": 1 + LINES, "latency": 4 * ROWS, "spread": 20, "outcomes": 3 * ROWS}
    assert "bmq://domain999/queue" in text
