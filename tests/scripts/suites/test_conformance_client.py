from __future__ import annotations

from pathlib import Path

import pytest

from scripts.suites.client import Case, main, read_cases, rows

REPORT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest">
<testcase classname="tests.x" name="test_it_posts[asyncio]" time="0.1" />
<testcase classname="tests.x" name="test_it_posts[trio]"><failure message="lost 1&#10;more">where</failure></testcase>
<testcase classname="tests.x" name="test_tls[asyncio]"><skipped message="no TLS">x</skipped></testcase>
<testcase classname="tests.x" name="test_start[trio]"><error message="did not start">x</error></testcase>
<testcase classname="tests.docs" name="test_the_page" />
</testsuite></testsuites>
"""
CASES = [
    Case("it posts", "asyncio", "passed", ""),
    Case("it posts", "trio", "failed", "lost 1"),
    Case("tls", "asyncio", "skipped", "no TLS"),
    Case("start", "trio", "failed", "did not start"),
    Case("the page", "asyncio", "passed", ""),
]


def test_reports_are_read(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert read_cases(report) == CASES


def test_a_row_has_both_backends() -> None:
    assert rows(CASES) == [
        ("it posts", "passed", "failed"),
        ("tls", "skipped", ""),
        ("start", "", "failed"),
        ("the page", "passed", ""),
    ]


def test_without_the_broker_nothing_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bmqbrkr.tsk").write_text("not executable")
    assert main([str(tmp_path)]) == 2
    assert "bmqbrkr.tsk is not an executable file" in capsys.readouterr().err
