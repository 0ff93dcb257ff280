"""Tests of `broker.common.limited_log`."""

from __future__ import annotations

import logging

import pytest

from broker.common.limited_log import SECOND_MS, LimitedLog


def test_one_line_per_period_is_logged_and_the_others_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    log = LimitedLog(logging.getLogger("broker.test"), logging.ERROR, SECOND_MS, "#REFUSED ")
    for ms in (0, 1, 2, SECOND_MS):
        log.add(f"at {ms}", ms)
    assert [record.getMessage() for record in caplog.records] == [
        "#REFUSED at 0",
        f"#REFUSED at {SECOND_MS} (and 2 more since the last such line)",
    ]
    assert {record.levelno for record in caplog.records} == {logging.ERROR}


def test_a_clock_that_is_set_back_ends_the_period(caplog: pytest.LogCaptureFixture) -> None:
    log = LimitedLog(logging.getLogger("broker.test"))
    for ms in (100_000, 50_000):
        log.add(f"at {ms}", ms)
    assert [record.getMessage() for record in caplog.records] == ["at 100000", "at 50000"]
