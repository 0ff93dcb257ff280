"""The statistics file: appended to, put aside, removed, and done without where it cannot be written."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from broker.bmq.assembly.statistics_file import DAY_S, StatisticsFile
from broker.bmq.config.broker_schema import StatsPrinterConfig

SETTINGS = StatsPrinterConfig()


def write(file: StatisticsFile, *lines: str) -> None:
    for _ in file.write(iter(lines)):
        """Other work would be done here."""


def test_lines_are_appended_until_the_file_is_long(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "stat.json"
    file = StatisticsFile(path, SETTINGS.model_copy(update={"rotate_bytes": 20, "max_age_days": 3}))
    write(file, "one\n", "two\n")
    write(file, "three, and longer\n")
    assert path.read_text() == "one\ntwo\nthree, and longer\n"
    old = path.with_name("stat.json.20200101_000000")
    recent = path.with_name("stat.json.20200102_000000")
    for each, days in ((old, 4), (recent, 2)):
        each.write_text("")
        os.utime(each, (time.time() - days * DAY_S,) * 2)
    write(file, "four\n")
    assert path.read_text() == "four\n"
    (aside,) = set(path.parent.iterdir()) - {path, recent}
    assert aside.read_text() == "one\ntwo\nthree, and longer\n"
    file.close()


def test_a_file_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "logs"
    folder.write_text("no folder")
    file = StatisticsFile(folder / "stat.json", SETTINGS)
    for _ in range(2):
        write(file, "lost\n")
    assert len([record for record in caplog.records if "cannot be written" in record.message]) == 1
    folder.unlink()
    write(file, "kept\n")
    assert (folder / "stat.json").read_text() == "kept\n"
    file.close()
