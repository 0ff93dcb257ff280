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


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "7F000001000051AF0000000000000122",
            {"offset_id": "7F000001000051AF0000000000000122", "store_host": "127.0.0.1:20911", "offset": 290},
        ),
        (
            "20010DB8000000000000000000000001000051AF0000000000000122",
            {
                "offset_id": "20010DB8000000000000000000000001000051AF0000000000000122",
                "store_host": "[2001:db8::1]:20911",
                "offset": 290,
            },
        ),
        (
            "FD0000000000000000000000000000023DE54E0E2F2A6CFF04050000",
            {
                "unique_id": "FD0000000000000000000000000000023DE54E0E2F2A6CFF04050000",
                "address": "fd00::2",
                "pid": 0x3DE5,
                "loader_hash": 0x4E0E2F2A,
                "month_ms": 0x6CFF0405,
                "counter": 0,
                "time": "2026-11-22T03:57:32.037000+00:00",
            },
        ),
        (
            "7F0000010AB118B4AAC20000000004D2",
            {
                "unique_id": "7F0000010AB118B4AAC20000000004D2",
                "address": "127.0.0.1",
                "pid": 0x0AB1,
                "loader_hash": 0x18B4AAC2,
                "month_ms": 0,
                "counter": 0x04D2,
                "time": "2026-11-01T00:00:00+00:00",
            },
        ),
        (
            "0156F7E71C361B21BC024CCDBE00000000",
            {
                "unique_id": "0156F7E71C361B21BC024CCDBE00000000",
                "version": 1,
                "mac": "56:f7:e7:1c:36:1b",
                "pid": 0x21BC,
                "time": "2022-03-23T14:50:38+00:00",
                "counter": 0,
            },
        ),
    ],
)
def test_ids_of_rocketmq_are_told_apart(text: str, parts: dict[str, object]) -> None:
    code, out, err = run("--json", "--started", "2026-11-21", text.lower())
    assert (code, err) == (0, "")
    assert json.loads(out) == parts


def test_the_kind_may_be_named() -> None:
    text = "40000000000000CDB805BF1837EE82B1"
    assert "address:       64.0.0.0" in run("--kind", "unique", text)[1]
    assert "(2 days, 0:00:00.001000 after the month began)" in run("--kind", "unique", text[:20] + "0A4CB8010000")[1]
    assert run("--kind", "offset", text[:8] + "00FF" + text[12:])[0] == 2
    assert "version:       0" in run("--kind", "blazingmq", "0A0000010AB118B4AAC20000000004D2")[1]
    assert "pid:           2737" in run("0A0000010AB118B4AAC20000000004D2")[1]


@pytest.mark.parametrize("text", ["4000", "G" * 32, "0" * 33])
def test_invalid_guid_is_refused_in_a_line(text: str) -> None:
    code, out, err = run(text)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "not 32" in err
