from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from formats.bmq.guid import CLIENT_ID_SIZE, GuidGenerator


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["journal", "guid", *args])
    return result.exit_code, result.stdout, result.stderr


def test_the_parts_are_what_the_generator_put_in() -> None:
    generator = GuidGenerator(bytes(range(CLIENT_ID_SIZE)), 1000)
    generator.make(1000)
    text = generator.make(1000 + 90_000_000_123).hex()
    code, out, _ = run("--json", "--started", "2026-11-21T05:00:00", text)
    assert code == 0
    assert json.loads(out) == {
        "guid": text.upper(),
        "version": 1,
        "counter": 1,
        "timer_tick_ns": 90_000_000_123,
        "client_id": "000102030405",
        "time": "2026-11-21T05:01:30+00:00",
    }


def test_for_people() -> None:
    code, out, err = run("40000000000000CDB805BF1837EE82B1")
    assert (code, err) == (0, "")
    assert "client_id:     BF1837EE82B1" in out
    assert "13481989 (0:00:00.013481 after start)" in out


def test_an_unknown_version_is_said() -> None:
    assert "Version 2 is unknown" in run("8" + "0" * 31)[2]


@pytest.mark.parametrize("text", ["", "4000", "G" * 32, "0" * 33])
def test_what_is_no_guid_is_refused_in_a_line(text: str) -> None:
    code, out, err = run(text)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "not 32" in err
