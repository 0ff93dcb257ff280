"""The conformance runner: what it reads from a report, what it says has changed, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.suites import blazingmq as runner
from scripts.suites.results import failed_before, tell


def entry(case: str, when: str, outcome: str, longrepr: object = None) -> dict[str, object]:
    return {"$report_type": "TestReport", "nodeid": case, "when": when, "outcome": outcome, "longrepr": longrepr}


def write_report(file: Path, *entries: dict[str, object]) -> Path:
    file.write_text("".join(json.dumps(each) + "\n" for each in entries))
    return file


def test_case_that_fails_in_any_phase_has_failed(tmp_path: Path) -> None:
    crash = {"reprcrash": {"path": "/there/test_x.py", "lineno": 7, "message": "assert 1 == 2\n +  where"}}
    report = write_report(
        tmp_path / "report.jsonl",
        {"$report_type": "SessionStart"},
        entry("good", "setup", "passed"),
        entry("good", "call", "passed"),
        entry("good", "teardown", "passed"),
        entry("bad", "setup", "passed"),
        entry("bad", "call", "failed", crash),
        entry("bad", "teardown", "passed"),
        entry("unclean", "call", "passed"),
        entry("unclean", "teardown", "failed", "long\nRuntimeError: exit code"),
        entry("never", "setup", "skipped", ["x.py", 1, "Skipped"]),
    )
    found, reasons = runner.read_report(report)
    assert found == {"good": "passed", "bad": "failed", "unclean": "failed", "never": "skipped"}
    assert reasons == {
        "bad": "call: test_x.py:7: assert 1 == 2",
        "unclean": "teardown: RuntimeError: exit code",
    }


def test_report_that_was_never_written_has_no_cases(tmp_path: Path) -> None:
    assert runner.read_report(tmp_path / "none") == ({}, {})


def test_tells_the_difference_to_the_last_run_of_each_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tell("suite", {"a": "passed", "b": "failed", "c": "passed"}, {"b": "call: no"}, tmp_path)
    capsys.readouterr()
    tell("suite", {"a": "failed", "b": "passed"}, {"a": "call: x.py:1: lost"}, tmp_path)
    told = capsys.readouterr().out.splitlines()
    assert told == [
        "FAILED a",
        "       call: x.py:1: lost",
        "now passed (was failed): b",
        "now failed (was passed): a",
        "suite: 1 passed, 1 failed, 0 skipped; of 2 that ran before, 1 more pass and 1 no longer pass",
        "suite, each case's last run: 2 of 3 passed, 1 failed",
    ]
    assert failed_before("suite", tmp_path) == ["a"]


@pytest.mark.parametrize("option", [[], ["--sdk"]])
def test_refuses_a_folder_that_is_no_checkout(
    option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runner.main([*option, str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"conformance: {tmp_path} has no ")


def test_suites_inherit_nothing_of_our_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("BMQ_BROKER_URI", "tcp://elsewhere:1")
    monkeypatch.setenv("KEPT", "yes")
    environment = runner.clean_environment(tmp_path)
    assert "PYTHONPATH" not in environment
    assert "BMQ_BROKER_URI" not in environment
    assert environment["KEPT"] == "yes"


@pytest.mark.parametrize("missing", ["bmqtool.tsk", "bmqstoragetool.tsk", "bmqbrkr.tsk"])
def test_refuses_a_program_that_is_not_there(
    tmp_path: Path, missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    checkout, folder = tmp_path / "blazingmq", tmp_path / "reference"
    (checkout / "src" / "integration-tests").mkdir(parents=True)
    folder.mkdir()
    for name in {"bmqtool.tsk", "bmqstoragetool.tsk", "bmqbrkr.tsk"} - {missing}:
        (folder / name).touch(mode=0o755)
    words = [str(checkout), "--tool", str(folder), "--broker", str(folder / "bmqbrkr.tsk")]
    assert runner.main(words) == 2
    assert f"{folder / missing} is not an executable file" in capsys.readouterr().err
