"""BDE's format language, beside what the reference's bmqtool.tsk writes with the same formats."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from formats.ball import Record, compile_format

RECORD = Record(
    time=datetime(2026, 8, 5, 9, 7, 3, 45_678, UTC),
    process=77,
    thread=255,
    severity="WARN",
    category="BMQTOOL.X",
    file="/src/x.py",
    line=12,
    message="100% of\n\xe4",
)


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("%d|%D", "05AUG2026_09:07:03.045|05AUG2026_09:07:03.045678"),
        ("%i|%I|%O", "2026-08-05T09:07:03Z|2026-08-05T09:07:03.045Z|2026-08-05T09:07:03.045678Z"),
        ("%s %c %m", "WARN BMQTOOL.X 100% of\n\xe4"),
        ("%F:%l %f", "x.py:12 /src/x.py"),
        ("%p %t %T", "77 255 FF"),
        ("%x|%X", r"100% of\x0A\xC3\xA4|31303025206F660AC3A4"),
        (r'"%c~@~%s\n"', '"BMQTOOL.X~@~WARN\n"'),
        (r"%%\t\\%q\q\r%u%a%", "%\t\\%q\\q\\r%"),
        ("%O\n", "2026-08-05T09:07:03.045678Z\n"),
    ],
)
def test_records_are_written_as_the_format_says(spec: str, line: str) -> None:
    assert compile_format(spec)(RECORD) == line
