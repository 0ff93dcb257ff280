"""The rule about numbers in texts."""

from __future__ import annotations

import pytest

from scripts.checks import bounded_numbers


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("x = int(text)", 1),
        ("x = int(text[:9])", 1),
        ("x = int(words[2])", 1),
        ("x = int(found[1] or '0')", 1),
        ("x = int(left + right)", 1),
        ("x = int('7')", 1),
        ("x = list(map(int, texts))", 1),
        ("x = text.isdecimal() and int(text) < 3", 2),
        ("x = text.isdigit() or text.isnumeric()", 2),
        ("x = int(Flag.ONE | Flag.TWO)", 0),
        ("x = int(codes.Flag.ONE)", 0),
        ("x = int(number * 2)", 0),
        ("x = int(left > right)", 0),
        ("x = int(records.offsets[0])", 0),
        ("import numpy as np\nx = int(ends[0])", 0),
        ("x: int = read_int(text)", 0),
    ],
)
def test_places_where_a_module_reads_a_number_itself(line: str, count: int) -> None:
    assert len(list(bounded_numbers.faults("a.py", line))) == count


def test_exceptions_that_are_not_needed_are_complaints() -> None:
    modules = {"a.py": "x = int(text)", "b.py": "x = int(text)", "c.py": ""}
    lines = bounded_numbers.complaints(modules, {"a.py": "It may.", "c.py": "It need not."})
    assert [line.partition(":")[0] for line in lines] == ["b.py", "c.py"]


def test_packages_keep_the_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert bounded_numbers.main() == 0, capsys.readouterr().err
