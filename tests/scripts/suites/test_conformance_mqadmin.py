"""RocketMQ's `mqadmin` as the conformance runner runs it, with a Java that only pretends."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.suites.mqadmin import Place, chosen, fault_of, run_commands
from scripts.suites.mqadmin_cases import ACL_CASES, CASES, Case

PLACE = Place("127.0.0.1:1", "127.0.0.1:2", "c", "b")
JAVA = """#!/bin/sh
while IFS= read -r line; do
    echo "$line" >> {told}
    case "$line" in *first*) echo "set id=A.B" ;; *) echo "found A.B" ;; esac
    echo end
done
"""


def test_commands_are_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "told"
    (tmp_path / "java").write_text(JAVA.format(told=told))
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    cases = [
        Case("one", "@first {nameserver}", ("set id",)),
        Case("two", "second -i {id} -b {broker}", ("found {id}$",), seconds=3),
        Case("three", "third {unknown}", ("nothing",)),
    ]
    outcomes = run_commands("a.jar", PLACE, cases, tmp_path, tmp_path / "log")
    assert outcomes.found == {"one": "passed", "two": "passed", "three": "failed"}
    assert outcomes.reasons == {"three": "nothing matches nothing"}
    assert told.read_text().splitlines() == [
        "40\t@first\t127.0.0.1:1",
        "3\tsecond\t-i\tA.B\t-b\t127.0.0.1:2\t-n\t127.0.0.1:1",
        "40\tthird\t-\t-n\t127.0.0.1:1",
    ]
    assert "--- two: second" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("all is well", None),
        ("well", "nothing matches ^all"),
        ("all is well\njava.lang.Exception: no\n\tat x", "java.lang.Exception: no"),
        ("all\nSubCommandException: x\nCaused by: CODE: 3  DESC: no", "Caused by: CODE: 3  DESC: no"),
    ],
)
def test_fault_is_named(text: str, reason: str | None) -> None:
    assert fault_of(Case("x", "x", ("^all",)), text, {}) == reason


def test_cases_are_chosen_with_what_they_need() -> None:
    assert len({case.name for case in (*CASES, *ACL_CASES)}) == len(CASES) + len(ACL_CASES)
    (group,) = chosen(["topicStatus"])
    names = ["updateTopic", "updateTopic -c", "updateSubGroup", "clients", "topicStatus"]
    assert [case.name for case in group.cases if "cloned" not in case.name] == names
    plain, secured = chosen(None)
    assert (plain.cases, secured.cases) == ([*CASES], [*ACL_CASES])
    assert "authenticationEnabled=true" not in plain.config
    assert "authenticationEnabled=true" in secured.config
    theirs, _ = chosen(None, of_apache=True)
    assert len(theirs.cases) < len(CASES)
    assert chosen([ACL_CASES[0].name]) == [secured]
    with pytest.raises(SystemExit, match="no such command: none"):
        chosen(["none"])
