"""The line with which a fault of the machine ends a command."""

from __future__ import annotations

import pytest
import typer

from bmqctl.common import ending
from bmqctl.common.ending import faults_end


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (OSError(24, "Too many open files"), "Too many open files; raise the limit of open files (ulimit -n)"),
        (RuntimeError("can't start new thread"), "no thread can be started; raise the limit of processes"),
        (ExceptionGroup("both", [RuntimeError("can't start new thread")]), "no thread can be started; raise"),
    ],
)
def test_a_fault_of_the_machine_is_one_line(fault: Exception, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as end, faults_end(lambda: "post"):
        raise fault
    assert end.value.exit_code == 2
    told = capsys.readouterr().err
    assert told.startswith(f"bmqctl post: {line}")
    assert told.count("\n") == 1


def test_the_exit_of_a_command_whose_output_was_lost_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "output_fault", lambda: OSError(9, "Bad file descriptor"))
    with pytest.raises(typer.Exit) as end, ending.faults_end(lambda: "start node"):
        raise typer.Exit(0)
    assert end.value.exit_code == 0


def test_another_fault_is_not_hidden() -> None:
    with pytest.raises(RuntimeError, match="x"), faults_end(lambda: "post"):
        raise RuntimeError("x")
